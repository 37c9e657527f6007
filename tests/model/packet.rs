//! Packets under way: requests, replies, and messages.

use crate::server::bits;
use crate::state::{Bits, Id, NUMBERS};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Packet {
    Request {
        node: u8,
        ask: Ask,
        sent: Sent,
        /// True if no node waits for the reply any more, because the connection is gone.
        is_late: bool,
    },
    Reply {
        node: u8,
        ask: Ask,
        sent: Sent,
        content: ReplyContent,
    },
    /// Notifies a node of granted members.
    Grant {
        members: Bits,
        left: u32,
    },
    /// Notifies a node of a granted batch, in order.
    Batch {
        members: Vec<Id>,
        left: u32,
    },
    /// Notifies a node of force-released members.
    Revoked {
        members: Bits,
    },
    /// Notifies a node of superseded members.
    Superseded {
        members: Bits,
    },
}

impl Packet {
    /// Returns the receiving node; `None` for packets to the server.
    pub(crate) fn addressee(&self) -> Option<u8> {
        match self {
            Self::Request { .. } => None,
            Self::Reply { node, .. } => Some(*node),
            Self::Batch { members, .. } => members.first().map(|member| member / NUMBERS),
            Self::Grant { members, .. }
            | Self::Revoked { members }
            | Self::Superseded { members } => bits(*members).next().map(|member| member / NUMBERS),
        }
    }
}

/// The parts of a request beside the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) at: u32,
    /// True if nobody waits for the response. The core counts such requests separately.
    pub(crate) background: bool,
}

impl Sent {
    /// The value for a request whose reply is no longer received, so that equal requests compare
    /// equal.
    pub(crate) const NEVER: Self = Self { at: 0, background: false };
}

/// A command that a node sends, with the members as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Acquire {
        /// A bit for each member; they request in the order of their numbers.
        members: Bits,
        waits: bool,
        /// Whether the acquire takes the fast path, which only serves free locks.
        is_fast: bool,
    },
    Release {
        member: Id,
    },
    Renew {
        member: Id,
    },
    /// Renews a hold that no caller has taken yet.
    Confirm {
        member: Id,
    },
    Touch {
        /// A bit for each member; 0 if a command reported work left over.
        members: Bits,
    },
    /// Downgrades a lock to a read.
    Downgrade {
        member: Id,
        served: Id,
        /// The batch members still waiting.
        back: Bits,
    },
    Leave {
        /// A bit for each member: a single member, or all of a batch.
        members: Bits,
        /// The ambiguous members.
        ambiguous: Bits,
        /// The served members of a batch: the batch continues, and no hold ends.
        served: Bits,
    },
    /// Force-releases the lock, for an operator.
    Force,
}

/// A reply's content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReplyContent {
    pub(crate) outcome: Outcome,
    /// The time until the first lease ends, in ms.
    pub(crate) left: u32,
    /// The requesting node's members that hold, with the rest of each lease.
    pub(crate) grants: Vec<(Id, u32)>,
    /// The members served within the reported hold, in order, if a batch has it.
    pub(crate) batch: Vec<Id>,
    /// True if work is left over for the next command.
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The holding, the waiting and the refused members; the others found the lock busy.
    Acquired {
        granted: Bits,
        queued: Bits,
        refused: Bits,
    },
    /// The fast path does not serve the lock: the acquire must be sent by script.
    NotServed,
    Released(bool),
    Held(bool),
    /// The waiting, the superseded and the gone members.
    Touched {
        waiting: Bits,
        superseded: Bits,
        gone: Bits,
    },
    Left(bool),
}
