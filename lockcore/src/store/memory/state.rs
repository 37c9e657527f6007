//! An in-memory store's state: all locks, the connected nodes, and the messages to deliver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use proto::layout::{Circumstances, Decide, Layout};
use proto::{Answer, Command, Event, LockErrorKind, LockName, NodeId, StoreError, Topology};

use crate::store::Listener;

/// Number of locks below which growth causes no sweep. A sweep drops the locks that are neither
/// held nor waited for.
pub(super) const MIN_SWEEP: usize = 1_024;
/// Time between two sweeps while the number of locks causes none, in ms.
const SWEEP_PERIOD_MS: u64 = 60_000;

/// A message to deliver, with its recipient.
pub(super) type Letter = (Arc<dyn Listener>, Event);

#[derive(Default)]
pub(super) struct MemoryState {
    /// All locks, by name and by their layout's marker. Locks with the same name in two layouts are
    /// different locks.
    pub(super) locks: HashMap<(LockName, &'static str), Box<dyn Decide>>,
    /// The last fencing token that was drawn; `None` before the first. All locks share this
    /// counter.
    counter: Option<u64>,
    /// When the store last lost all data, in µs since the epoch; 0 if never.
    pub(super) emptied_us: u64,
    pub(super) restarts: u64,
    /// The value of `restarts` in a quorum primary's identity record, and the time of the first
    /// contact in that run, in µs since the epoch; 0 if the store was new then.
    recorded: (u64, u64),
    pub(super) nodes: HashMap<Box<str>, Arc<dyn Listener>>,
    pub(super) refusing: Option<LockErrorKind>,
    pub(super) outbox: VecDeque<Letter>,
    pub(super) is_delivering: bool,
    pub(super) deaf: Afflicted,
    pub(super) lossy: Afflicted,
    /// Number of locks that were left after the last sweep.
    swept_to: usize,
    /// Time of the last sweep, in ms since the epoch.
    swept_at_ms: u64,
}

impl MemoryState {
    /// Runs a node's command on a lock, and posts the resulting messages in the outbox. While
    /// `refusing` is set, acquires fail.
    pub(super) fn run(
        &mut self,
        lock: &LockName,
        node: &NodeId,
        layout: &'static dyn Layout,
        (now_us, floor_us, topology): (u64, u64, Topology),
        command: &Command,
    ) -> Result<Answer, StoreError> {
        let is_acquire = matches!(command, Command::Acquire { .. });
        let refusing = self.refusing.filter(|_| is_acquire);
        if let Some(kind) = refusing.filter(|kind| *kind != LockErrorKind::QueueFull) {
            return Err(StoreError::refused(kind, "refused by the test"));
        }
        self.sweep(now_us / 1_000);
        let connected = |node: &str| self.nodes.contains_key(node) && !self.deaf.has(node);
        let name = (lock.clone(), layout.marker());
        let mut new = None;
        let state = match self.locks.get_mut(&name) {
            Some(state) => state,
            None => new.insert(layout.state()),
        };
        let counter = &mut self.counter;
        let (connected, events) = (&connected, Vec::new());
        let mut of = Circumstances { node, connected, now_us, counter, floor_us, topology, events };
        let answer = match refusing {
            Some(_) => state.full(&mut of, members_of(command)),
            None => state.step(&mut of, command),
        };
        let events = of.events;
        if let Some(state) = new.filter(|state| !state.is_empty()) {
            self.locks.insert(name, state);
        }
        for (node, event) in events {
            self.put(&node, event);
        }
        Ok(answer)
    }

    /// Returns the time since which a quorum primary has kept its data, in µs since the epoch; 0 if
    /// it never lost any. This contact may be the first since a restart.
    pub(super) fn kept_since_us(&mut self, now_us: u64) -> u64 {
        let (run, since_us) = &mut self.recorded;
        if *run != self.restarts {
            (*run, *since_us) = (self.restarts, now_us);
        }
        self.emptied_us.max(*since_us)
    }

    /// Removes all locks and the token counter.
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

    /// Drops the locks without holders and waiters. Does something only if the number of locks has
    /// doubled since the last sweep, so that the cost per lock is constant, or after a minute.
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

/// Returns the number of members that an acquire names; 0 for other commands.
fn members_of(command: &Command) -> usize {
    match command {
        Command::Acquire { members, .. } => members.len(),
        _ => 0,
    }
}

/// The nodes for which a test simulates a fault; always empty outside tests.
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
