//! The packets on their way: requests, replies, and messages that were not asked for.

use crate::server::bits;
use crate::state::{Bits, Id, NUMBERS};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Packet {
    Request {
        node: u8,
        ask: Ask,
        sent: Sent,
        /// Whether no node waits for the reply any more: the connection it went through is gone.
        is_late: bool,
    },
    Reply {
        node: u8,
        ask: Ask,
        sent: Sent,
        told: Told,
    },
    /// The server tells a node that these members of it were granted.
    Grant {
        members: Bits,
        left: u32,
    },
    /// The server tells a node that these members of it are a run, in this order.
    Run {
        members: Vec<Id>,
        left: u32,
    },
    /// The server tells a node that these members of it were forced off.
    Revoked {
        members: Bits,
    },
    /// The server tells a node that these members of it have left the queue for a newer one.
    Superseded {
        members: Bits,
    },
}

impl Packet {
    /// The node that receives the packet, unless it is for the server.
    pub(crate) fn addressee(&self) -> Option<u8> {
        match self {
            Self::Request { .. } => None,
            Self::Reply { node, .. } => Some(*node),
            Self::Run { members, .. } => members.first().map(|member| member / NUMBERS),
            Self::Grant { members, .. }
            | Self::Revoked { members }
            | Self::Superseded { members } => bits(*members).next().map(|member| member / NUMBERS),
        }
    }
}

/// What a table says of a request beside its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) at: u32,
    /// Whether nobody waits for the answer: the table counts such requests apart.
    pub(crate) background: bool,
}

impl Sent {
    /// In place of the real ones where the answer is no longer received.
    pub(crate) const NEVER: Self = Self { at: 0, background: false };
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Acquire {
        /// A bit for each member; they ask in the order of their numbers.
        members: Bits,
        waits: bool,
        /// Whether it goes the fast path, which serves a free lock alone.
        is_fast: bool,
    },
    Release {
        member: Id,
    },
    Renew {
        member: Id,
    },
    /// Renews a hold that is not handed out yet.
    Confirm {
        member: Id,
    },
    Touch {
        /// A bit for each member; none if a command left something to be done and said so.
        members: Bits,
    },
    /// Makes a read of a lock.
    Downgrade {
        member: Id,
        served: Id,
        /// The members of the run that still wait.
        back: Bits,
    },
    Leave {
        /// A bit for each member: one, or all of a run.
        members: Bits,
        /// Those that are ambiguous.
        ambiguous: Bits,
        /// The members of a run that were served: the run goes on, and no hold ends.
        served: Bits,
    },
    /// Releases the lock by force, for an operator.
    Force,
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    /// The time to the first end of a lease.
    pub(crate) left: u32,
    /// The members of the asking node that hold, and the rest of each lease.
    pub(crate) grants: Vec<(Id, u32)>,
    /// The members that are served within the hold that it tells of, in order, if it is a run's.
    pub(crate) run: Vec<Id>,
    /// Whether there is more to do than one command does.
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The bits of the members that hold, of those that wait, and of those that were refused; the
    /// rest found it busy.
    Acquired {
        granted: Bits,
        queued: Bits,
        refused: Bits,
    },
    /// The fast path does not serve the lock: the script is to be asked.
    NotServed,
    Released(bool),
    Held(bool),
    /// The bits of the members that wait, of those that have left the queue for a newer one, and of
    /// those that are gone.
    Touched {
        waiting: Bits,
        superseded: Bits,
        gone: Bits,
    },
    Left(bool),
}
