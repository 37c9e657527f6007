//! What is on its way: requests, replies, and messages that nobody asked for.

use crate::state::Id;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Packet {
    Request {
        node: u8,
        ask: Ask,
        sent: u32,
        /// Nobody waits for its reply any more: the connection it went through is gone.
        is_late: bool,
    },
    Reply {
        node: u8,
        ask: Ask,
        sent: u32,
        told: Told,
    },
    Grant {
        member: Id,
        left: u32,
    },
    Revoked {
        member: Id,
    },
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Acquire {
        member: Id,
        waits: bool,
    },
    Release {
        member: Id,
    },
    Renew {
        member: Id,
    },
    Touch {
        /// A bit for each.
        members: u32,
    },
    Leave {
        member: Id,
        is_ambiguous: bool,
    },
    /// An operator's.
    Force,
}

/// What a reply says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) left: u32,
    /// The holder, if it is a member of the node that asked.
    pub(crate) grant: Option<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Granted,
    Queued,
    Busy,
    Full,
    Refused,
    Released(bool),
    Held(bool),
    /// Bits of those that wait, and of those that are gone.
    Touched {
        waiting: u32,
        gone: u32,
    },
    Left(bool),
}
