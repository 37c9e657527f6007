//! Commands and replies as values: the common vocabulary of node, stores and protocols.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::reply::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched,
};
use crate::error::StoreError;
use crate::member::Member;

/// A command on a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Acquires the demands of a node's members, or queues for them: member by member, in this
    /// order and in a single step.
    Acquire {
        /// The members.
        members: Vec<Member>,
        /// Whether the members may queue.
        mode: Mode,
        /// The most live waiters in the queue.
        queue_limit: u32,
    },
    /// Releases a hold.
    Release {
        /// The holder.
        member: Member,
    },
    /// Extends a node's holds to their full leases.
    Renew {
        /// The holders.
        members: Vec<Member>,
    },
    /// Extends a node's hold to the full lease and returns the token: for a hold that has not
    /// been handed out yet.
    Confirm {
        /// The holder.
        member: Member,
    },
    /// Lowers a hold's weight: a write becomes a read. A batch's hold becomes the hold of the
    /// served member, even if the weight stays the same.
    Reduce {
        /// The holder, by the name of the hold.
        member: Member,
        /// The id of the served member within the hold: the holder's own id outside a batch.
        served: u64,
        /// The new weight; never raises the weight.
        weight: NonZeroU32,
        /// The batch members that still wait, in order: they return to the front of the queue.
        back: Vec<u64>,
    },
    /// Keeps a node's waiters alive.
    Touch {
        /// The waiters.
        members: Vec<Member>,
    },
    /// Removes a node's members from the queue, or releases their holds.
    Leave {
        /// The members.
        leaving: Vec<Leaving>,
    },
    /// Drops a single hold, or all holds, of any node.
    ForceRelease {
        /// The holder; `None` for all.
        member: Option<Member>,
    },
    /// Reads the holders and the queue.
    Inspect {
        /// How many waiters to skip at the queue's head.
        from: u32,
        /// The most waiters, and the most holders, to read.
        most: NonZeroU32,
    },
}

impl Command {
    /// Reads all holders and the whole queue.
    pub const INSPECT: Self = Self::Inspect { from: 0, most: NonZeroU32::MAX };

    /// Reduces a hold outside a batch.
    pub fn reduce(member: Member, weight: NonZeroU32) -> Self {
        Self::Reduce { served: member.number(), member, weight, back: Vec::new() }
    }

    /// The command's first member; `None` if the command concerns only a lock.
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

    /// The holders that the command renews.
    pub fn renews(&self) -> &[Member] {
        match self {
            Self::Renew { members } => members,
            Self::Confirm { member } => std::slice::from_ref(member),
            _ => &[],
        }
    }
}

/// The reply to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire, with an outcome per member.
    Acquired(Reply<Vec<Acquired>>),
    /// To a release or a force release.
    Released(Reply<Released>),
    /// To a renewal, with an outcome per member, a confirmation or a reduction.
    Renewed(Reply<Vec<Renewed>>),
    /// To a touch.
    Touched(Reply<Touched>),
    /// To a leave, with an outcome per member.
    Left(Reply<Vec<Left>>),
    /// To an inspection.
    Inspected(Inspection),
}

impl Answer {
    /// The calling node's holds contained in the reply.
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

    /// The server's time, µs since the epoch, if the reply contains it.
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

    /// How many waiting members the command skipped because their nodes were not connected.
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

    /// Whether the command left work that the node must request immediately.
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

/// A reply per command, in order. A lock whose keys hold another program's data gets an error,
/// without affecting the other locks.
pub type Answers = SmallVec<[Result<Answer, StoreError>; 1]>;
