//! One state of the model: the server, the nodes with their clients, what is on its way, and the record of what happened.

use std::sync::Arc;

use lockcore::internals::protocol::LockState;

use crate::packet::Packet;

/// A member by its node and number: a byte instead of a text.
pub(crate) type Id = u8;
/// How many members a node can have.
pub(crate) const NUMBERS: u8 = 10;

pub(crate) fn node_of(id: Id) -> usize {
    usize::from(id / NUMBERS)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// ms since the start, on every clock there is.
    pub(crate) now: u32,
    pub(crate) server: Arc<LockState>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    /// Sorted, because its order means nothing: whatever is on its way may arrive next.
    pub(crate) network: Vec<Packet>,
    pub(crate) budget: Budget,
    pub(crate) record: Record,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Whether the server counts its subscription.
    pub(crate) is_connected: bool,
    pub(crate) is_dead: bool,
    /// Of its next member.
    pub(crate) next_number: u8,
}

/// One who acquires and releases, one operation after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) member: Id,
    /// An instant at which the member had surely not been granted yet.
    pub(crate) anchor: u32,
    /// A copy of the acquire was not answered and may still run.
    pub(crate) is_ambiguous: bool,
    /// Nobody wants the outcome any more.
    pub(crate) is_cancelled: bool,
    pub(crate) waits: bool,
    /// Operations that have not begun.
    pub(crate) left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// An acquire is on its way.
    Asking,
    /// Unanswered, and to be asked for again.
    Parked,
    Waiting,
    /// Granted with little left: renewed before it is handed out.
    Confirming,
    Holding {
        deadline: u32,
        is_lost: bool,
    },
    /// Its release is on its way.
    Ending,
}

impl Phase {
    /// Whether an attempt in it has no outcome yet.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Asking | Self::Parked | Self::Waiting | Self::Confirming)
    }
}

impl Client {
    pub(crate) const IDLE: Self = Self {
        phase: Phase::Idle,
        member: 0,
        anchor: 0,
        is_ambiguous: false,
        is_cancelled: false,
        waits: false,
        left: 0,
    };

    /// Whether its guard says, at `now`, that the lock is held.
    pub(crate) fn believes(&self, now: u32) -> bool {
        matches!(self.phase, Phase::Holding { deadline, is_lost: false } if now < deadline)
    }
}

/// What may still happen to everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Requests, replies and messages that do not arrive, or arrive when nobody expects them any more.
    pub(crate) losses: u8,
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// Subscriptions that are cut.
    pub(crate) cuts: u8,
    pub(crate) forced: u8,
    /// Steps of time.
    pub(crate) passes: u8,
}

/// What nobody in the model knows, but its laws need: a bit for each member, and the line as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// Who waits, in the order of their enqueuing, and until when they may be silent.
    pub(crate) line: Vec<(Id, u32)>,
    /// Released, or left.
    pub(crate) ended: u32,
    /// Whose hold was given back.
    pub(crate) released: u32,
    /// Forced off: the one end of a lease that its guard cannot foresee.
    pub(crate) forced: u32,
    /// The greatest token so far.
    pub(crate) token: u64,
    /// A bit for each law that the last step broke.
    pub(crate) broken: u16,
}
