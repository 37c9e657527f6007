//! The commands and their answers as values: one vocabulary for node, stores and protocols.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::reply::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched,
};
use crate::error::StoreError;
use crate::member::Member;

/// One command on one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Acquires the demands of members of one node, or queues for them: one after the other, in
    /// this order and in one step.
    Acquire {
        /// The members.
        members: Vec<Member>,
        /// Whether they may queue.
        mode: Mode,
        /// Most live waiters.
        queue_limit: u32,
    },
    /// Releases a hold.
    Release {
        /// The holder.
        member: Member,
    },
    /// Extends holds of one node to their full leases.
    Renew {
        /// The holders.
        members: Vec<Member>,
    },
    /// Extends one hold of a node to its full lease, and tells its token: for a hold that is not
    /// handed out yet.
    Confirm {
        /// The holder.
        member: Member,
    },
    /// Lowers the weight of a hold: a write becomes a read. A hold of a run becomes that of the
    /// member that is served, also where the weight stays as it is.
    Reduce {
        /// The holder, by the name of its hold.
        member: Member,
        /// The number of the member that is served within the hold: the holder's own without a run.
        served: u64,
        /// The new weight, never raised.
        weight: NonZeroU32,
        /// The members of the run that still wait, in order: they go back in front of the queue.
        back: Vec<u64>,
    },
    /// Keeps waiters of one node alive.
    Touch {
        /// The waiters.
        members: Vec<Member>,
    },
    /// Takes members of one node out of the queue, or releases their holds.
    Leave {
        /// The members.
        leaving: Vec<Leaving>,
    },
    /// Drops one hold, or all, of any node.
    ForceRelease {
        /// The holder; all if there is none.
        member: Option<Member>,
    },
    /// Reads holders and queue.
    Inspect {
        /// Waiters at the head of the queue that are left out.
        from: u32,
        /// Most waiters, and most holders.
        most: NonZeroU32,
    },
}

impl Command {
    /// Reads all holders and the whole queue.
    pub const INSPECT: Self = Self::Inspect { from: 0, most: NonZeroU32::MAX };

    /// A reduction of a hold that is no run's.
    pub fn reduce(member: Member, weight: NonZeroU32) -> Self {
        Self::Reduce { served: member.number(), member, weight, back: Vec::new() }
    }

    /// The first member that it is about; nothing if it is about a lock alone.
    pub fn first(&self) -> Option<&Member> {
        match self {
            Self::Acquire { members, .. }
            | Self::Renew { members, .. }
            | Self::Touch { members } => members.first(),
            Self::Release { member } | Self::Confirm { member } | Self::Reduce { member, .. } => {
                Some(member)
            }
            Self::Leave { leaving } => leaving.first().map(|one| &one.member),
            Self::ForceRelease { member } => member.as_ref(),
            Self::Inspect { .. } => None,
        }
    }

    /// The holders that it renews.
    pub fn renews(&self) -> &[Member] {
        match self {
            Self::Renew { members } => members,
            Self::Confirm { member } => std::slice::from_ref(member),
            _ => &[],
        }
    }
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer to an acquire, one a member.
    Acquired(Reply<Vec<Acquired>>),
    /// The answer to a release or a force release.
    Released(Reply<Released>),
    /// The answer to a renewal, one a member, to a confirmation or a reduction.
    Renewed(Reply<Vec<Renewed>>),
    /// The answer to a touch.
    Touched(Reply<Touched>),
    /// The answer to a leave, one a member.
    Left(Reply<Vec<Left>>),
    /// The answer to an inspection.
    Inspected(Inspection),
}

impl Answer {
    /// The holds of the calling node that the answer tells.
    pub fn grants(&self) -> &[Grant] {
        match self {
            Self::Acquired(reply) => &reply.grants,
            Self::Released(reply) => &reply.grants,
            Self::Renewed(reply) => &reply.grants,
            Self::Touched(reply) => &reply.grants,
            Self::Left(reply) => &reply.grants,
            Self::Inspected(_) => &[],
        }
    }

    /// The server's time, µs since the epoch, if the answer tells it.
    pub fn now_us(&self) -> Option<u64> {
        match self {
            Self::Acquired(reply) => reply.now_us,
            Self::Released(reply) => reply.now_us,
            Self::Renewed(reply) => reply.now_us,
            Self::Touched(reply) => reply.now_us,
            Self::Left(reply) => reply.now_us,
            Self::Inspected(inspection) => Some(inspection.now_us),
        }
    }

    /// The number of waiting members that the command passed over, as their nodes were not
    /// connected.
    pub fn passed_over(&self) -> u64 {
        match self {
            Self::Acquired(reply) => reply.passed_over,
            Self::Released(reply) => reply.passed_over,
            Self::Renewed(reply) => reply.passed_over,
            Self::Touched(reply) => reply.passed_over,
            Self::Left(reply) => reply.passed_over,
            Self::Inspected(_) => 0,
        }
    }

    /// Whether the command left over work that its node is to ask for at once.
    pub fn more(&self) -> bool {
        match self {
            Self::Acquired(reply) => reply.more,
            Self::Released(reply) => reply.more,
            Self::Renewed(reply) => reply.more,
            Self::Touched(reply) => reply.more,
            Self::Left(reply) => reply.more,
            Self::Inspected(_) => false,
        }
    }
}

/// An answer for each command, in order. One lock at whose keys another program's data stand
/// answers with an error, and keeps no other from its own.
pub type Answers = SmallVec<[Result<Answer, StoreError>; 1]>;
