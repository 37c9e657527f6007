//! What lies behind the mutex: all locks, the connected nodes, and the messages to deliver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::NodeId;
use crate::store::protocol::permits::{self, PermitState};
use crate::store::protocol::{Answer, Call, Command, LockState, Message, Peers, TOKEN_MEMORY_MS};
use crate::store::{Event, Listener};

/// With fewer locks than this, looking for ones to forget because of their number is not worth it.
const MIN_SWEEP: usize = 1_024;
/// As long as a token is remembered: after this time, most idle locks can be forgotten.
const SWEEP_PERIOD_MS: u64 = TOKEN_MEMORY_MS;

/// A message with its recipient.
pub(super) type Letter = (Arc<dyn Listener>, Event);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) locks: HashMap<LockName, State>,
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
    /// Runs one command on one lock and posts its messages. An acquire is refused if a test says
    /// so.
    pub(super) fn run(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        peers: bool,
        now_us: u64,
        command: &Command,
    ) -> Result<Answer, StoreError> {
        let is_acquire = matches!(command, Command::Acquire { .. });
        let refusing = self.refusing.filter(|_| is_acquire);
        if let Some(kind) = refusing.filter(|kind| *kind != LockErrorKind::QueueFull) {
            return Err(StoreError::refused(kind, "refused by the test"));
        }
        self.sweep(now_us / 1_000);
        let connected = |node: &str| self.nodes.contains_key(node) && !self.deaf.has(node);
        let mut new = None;
        let state = match self.locks.get_mut(lock) {
            Some(state) => state,
            None => new.insert(State::of(lock)),
        };
        let (answer, letters) = match state {
            State::Mutex(state) => {
                let mut call = Call::new(node, &connected, now_us);
                call.peers = peers.then_some(Peers { listens: &|_| false });
                let answer = match refusing {
                    Some(_) => Answer::Acquired(state.full(&call)),
                    None => state.step(&mut call, command),
                };
                (answer, call.messages.into_iter().filter_map(event).collect())
            }
            State::Permits(state) => {
                let mut call = permits::Call::new(node, &connected, now_us);
                let answer = match refusing {
                    Some(_) => Answer::Acquired(state.full(&mut call)),
                    None => state.step(&mut call, command),
                };
                (answer, call.messages.into_iter().map(event_of_permits).collect::<Vec<_>>())
            }
        };
        if let Some(state) = new.filter(|state| !state.is_empty()) {
            self.locks.insert(lock.clone(), state);
        }
        for (node, event) in letters {
            self.put(&node, event);
        }
        Ok(answer)
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
        let has_doubled = self.locks.len() >= MIN_SWEEP.max(2 * self.swept_to);
        if !has_doubled && now_ms < self.swept_at_ms + SWEEP_PERIOD_MS {
            return;
        }
        self.swept_at_ms = now_ms;
        self.locks.retain(|_, state| {
            state.expire(now_ms);
            !state.is_empty()
        });
        self.swept_to = self.locks.len();
        self.locks.shrink_to(MIN_SWEEP.max(2 * self.swept_to));
    }
}

/// All that is kept of one lock.
pub(super) enum State {
    Mutex(LockState),
    /// Of reads, writes and permits.
    Permits(PermitState),
}

impl State {
    fn of(lock: &LockName) -> Self {
        match lock.is_shared() {
            false => Self::Mutex(LockState::default()),
            true => Self::Permits(PermitState::default()),
        }
    }

    fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Mutex(state) => state.expire(now_ms),
            Self::Permits(state) => state.expire(now_ms),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Mutex(state) => state.is_empty(),
            Self::Permits(state) => *state == PermitState::default(),
        }
    }
}

fn event(message: Message) -> Option<(NodeId, Event)> {
    match message {
        Message::Grant { node, member, token, left_ms } => {
            Some((node, Event::Granted { token, grants: vec![(member.number(), left_ms)] }))
        }
        Message::Revoked { node, member } => {
            Some((node, Event::Revoked { numbers: vec![member.number()] }))
        }
        // No JVM waits here.
        Message::Poke { .. } => None,
    }
}

fn event_of_permits(message: permits::Message) -> (NodeId, Event) {
    match message {
        permits::Message::Grants { node, token, grants } => {
            (node, Event::Granted { token, grants })
        }
        permits::Message::Revoked { node, numbers } => (node, Event::Revoked { numbers }),
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
