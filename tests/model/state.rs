//! A state of the model: the server, the nodes with their cores, their clients, the packets under
//! way, and the record of past events.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use proto::node::{Core, Phase};

use crate::books::Server;
use crate::packet::Packet;
use crate::wire::moment;

/// A member as node and number: a byte instead of a text.
pub(crate) type Id = u8;
/// A set of members, as a bit for each.
pub(crate) type Bits = u64;
/// The maximum number of members of a node.
pub(crate) const NUMBERS: u8 = 15;
/// The maximum number of members of an attempt, which gets a new member after each lost position.
pub(crate) const ROUNDS: u8 = 5;

pub(crate) fn node_of(id: Id) -> usize {
    usize::from(id / NUMBERS)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The time on every clock, in ms since the start.
    pub(crate) now: u32,
    pub(crate) server: Arc<Server>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    /// The packets, sorted because their order is meaningless: any packet may arrive next.
    pub(crate) network: Vec<Packet>,
    pub(crate) budget: Budget,
    pub(crate) record: Record,
}

/// A process in the model.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Whether the server counts the node's subscription.
    pub(crate) is_connected: bool,
    pub(crate) is_dead: bool,
    pub(crate) core: Arc<Core<()>>,
    /// The numbers by which the node's core differs from other cores, computed after each step that
    /// may have changed the core.
    pub(crate) print: Option<Arc<[u64]>>,
}

impl Node {
    pub(crate) fn new(core: Core<()>) -> Self {
        let mut node =
            Self { is_connected: true, is_dead: false, core: Arc::new(core), print: None };
        node.take_print();
        node
    }

    /// Computes the print, unless it is up to date.
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

/// A client, which acquires and releases repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    /// How many operations have not begun.
    pub(crate) left: u8,
}

/// The stage of a client's operation. The state of the attempt is in the node's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Idle,
    /// The client waits for the outcome of the attempt with this number.
    Attempt(u64),
    /// The client has the guard with this number.
    Guard(u64),
    /// The client waits for the response to the release of the guard with this number.
    Releasing(u64),
}

impl State {
    /// Returns the node's core, mutable.
    pub(crate) fn core(&mut self, node: u8) -> &mut Core<()> {
        let node = &mut self.nodes[usize::from(node)];
        node.print = None;
        Arc::make_mut(&mut node.core)
    }

    /// Returns how many clients of a node have a guard.
    pub(crate) fn guards(&self, node: u8) -> usize {
        let core = &self.nodes[usize::from(node)].core;
        core.numbers().filter(|number| core.phase(*number) == Some(Phase::Held)).count()
    }

    /// Returns the number of the client's attempt or guard.
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

    /// Whether the client's guard reports the lock as held.
    pub(crate) fn believes(&self, node: u8, client: &Client) -> bool {
        let Stage::Guard(number) = client.stage else { return false };
        let until = self.nodes[usize::from(node)].core.until(number);
        until.is_some_and(|until| moment(self.now) < until)
    }
}

/// How many events of each kind may still happen to clients and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// How many requests, replies and messages may still be lost, or arrive when no node expects
    /// them any more.
    pub(crate) losses: u8,
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// How many subscriptions may still be cut.
    pub(crate) cuts: u8,
    pub(crate) forced: u8,
    /// How many locks may still be downgraded.
    pub(crate) downgrades: u8,
    /// How many guards may still be leaked.
    pub(crate) leaks: u8,
    /// How often the token counter may still be lost.
    pub(crate) forgets: u8,
    /// How many steps of time may still pass.
    pub(crate) passes: u8,
}

/// What the laws need to know and no other part of the model has: sets of members as bits, and the
/// waiters in the correct order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The waiters, in the order of enqueueing.
    pub(crate) line: Vec<Waiting>,
    /// The members released or left.
    pub(crate) ended: Bits,
    /// Members whose holds were released.
    pub(crate) released: Bits,
    /// Force-released members whose node has not been notified yet: the only end of a lease that a
    /// guard cannot foresee.
    pub(crate) unnotified: Bits,
    /// Locks whose holders have requested a downgrade.
    pub(crate) downgraded: Bits,
    /// Leaked holds.
    pub(crate) leaked: Bits,
    /// The members of batches whose lease has ended before their node ended the batch.
    pub(crate) lapsed: Bits,
    /// The greatest token so far.
    pub(crate) token: u64,
    /// A bit for each law broken by the last step.
    pub(crate) broken: u32,
}

/// A waiter, as the laws expect it in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) member: Id,
    /// How long the position is kept at least, if the node is silent; 0 once that has passed.
    pub(crate) until: u32,
    /// Whether the waiter was skipped, and not touched since.
    pub(crate) is_aside: bool,
}
