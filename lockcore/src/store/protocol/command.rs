//! The commands and their answers as values: for the node, which decides what is sent, and for code
//! that treats all commands alike.

use super::permits;
use super::reply::{Acquired, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched};
use crate::member::Member;

/// One command, for those who treat all alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Takes the lock or queues for it.
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
    /// Extends a hold to the full lease.
    Renew {
        /// Whose.
        member: Member,
    },
    /// Keeps waiters alive.
    Touch {
        /// Which.
        members: Vec<Member>,
    },
    /// Takes members out.
    Leave {
        /// Which.
        leaving: Vec<Leaving>,
    },
    /// Makes a read of a write.
    Downgrade {
        /// Whose.
        member: Member,
    },
    /// Drops the hold, whichever member has it.
    ForceRelease,
    /// Looks.
    Inspect,
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire.
    Acquired(Reply<Acquired>),
    /// To a release or a force release.
    Released(Reply<Released>),
    /// To a renew.
    Renewed(Reply<Renewed>),
    /// To a touch.
    Touched(Reply<Touched>),
    /// To a leave.
    Left(Reply<Vec<Left>>),
    /// To an inspect.
    Inspected(Inspection),
    /// To an inspect of a resource with permits.
    SharedInspected(permits::Inspection),
}

impl Answer {
    /// The server's time, µs since the epoch; 0 if it was not told.
    pub fn now_us(&self) -> u64 {
        match self {
            Self::Acquired(reply) => reply.now_us,
            Self::Released(reply) => reply.now_us,
            Self::Renewed(reply) => reply.now_us,
            Self::Touched(reply) => reply.now_us,
            Self::Left(reply) => reply.now_us,
            Self::Inspected(inspection) => inspection.now_us,
            Self::SharedInspected(inspection) => inspection.now_us,
        }
    }
}
