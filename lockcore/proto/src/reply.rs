//! The parts of commands and answers.

use crate::member::{Member, Party};
use crate::token::FencingToken;

/// Most members in one touch or leave; more are split by the caller.
pub const MAX_BATCH: usize = 256;
/// Most members in one acquire, for the same reason as for [`MAX_RENEWALS`].
pub const MAX_ACQUIRES: usize = 64;
/// Most holds in one renewal, so that a server does nothing else for a millisecond at most.
pub const MAX_RENEWALS: usize = 128;
/// Most locks in one touch, for the same reason.
pub const MAX_LINES: usize = 64;

/// Whether an acquire may queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Acquires at once or not at all.
    Try,
    /// Queues if the demand cannot be granted at once.
    Wait,
}

/// The outcome of a command, with the facts that every answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// The outcome of the command.
    pub outcome: T,
    /// Holds of the calling node: those that this command granted, renewed or reduced, and those
    /// of members that ask again. A mutex that the node holds is told with every answer. Not all
    /// that a node holds of permits, which may be thousands.
    pub grants: Vec<Grant>,
    /// Milliseconds to the first end of a lease, at least 1, or 0 if none holds. Nothing where a
    /// short answer leaves it out: then none waits, or leases were renewed.
    pub first_end_ms: Option<u64>,
    /// The server's time, µs since the epoch. Nothing where a short answer leaves it out.
    pub now_us: Option<u64>,
    /// Waiting members that the hand-over passed over: their nodes are not connected.
    pub passed_over: u64,
    /// There was more to do than one command does: a touch at once goes on.
    pub more: bool,
}

impl<T> Reply<T> {
    /// The same answer with an outcome made of this one.
    pub fn map<U>(self, outcome: impl FnOnce(T) -> U) -> Reply<U> {
        let Self { outcome: of, grants, first_end_ms, now_us, passed_over, more } = self;
        Reply { outcome: outcome(of), grants, first_end_ms, now_us, passed_over, more }
    }
}

/// A hold, as the server tells its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The holder.
    pub member: Member,
    /// The token of this hold.
    pub token: FencingToken,
    /// Milliseconds left of its lease, or of its claim; 0 for a reduction, which leaves it as it
    /// is.
    pub left_ms: u64,
    /// The numbers of the members that are served within this hold, in order, if it is a run's.
    /// Each has the next token: the first of them that of this grant.
    pub run: Vec<u64>,
}

impl Grant {
    /// Whether the member has the hold, alone or within a run.
    pub fn serves(&self, member: &Member) -> bool {
        match self.run.as_slice() {
            [] => self.member == *member,
            run => self.member.node() == member.node() && run.contains(&member.number()),
        }
    }

    /// The token of the last member that is served within the hold.
    pub fn last_token(&self) -> FencingToken {
        self.token.plus(self.run.len().saturating_sub(1))
    }
}

/// Outcome of an acquire for one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The member holds; the grant is in the reply.
    Granted,
    /// The member waits; 0 is next.
    Queued {
        /// Members ahead of it.
        position: u64,
    },
    /// Held, and the mode was try.
    Busy,
    /// The queue is as long as the caller allows, or longer.
    Full {
        /// Members in the queue.
        waiting: u64,
    },
    /// The member was given up before.
    Refused,
    /// The fast path does not serve this lock: the acquire is to be sent by its script.
    NotServed {
        /// Whether the member may hold the lock nonetheless.
        may_hold: bool,
    },
}

/// Outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// This call freed it.
    Released,
    /// It was not held (any more).
    NotHeld,
}

/// Outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Extended.
    Held,
    /// Not held any more.
    NotHeld,
}

/// Outcome of a touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// One per member asked for, in order, as it was before this command granted anything.
    pub members: Vec<Presence>,
    /// Connections that listen to the node's channel on this server.
    pub listeners: u64,
}

/// The state of one member, as a touch found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In the queue.
    Waiting,
    /// It holds: the reply tells it as a grant.
    Holding,
    /// It has left the queue for a newer one.
    Superseded,
    /// Neither: its place or its hold is lost.
    Gone,
}

/// One member that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The member.
    pub member: Member,
    /// A copy of its acquire may still run later, so leave a tombstone.
    pub ambiguous: bool,
    /// The member was served in a run that goes on. It leaves that run, and never a hold: where a
    /// downgrade has come first, the hold has its name.
    pub served: bool,
}

impl Leaving {
    /// A member that leaves with all that it has.
    pub fn new(member: Member, ambiguous: bool) -> Self {
        Self { member, ambiguous, served: false }
    }
}

/// The state of one member, as a leave found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It was there, waiting or holding, and is not any more.
    Left,
    /// It was not there.
    Absent,
}

/// A hold as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    /// The holder; of a run, the first member that has not left.
    pub party: Party,
    /// The weight of its hold.
    pub weight: u64,
    /// The milliseconds left of its lease, 0 if it has no end.
    pub left_ms: u64,
}

/// A lock as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The holders, the first to end comes first.
    pub holds: Vec<HoldView>,
    /// Those of a run that are still to be served, then the queue in order, with each waiter's
    /// deadline (ms since the epoch, by the server's clock).
    pub waiters: Vec<(Party, u64)>,
    /// The number of holds, also of those that are not shown and of parts whose lease has ended.
    pub holding: u64,
    /// The number of waiters, also of those that are not shown.
    pub waiting: u64,
    /// The last token that was given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
}
