//! What the commands take and what they answer.

use std::num::NonZeroU32;

use super::member::Member;
use crate::store::protocol::reply::{Acquired, Left, Mode, Released, Renewed};
use crate::token::FencingToken;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Takes what the member asks for, or queues for it.
    Acquire {
        /// Who.
        member: Member,
        /// Whether it may queue.
        mode: Mode,
        /// Most live waiters.
        queue_limit: u32,
    },
    /// Gives a hold back.
    Release {
        /// Whose.
        member: Member,
    },
    /// Extends holds of one node to their full leases.
    Renew {
        /// Whose.
        members: Vec<Member>,
    },
    /// Lowers what a hold weighs: a write becomes a read.
    Reduce {
        /// Whose.
        member: Member,
        /// To this, never raised.
        weight: NonZeroU32,
    },
    /// Keeps waiters of one node alive.
    Touch {
        /// Which.
        members: Vec<Member>,
    },
    /// Takes members of one node out.
    Leave {
        /// Which.
        leaving: Vec<Leaving>,
    },
    /// Drops one hold, or all, whichever member has them.
    ForceRelease {
        /// Whose; all if it is not said.
        member: Option<Member>,
    },
    /// Looks.
    Inspect,
}

/// One member that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Who.
    pub member: Member,
    /// A copy of its acquire may still run later, so leave a tombstone.
    pub ambiguous: bool,
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire.
    Acquired(Reply<Acquired>),
    /// To a release or a force release.
    Released(Reply<Released>),
    /// To a renewal, one a member, or to a reduction.
    Renewed(Reply<Vec<Renewed>>),
    /// To a touch.
    Touched(Reply<Touched>),
    /// To a leave, one a member.
    Left(Reply<Vec<Left>>),
    /// To an inspection.
    Inspected(Inspection),
}

/// What every command answers: its outcome, and what it gave to members of the calling node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// What the command did.
    pub outcome: T,
    /// What this command granted to members of the calling node; and the hold of a member that asks
    /// again for what it has. Not all that the node holds: that may be thousands.
    pub grants: Vec<Grant>,
    /// The last token, if one is remembered: that of every hold there is. A short answer tells it
    /// only with a grant or a renewal.
    pub token: Option<FencingToken>,
    /// Milliseconds to the first end of a lease, at least 1, or 0 if none holds. Nothing where a
    /// short answer leaves it out: then none waits, or the lock was handed to the one it names, or
    /// leases were renewed.
    pub first_end_ms: Option<u64>,
    /// The server's time, µs since the epoch. Nothing where a short answer leaves it out.
    pub now_us: Option<u64>,
    /// Waiting members that the hand-over passed over: their nodes are not connected.
    pub passed_over: u64,
    /// There was more to do than one command does: a touch at once goes on.
    pub more: bool,
}

/// A hold, as the server tells its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who holds.
    pub member: Member,
    /// Milliseconds left of its lease, or of its claim.
    pub left_ms: u64,
}

/// Outcome of a touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// One per member asked for, in order, as it was before this command granted anything.
    pub members: Vec<Presence>,
    /// Connections that listen to the node's channel on this server.
    pub listeners: u64,
}

/// What a touch found of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In the queue.
    Waiting,
    /// It holds.
    Holding {
        /// Milliseconds left of its lease.
        left_ms: u64,
    },
    /// Neither: its place or its hold is lost.
    Gone,
}

/// A resource as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Who holds, with the weight that each hold has now and its milliseconds left; the first to
    /// end comes first.
    pub holds: Vec<(Member, u64, u64)>,
    /// The queue in order, with each member's deadline (ms since the epoch, by the server's clock).
    pub waiters: Vec<(Member, u64)>,
    /// The last token that was given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
}
