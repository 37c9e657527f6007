//! Commands that a node sends to a lock, and the server's replies, as plain values. The node, the
//! stores and the layouts share these types.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::reply::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched,
};
use crate::error::StoreError;
use crate::member::Member;

/// Maximum number of holders, and of waiters, that an operator reads at once. Even with the longest
/// labels they fit into a reply of 64 MiB: a larger reply ends the connection, and with it all
/// other requests in flight.
pub const MOST_INSPECTED: NonZeroU32 = NonZeroU32::new(50_000).expect("not 0");

/// A command that a node sends to the server for one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Acquires the lock for attempts of a node, each stored as a [`Member`]. The server handles
    /// the members one after the other, with no other command in between. A member that cannot be
    /// granted the lock is queued or refused.
    Acquire {
        /// The members, in the order in which the server handles them.
        members: Vec<Member>,
        /// Whether members that cannot be granted at once are queued or refused.
        mode: Mode,
        /// The maximum number of waiters. A full queue is searched for waiters of dead nodes, at
        /// most once a second. If it stays full, further members are refused as
        /// [`Full`](Acquired::Full).
        queue_limit: u32,
    },
    /// Ends a hold, and grants the lock to the next waiters.
    Release {
        /// The member whose hold ends.
        member: Member,
    },
    /// Renews holds of a node: each lease runs again for its full length from now. An expired hold
    /// is not revived.
    Renew {
        /// The members whose holds are renewed.
        members: Vec<Member>,
    },
    /// Renews a hold and returns its fencing token. A node sends this command before it hands a
    /// granted lock to the caller, if the lease may be nearly over or the token is unknown.
    Confirm {
        /// The member that holds the lock.
        member: Member,
    },
    /// Lowers a hold's weight, as in a downgrade from a lock to a read. If consecutive waiters
    /// share the hold as a batch, the batch ends, and the hold belongs to the member `served`
    /// alone, even if the weight stays the same.
    Reduce {
        /// The member under which the server stores the hold. For a batch this is the first member,
        /// even if the turn of that member is over.
        member: Member,
        /// The id of the member that uses the hold now and keeps it. Outside a batch it is the id
        /// of `member`.
        served: u64,
        /// The new weight. A value above the present weight changes nothing.
        weight: NonZeroU32,
        /// The ids of the batch members that still wait for their turn, in order. They return to
        /// the queue's front.
        back: Vec<u64>,
    },
    /// Extends the node's liveness deadline, until which the server believes the node's waiters
    /// alive, and returns the state of each waiter. After the deadline, the server removes the
    /// waiters and grants the lock to others.
    Touch {
        /// The waiting members of the node.
        members: Vec<Member>,
    },
    /// Removes members of a node from the queue. If a member holds the lock by now, the hold is
    /// released instead.
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
        /// The number of waiters to leave out of the reply, counted from the head of the queue.
        from: u32,
        /// The maximum number of waiters in the reply, and also the maximum number of holders.
        most: NonZeroU32,
    },
}

impl Command {
    /// The command that reads the holders and the queue, up to [`MOST_INSPECTED`] of each.
    pub const INSPECT: Self = Self::Inspect { from: 0, most: MOST_INSPECTED };

    /// Creates the command that reads at most `most` holders, and at most `most` waiters after the
    /// first `from`. `most` is reduced to [`MOST_INSPECTED`]; 0 counts as 1.
    pub fn inspect(from: u32, most: u32) -> Self {
        let most = NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN).min(MOST_INSPECTED);
        Self::Inspect { from, most }
    }

    /// Creates the command that lowers the weight of `member`'s hold to `weight`, for a hold
    /// outside a batch.
    pub fn reduce(member: Member, weight: NonZeroU32) -> Self {
        Self::Reduce { served: member.number(), member, weight, back: Vec::new() }
    }

    /// Returns the first member that the command names. The reply contains this member, as proof
    /// that it belongs to the command. `None` if the command names no member, for example an
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

    /// Returns the members whose leases the command extends, if it is a renewal or a confirmation.
    /// Empty for all other commands.
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
    /// The reply to a renewal, a confirmation or a reduction. A renewal has an outcome per member,
    /// in the command's order. The other two have a single outcome.
    Renewed(Reply<Vec<Renewed>>),
    /// The reply to a touch.
    Touched(Reply<Touched>),
    /// The reply to a leave, with an outcome per member in the command's order.
    Left(Reply<Vec<Left>>),
    /// The reply to an inspection.
    Inspected(Inspection),
}

impl Answer {
    /// Returns the calling node's holds in the reply. The command may have granted the lock to
    /// waiters of this node that it does not name; their holds are included.
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

    /// Returns the server's time when the command ran, in µs since the epoch. `None` if the server
    /// left the time out to shorten the reply.
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

    /// Returns the number of waiters that the command took out of the queue, because their nodes
    /// were not connected.
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

    /// Returns true if the command stopped at its work limit, although it could have granted more.
    /// The node must then send a touch immediately, so that the server continues.
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

/// The results of several commands, in the order of the commands. A command has an error if a Redis
/// key of its lock contains data of another program. The other commands are not affected.
pub type Answers = SmallVec<[Result<Answer, StoreError>; 1]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_inspection_reads_more_than_a_reply_may_have() {
        let most = |command: Command| match command {
            Command::Inspect { most, .. } => most.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!(most(Command::inspect(7, 0)), 1);
        assert_eq!(most(Command::inspect(7, 100)), 100);
        assert_eq!(most(Command::inspect(7, u32::MAX)), MOST_INSPECTED.get());
        assert_eq!(most(Command::INSPECT), MOST_INSPECTED.get());
    }
}
