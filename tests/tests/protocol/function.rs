//! `Function`: a server that implements the protocol as a function, in place of Redis.

use std::collections::{BTreeMap, BTreeSet};

use proto::queue::{self, QueueState};
use proto::wire::TokenFloors;
use proto::{Answer, Command, Event, LockName, NodeId, Topology};
use redisson::{LockState, Peers};

use crate::state::State;

/// All locks of a server, and the messages for its nodes.
#[derive(Default)]
pub(crate) struct Function {
    /// Whether queues are shared with JVMs.
    pub(crate) peers: bool,
    pub(crate) topology: Topology,
    pub(crate) locks: BTreeMap<LockName, State>,
    pub(crate) counter: Option<u64>,
    /// µs since the epoch. A millisecond passes with each command.
    pub(crate) now_us: u64,
    /// The nodes and the members of JVMs that would receive a message.
    pub(crate) connected: BTreeSet<String>,
    /// The messages not yet taken by each node.
    pub(crate) heard: BTreeMap<String, Vec<Event>>,
    /// The members of JVMs notified to try again.
    pub(crate) pokes: Vec<String>,
}

impl Function {
    pub(crate) fn new(peers: bool) -> Self {
        Self { peers, now_us: 1_700_000_000_000_000, ..Self::default() }
    }

    pub(crate) fn lock(&mut self, name: &LockName) -> &mut State {
        let new = || match self.peers {
            false => State::Queue(QueueState::default()),
            true => State::Redisson(LockState::default()),
        };
        self.locks.entry(name.clone()).or_insert_with(new)
    }

    pub(crate) fn run(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        floors: TokenFloors,
        command: &Command,
    ) -> Answer {
        self.now_us += 1_000;
        let (now_us, counter, topology) = (self.now_us, self.counter, self.topology);
        let listening = self.connected.clone();
        let connected = |node: &str| listening.contains(node);
        match self.lock(lock) {
            State::Queue(state) => {
                let mut call = queue::Call::new(node, &connected, now_us);
                call.counter = counter;
                (call.floor_us, call.elsewhere_us) = (floors.floor_us, floors.elsewhere_us);
                call.topology = topology;
                let answer = state.step(&mut call, command);
                self.counter = call.counter;
                for message in call.messages {
                    let (node, event) = message.event();
                    self.deliver(node.as_str(), event);
                }
                answer
            }
            State::Redisson(state) => {
                // A server expires keys before it runs a command.
                state.expire(now_us / 1_000);
                let mut call = redisson::Call::new(node, &connected, now_us);
                (call.seen_us, call.peers) = (floors.latest_us, Peers { listens: &connected });
                let answer = state.step(&mut call, command);
                for message in call.messages {
                    match message {
                        redisson::Message::Grant { node, member, token, left_ms } => {
                            let grants = vec![(member.number(), left_ms)];
                            self.deliver(node.as_str(), Event::Granted { token, grants });
                        }
                        redisson::Message::Revoked { node, member } => {
                            let numbers = vec![member.number()];
                            self.deliver(node.as_str(), Event::Revoked { numbers });
                        }
                        redisson::Message::Poke { member } => {
                            self.pokes.push(member.as_str().to_owned());
                        }
                    }
                }
                answer
            }
        }
    }

    fn deliver(&mut self, node: &str, event: Event) {
        if self.connected.contains(node) {
            self.heard.entry(node.to_owned()).or_default().push(event);
        }
    }
}
