//! One state of the model: the server, the nodes with their tables, their clients, the packets on
//! their way, and the record of past events.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use proto::node::{Core, Phase};

use crate::books::Server;
use crate::packet::Packet;
use crate::wire::moment;

/// A member by its node and number: a byte instead of a text.
pub(crate) type Id = u8;
/// A bit for each of several members.
pub(crate) type Bits = u64;
/// The number of members that a node can have.
pub(crate) const NUMBERS: u8 = 15;
/// The number of members of one attempt: it has a new one whenever it loses its place.
pub(crate) const ROUNDS: u8 = 5;

pub(crate) fn node_of(id: Id) -> usize {
    usize::from(id / NUMBERS)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The ms since the start, on every clock there is.
    pub(crate) now: u32,
    pub(crate) server: Arc<Server>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    /// The packets, sorted because their order means nothing: any of them may arrive next.
    pub(crate) network: Vec<Packet>,
    pub(crate) budget: Budget,
    pub(crate) record: Record,
}

/// A process of the model.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Whether the server counts its subscription.
    pub(crate) is_connected: bool,
    pub(crate) is_dead: bool,
    pub(crate) core: Arc<Core<()>>,
    /// The marks that tell its table from others; made after each step that may have changed it.
    pub(crate) print: Option<Arc<[u64]>>,
}

impl Node {
    pub(crate) fn new(core: Core<()>) -> Self {
        let mut node =
            Self { is_connected: true, is_dead: false, core: Arc::new(core), print: None };
        node.take_print();
        node
    }

    /// Makes the print, unless the present one is still true.
    pub(crate) fn take_print(&mut self) {
        if self.print.is_none() {
            let mut print = Vec::new();
            self.core.print(&mut print);
            self.print = Some(print.into());
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        let of = |node: &Self| (node.is_connected, node.is_dead);
        of(self) == of(other) && self.print == other.print
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.is_connected, self.is_dead, &self.print).hash(hasher);
    }
}

/// A client that acquires and releases, one operation after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    /// The number of operations that have not begun.
    pub(crate) left: u8,
}

/// The stage of a client's operation. The state of its attempt is in its node's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Idle,
    /// Waits for the outcome of this attempt.
    Attempt(u64),
    /// Has a guard of this number.
    Guard(u64),
    /// Waits for the answer to the release of this guard.
    Releasing(u64),
}

impl State {
    /// The table of a node, to be changed.
    pub(crate) fn core(&mut self, node: u8) -> &mut Core<()> {
        let node = &mut self.nodes[usize::from(node)];
        node.print = None;
        Arc::make_mut(&mut node.core)
    }

    /// The number of clients of a node that have a guard.
    pub(crate) fn guards(&self, node: u8) -> usize {
        let core = &self.nodes[usize::from(node)].core;
        core.numbers().filter(|number| core.phase(*number) == Some(Phase::Held)).count()
    }

    /// The number of the attempt or the guard of a client of this node.
    pub(crate) fn number(&self, node: u8, client: &Client) -> Option<u64> {
        match client.stage {
            Stage::Idle => None,
            Stage::Attempt(attempt) => self.nodes[usize::from(node)].core.round(attempt),
            Stage::Guard(number) | Stage::Releasing(number) => Some(number),
        }
    }

    pub(crate) fn phase(&self, node: u8, client: &Client) -> Option<Phase> {
        let number = self.number(node, client)?;
        self.nodes[usize::from(node)].core.phase(number)
    }

    /// Whether its guard says that the lock is held.
    pub(crate) fn believes(&self, node: u8, client: &Client) -> bool {
        let Stage::Guard(number) = client.stage else { return false };
        let until = self.nodes[usize::from(node)].core.until(number);
        until.is_some_and(|until| moment(self.now) < until)
    }
}

/// The numbers of events that may still happen to the clients and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Requests, replies and messages that do not arrive, or arrive when no node expects them any
    /// more.
    pub(crate) losses: u8,
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// Subscriptions that are cut.
    pub(crate) cuts: u8,
    pub(crate) forced: u8,
    /// Locks that become reads.
    pub(crate) downgrades: u8,
    /// Guards that are leaked.
    pub(crate) leaks: u8,
    /// Losses of the counter of tokens.
    pub(crate) forgets: u8,
    /// Steps of time.
    pub(crate) passes: u8,
}

/// The facts that the laws need but no part of the model knows: a bit for each member, and the
/// waiters as they should stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The waiters, in the order of their enqueuing.
    pub(crate) line: Vec<Waiting>,
    /// The members that were released, or left.
    pub(crate) ended: Bits,
    /// The members whose holds were released.
    pub(crate) released: Bits,
    /// The members that were forced off, and whose node has not been told yet: the one end of a
    /// lease that its guard cannot foresee.
    pub(crate) untold: Bits,
    /// The locks whose holders have asked for less.
    pub(crate) downgraded: Bits,
    /// The holds that were leaked.
    pub(crate) leaked: Bits,
    /// The greatest token so far.
    pub(crate) token: u64,
    /// A bit for each law that the last step broke.
    pub(crate) broken: u32,
}

/// A waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) member: Id,
    /// The time until which its place is kept at least, if its node is silent; 0 once that is over.
    pub(crate) until: u32,
    /// Whether it was passed over, and its node has not touched it since.
    pub(crate) is_aside: bool,
}
