//! What lies behind the mutex: all locks, the connected nodes, and the messages to deliver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::LockErrorKind;
use crate::key::LockName;
use crate::member::NodeId;
use crate::store::protocol::permits::{self, PermitState};
use crate::store::protocol::{Call, LockState, Message, Peers, TOKEN_MEMORY_MS};
use crate::store::{Event, Listener};

/// With fewer locks than this, looking for ones to forget because of their number is not worth it.
const MIN_SWEEP: usize = 1_024;
/// As long as a token is remembered: after this time, most idle locks can be forgotten.
const SWEEP_PERIOD_MS: u64 = TOKEN_MEMORY_MS;

/// A message with its recipient.
pub(super) type Letter = (Arc<dyn Listener>, Event);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) locks: HashMap<LockName, LockState>,
    /// What is read, written or held in permits.
    pub(super) permits: HashMap<LockName, PermitState>,
    pub(super) nodes: HashMap<Box<str>, Arc<dyn Listener>>,
    pub(super) refusing: Option<LockErrorKind>,
    pub(super) outbox: VecDeque<Letter>,
    pub(super) is_delivering: bool,
    pub(super) deaf: Afflicted,
    pub(super) lossy: Afflicted,
    /// How many locks were left after the last sweep,
    swept_to: usize,
    /// and when that was.
    swept_at_ms: u64,
}

impl Inner {
    /// Runs one command on one lock and posts its messages.
    pub(super) fn run<T>(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        peers: bool,
        now_us: u64,
        command: impl FnOnce(&mut LockState, &mut Call<'_>) -> T,
    ) -> T {
        self.sweep(now_us / 1_000);
        let connected = |node: &str| self.nodes.contains_key(node) && !self.deaf.has(node);
        let mut call = Call::new(node, &connected, now_us);
        call.peers = peers.then_some(Peers { listens: &|_| false });
        let mut new = None;
        let state = match self.locks.get_mut(lock) {
            Some(state) => state,
            None => new.insert(LockState::default()),
        };
        let outcome = command(state, &mut call);
        let messages = call.messages;
        if let Some(state) = new.filter(|state| !state.is_empty()) {
            self.locks.insert(lock.clone(), state);
        }
        for message in messages {
            self.post(message);
        }
        outcome
    }

    /// The same on one resource with permits.
    pub(super) fn run_permits<T>(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        now_us: u64,
        command: impl FnOnce(&mut PermitState, &mut permits::Call<'_>) -> T,
    ) -> T {
        self.sweep(now_us / 1_000);
        let connected = |node: &str| self.nodes.contains_key(node) && !self.deaf.has(node);
        let mut call = permits::Call::new(node, &connected, now_us);
        let mut new = None;
        let state = match self.permits.get_mut(lock) {
            Some(state) => state,
            None => new.insert(PermitState::default()),
        };
        let outcome = command(state, &mut call);
        let messages = call.messages;
        if let Some(state) = new.filter(|state| *state != PermitState::default()) {
            self.permits.insert(lock.clone(), state);
        }
        for message in messages {
            match message {
                permits::Message::Grants { node, token, grants } => {
                    self.put(&node, Event::GrantedSeveral { token, grants });
                }
                permits::Message::Revoked { node, numbers } => {
                    self.put(&node, Event::RevokedSeveral { numbers });
                }
            }
        }
        outcome
    }

    fn post(&mut self, message: Message) {
        match message {
            Message::Grant { node, member, token, left_ms } => {
                self.put(&node, Event::Granted { member, token, left_ms });
            }
            Message::Revoked { node, member } => self.put(&node, Event::Revoked { member }),
            // No JVM waits here.
            Message::Poke { .. } => {}
        }
    }

    fn put(&mut self, node: &NodeId, event: Event) {
        let node = node.as_str();
        if self.deaf.has(node) || self.lossy.has(node) {
            return;
        }
        if let Some(listener) = self.nodes.get(node) {
            self.outbox.push_back((Arc::clone(listener), event));
        }
    }

    /// Forgets locks of which nothing is left: when their number has doubled, which is a constant
    /// cost per lock, and once in a while.
    fn sweep(&mut self, now_ms: u64) {
        let has_doubled = self.locks.len() + self.permits.len() >= MIN_SWEEP.max(2 * self.swept_to);
        if !has_doubled && now_ms < self.swept_at_ms + SWEEP_PERIOD_MS {
            return;
        }
        self.swept_at_ms = now_ms;
        self.locks.retain(|_, state| {
            state.expire(now_ms);
            !state.is_empty()
        });
        self.permits.retain(|_, state| {
            state.expire(now_ms);
            *state != PermitState::default()
        });
        self.swept_to = self.locks.len() + self.permits.len();
        self.locks.shrink_to(MIN_SWEEP.max(2 * self.swept_to));
        self.permits.shrink_to(MIN_SWEEP.max(2 * self.swept_to));
    }
}

/// Nodes to which something is done in a test; there is nothing in it otherwise.
#[derive(Debug, Default)]
pub(super) struct Afflicted {
    #[cfg(any(test, feature = "unstable-internals"))]
    nodes: std::collections::HashSet<Box<str>>,
}

#[cfg(any(test, feature = "unstable-internals"))]
impl Afflicted {
    pub(super) fn set(&mut self, node: &NodeId, is_afflicted: bool) {
        if is_afflicted {
            self.nodes.insert(node.as_str().into());
        } else {
            self.nodes.remove(node.as_str());
        }
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }
}

#[cfg(not(any(test, feature = "unstable-internals")))]
impl Afflicted {
    pub(super) fn has(&self, _node: &str) -> bool {
        false
    }
}
