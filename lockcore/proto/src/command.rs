//! Commands that a node sends to a lock, and the server's replies, as plain values. The node, the
//! stores and the layouts share these types.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::reply::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched,
};
use crate::error::StoreError;
use crate::member::Member;

/// A command that a node sends to the server for one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Acquires the lock for members of a node, or queues the members. The server handles all
    /// members in a single step, in this order.
    Acquire {
        /// The members that acquire the lock, in order.
        members: Vec<Member>,
        /// Whether members that cannot be granted at once are queued or refused.
        mode: Mode,
        /// The maximum queue length: further members are refused as [`Full`](Acquired::Full).
        /// Waiters of dead nodes are removed first.
        queue_limit: u32,
    },
    /// Ends a hold, and grants the lock to the next waiters.
    Release {
        /// The member whose hold ends.
        member: Member,
    },
    /// Extends the lease of each of these holds of a node to its full length again.
    Renew {
        /// The members whose holds are renewed.
        members: Vec<Member>,
    },
    /// Extends a hold's lease to its full length again and returns the fencing token. A node
    /// confirms a granted lock before it hands the guard to the caller, if the lease may be nearly
    /// over or the token is unknown.
    Confirm {
        /// The member that holds the lock.
        member: Member,
    },
    /// Lowers a hold's weight, as in a downgrade from a lock to a read. If the hold belongs to a
    /// batch, it becomes the hold of the member that is served now, even if the weight stays the
    /// same.
    Reduce {
        /// The member under which the server stores the hold. For a batch this may be an earlier
        /// member of the batch.
        member: Member,
        /// The id of the member that is served now and keeps the hold; outside a batch, the id of
        /// `member`.
        served: u64,
        /// The new weight. A value above the present weight changes nothing.
        weight: NonZeroU32,
        /// The ids of the batch members that have not been served yet, in order. They return to the
        /// queue's front.
        back: Vec<u64>,
    },
    /// Extends the time until which the server believes the node's waiters alive, and returns the
    /// state of each. Waiters without touches are skipped, and their locks are granted to others.
    Touch {
        /// The waiting members of the node.
        members: Vec<Member>,
    },
    /// Removes members of a node from the queue. A member that was granted the lock in the meantime
    /// releases it.
    Leave {
        /// The members to remove.
        leaving: Vec<Leaving>,
    },
    /// Ends a hold of any node, or all holds, without the holder's consent. The nodes of the
    /// holders are notified.
    ForceRelease {
        /// The holder whose hold ends; `None` ends all holds.
        member: Option<Member>,
    },
    /// Reads the holders and the queue for operators; changes neither.
    Inspect {
        /// The number of waiters at the head of the queue that are left out of the reply.
        from: u32,
        /// The maximum number of waiters in the reply, and likewise of holders.
        most: NonZeroU32,
    },
}

impl Command {
    /// The command that reads all holders and the whole queue.
    pub const INSPECT: Self = Self::Inspect { from: 0, most: NonZeroU32::MAX };

    /// Creates the command that lowers the weight of `member`'s hold to `weight`. The hold must not
    /// belong to a batch.
    pub fn reduce(member: Member, weight: NonZeroU32) -> Self {
        Self::Reduce { served: member.number(), member, weight, back: Vec::new() }
    }

    /// Returns the first member in the command. `None` if the command names no member, as an
    /// inspection.
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

    /// Returns the holders whose leases a renewal or a confirmation extends; empty for all other
    /// commands.
    pub fn renews(&self) -> &[Member] {
        match self {
            Self::Renew { members } => members,
            Self::Confirm { member } => std::slice::from_ref(member),
            _ => &[],
        }
    }
}

/// The server's reply to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The reply to an acquire, with an outcome per member in the command's order.
    Acquired(Reply<Vec<Acquired>>),
    /// The reply to a release or a force release.
    Released(Reply<Released>),
    /// The reply to a renewal, with an outcome per member, or to a confirmation or a reduction,
    /// with a single outcome.
    Renewed(Reply<Vec<Renewed>>),
    /// The reply to a touch.
    Touched(Reply<Touched>),
    /// The reply to a leave, with an outcome per member in the command's order.
    Left(Reply<Vec<Left>>),
    /// The reply to an inspection.
    Inspected(Inspection),
}

impl Answer {
    /// Returns the holds of the calling node that the reply reports, including grants to other
    /// members of this node.
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

    /// Returns the server's time when the command ran, µs since the epoch. `None` if the reply is a
    /// short one, without the time.
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

    /// Returns the number of waiters that the command skipped, because their nodes were not
    /// connected.
    pub fn skipped(&self) -> u64 {
        match self {
            Self::Acquired(reply) => reply.skipped,
            Self::Released(reply) => reply.skipped,
            Self::Renewed(reply) => reply.skipped,
            Self::Touched(reply) => reply.skipped,
            Self::Left(reply) => reply.skipped,
            Self::Inspected(_) => 0,
        }
    }

    /// Returns true if the command stopped at its work limit, so that the node must send a touch
    /// immediately to continue.
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

/// One reply per command, in the order of the commands. A command is answered with an error if its
/// lock keys hold another program's data; the other commands are not affected.
pub type Answers = SmallVec<[Result<Answer, StoreError>; 1]>;
