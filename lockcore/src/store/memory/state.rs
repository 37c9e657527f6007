//! The state behind the mutex: all locks, the connected nodes, and the messages to deliver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use proto::queue::{self, QueueState};
use proto::redisson::{self, LockState};
use proto::{Answer, Command, Event, LockErrorKind, LockName, NodeId, StoreError};

use crate::store::Listener;

/// The number of locks from which it is worth looking for ones to forget.
pub(super) const MIN_SWEEP: usize = 1_024;
/// After this time, most idle locks can be forgotten.
const SWEEP_PERIOD_MS: u64 = 60_000;

/// A message with its recipient.
pub(super) type Letter = (Arc<dyn Listener>, Event);

#[derive(Default)]
pub(super) struct MemoryState {
    /// All locks, by their names and whether JVMs share their queues: the two are different locks.
    pub(super) locks: HashMap<(LockName, bool), StoredLock>,
    /// The counter of tokens.
    counter: Option<u64>,
    /// The time at which the store was emptied, µs since the epoch.
    pub(super) emptied_us: u64,
    /// The time at which it was restarted, and how often.
    pub(super) restarted_us: u64,
    pub(super) restarts: u64,
    pub(super) nodes: HashMap<Box<str>, Arc<dyn Listener>>,
    pub(super) refusing: Option<LockErrorKind>,
    pub(super) outbox: VecDeque<Letter>,
    pub(super) is_delivering: bool,
    pub(super) deaf: Afflicted,
    pub(super) lossy: Afflicted,
    /// The number of locks that the last sweep left.
    swept_to: usize,
    /// The time of the last sweep.
    swept_at_ms: u64,
}

impl MemoryState {
    /// Runs one command on one lock and posts its messages. An acquire is refused if a test says
    /// so.
    pub(super) fn run(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        peers: bool,
        (now_us, floor_us, is_primary): (u64, u64, bool),
        command: &Command,
    ) -> Result<Answer, StoreError> {
        let is_acquire = matches!(command, Command::Acquire { .. });
        let refusing = self.refusing.filter(|_| is_acquire);
        if let Some(kind) = refusing.filter(|kind| *kind != LockErrorKind::QueueFull) {
            return Err(StoreError::refused(kind, "refused by the test"));
        }
        self.sweep(now_us / 1_000);
        let connected = |node: &str| self.nodes.contains_key(node) && !self.deaf.has(node);
        let name = (lock.clone(), peers);
        let mut new = None;
        let state = match self.locks.get_mut(&name) {
            Some(state) => state,
            None => new.insert(StoredLock::of(peers)),
        };
        let (answer, letters): (_, Vec<_>) = match state {
            StoredLock::Queue(state) => {
                let mut call = queue::Call::new(node, &connected, now_us);
                // As on a server, a token of this store is above those of the one before it.
                call.counter = Some(*self.counter.get_or_insert(now_us));
                (call.floor_us, call.is_primary) = (floor_us, is_primary);
                let answer = match refusing {
                    Some(_) => Answer::Acquired(state.full(&mut call, members_of(command))),
                    None => state.step(&mut call, command),
                };
                self.counter = call.counter;
                (answer, call.messages.into_iter().map(event).collect())
            }
            StoredLock::Redisson(state) => {
                let mut call = redisson::Call::new(node, &connected, now_us);
                let answer = match refusing {
                    Some(_) => Answer::Acquired(state.full(&call, members_of(command))),
                    None => state.step(&mut call, command),
                };
                (answer, call.messages.into_iter().filter_map(event_of_redisson).collect())
            }
        };
        if let Some(state) = new.filter(|state| !state.is_empty()) {
            self.locks.insert(name, state);
        }
        for (node, event) in letters {
            self.put(&node, event);
        }
        Ok(answer)
    }

    /// Forgets all locks and tokens.
    #[cfg(test)]
    pub(super) fn empty(&mut self) {
        self.locks.clear();
        self.counter = None;
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
pub(super) enum StoredLock {
    Queue(QueueState),
    /// A queue by the rules that JVMs share.
    Redisson(LockState),
}

impl StoredLock {
    fn of(peers: bool) -> Self {
        match peers {
            false => Self::Queue(QueueState::default()),
            true => Self::Redisson(LockState::default()),
        }
    }

    fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Queue(state) => state.expire(now_ms),
            Self::Redisson(state) => state.expire(now_ms),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Queue(state) => *state == QueueState::default(),
            Self::Redisson(state) => state.is_empty(),
        }
    }
}

/// The number of members of an acquire.
fn members_of(command: &Command) -> usize {
    match command {
        Command::Acquire { members, .. } => members.len(),
        _ => 0,
    }
}

fn event(message: queue::Message) -> (NodeId, Event) {
    match message {
        queue::Message::Grants { node, token, grants } => (node, Event::Granted { token, grants }),
        queue::Message::Run { node, token, left_ms, numbers } => {
            (node, Event::GrantedRun { token, left_ms, numbers })
        }
        queue::Message::Revoked { node, numbers } => (node, Event::Revoked { numbers }),
        queue::Message::Superseded { node, numbers } => (node, Event::Superseded { numbers }),
    }
}

fn event_of_redisson(message: redisson::Message) -> Option<(NodeId, Event)> {
    match message {
        redisson::Message::Grant { node, member, token, left_ms } => {
            Some((node, Event::Granted { token, grants: vec![(member.number(), left_ms)] }))
        }
        redisson::Message::Revoked { node, member } => {
            Some((node, Event::Revoked { numbers: vec![member.number()] }))
        }
        // No JVM waits here.
        redisson::Message::Poke { .. } => None,
    }
}

/// Nodes to which something is done in a test; there is nothing in it otherwise.
#[derive(Debug, Default)]
pub(super) struct Afflicted {
    #[cfg(test)]
    nodes: std::collections::HashSet<Box<str>>,
}

#[cfg(test)]
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

#[cfg(not(test))]
impl Afflicted {
    pub(super) fn has(&self, _node: &str) -> bool {
        false
    }
}
