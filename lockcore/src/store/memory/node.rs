//! A node's connection to an in-memory store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::ready;
use proto::layout::Layout;
use proto::node::{RequestGroup, StoreRequest};
use proto::{
    Answer, Answers, Command, Event, FencingToken, Link, LockErrorKind, LockName, NodeId,
    StoreError, Topology,
};
use tokio::sync::watch;

use super::SharedStore;
use super::state::MemoryState;
use crate::store::seen::SeenTokens;
use crate::store::{Replies, Search, Standing, Store, StoreFuture, Then};

/// Value of `epoch_us` for an epoch that has ended. An epoch ends when the store loses its data.
const OVER: u64 = u64::MAX;

/// A node's connection to an in-memory store, from its creation until it is closed or dropped.
pub(super) struct MemoryNode {
    shared: Arc<SharedStore>,
    node: NodeId,
    layout: &'static dyn Layout,
    /// Greatest fencing token that this process has seen on all primaries; `None` if the store is
    /// no quorum primary.
    seen: Option<Arc<SeenTokens>>,
    /// The store's time at the last call of `standing`, in µs since the epoch. New tokens are above
    /// it.
    looked_us: AtomicU64,
    /// Start of the quorum primary's epoch, as far as this node knows, in µs since 1970. An epoch
    /// ends when the store loses its data: then this is [`OVER`], and `epochs` is raised.
    epoch_us: AtomicU64,
    epochs: AtomicU64,
    link: watch::Sender<Link>,
}

impl MemoryNode {
    pub(super) fn new(
        shared: Arc<SharedStore>,
        node: NodeId,
        layout: &'static dyn Layout,
        seen: Option<Arc<SeenTokens>>,
    ) -> Self {
        let link = watch::Sender::new(Link::Up);
        let [looked_us, epoch_us, epochs] = [0, 0, 0].map(AtomicU64::new);
        Self { shared, node, layout, seen, looked_us, epoch_us, epochs, link }
    }

    /// Runs a command on a lock. New fencing tokens are above all tokens that this node has seen.
    fn run_on(
        &self,
        state: &mut MemoryState,
        now_us: u64,
        (lock, command): (&LockName, &Command),
    ) -> Result<Answer, StoreError> {
        if self.seen.is_some() && matches!(command, Command::Acquire { .. }) {
            self.detect_data_loss(state);
            if self.epoch_us.load(Ordering::Acquire) == OVER {
                let text = "the store was emptied";
                return Err(StoreError::refused(LockErrorKind::Unavailable, text));
            }
        }
        let seen_us = self.seen.as_ref().map_or(0, |seen| seen.greatest());
        let floor_us = seen_us.max(self.looked_us.load(Ordering::Acquire));
        let terms = (now_us, floor_us, self.topology());
        let answer = state.run(lock, &self.node, self.layout, terms, command)?;
        if let Some(seen) = &self.seen {
            answer.grants().iter().for_each(|grant| seen.note(grant.last_token()));
        }
        Ok(answer)
    }

    /// Locks the state and runs commands, all at the same store time. Then delivers the messages
    /// that the commands have posted.
    fn step<T>(
        &self,
        run: impl FnOnce(&mut MemoryState, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.shared.state();
        if !state.nodes.contains_key(self.node.as_str()) {
            return Err(closed());
        }
        // Read under the mutex, so that times rise in the order of commands.
        let now_us = self.shared.clock.now_us();
        let answer = run(&mut state, now_us);
        let has_mail = !state.outbox.is_empty();
        drop(state);
        if has_mail {
            self.shared.deliver();
        }
        answer
    }

    /// Checks whether the store has lost its data since the known epoch began. If so, the epoch has
    /// ended, and the store counts as another server from now on.
    fn detect_data_loss(&self, state: &MemoryState) {
        let known = self.epoch_us.load(Ordering::Acquire);
        if ![state.emptied_us, OVER].contains(&known) {
            self.epoch_us.store(OVER, Ordering::Release);
            self.epochs.fetch_add(1, Ordering::AcqRel);
            // Wakes the tasks that watch the state; they read the server count again.
            self.link.send_modify(|_| {});
        }
    }

    fn is_closed(&self) -> bool {
        !self.shared.state().nodes.contains_key(self.node.as_str())
    }
}

impl Store for MemoryNode {
    fn now_us(&self) -> u64 {
        self.shared.clock.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let replied = self.step(|state, now_us| {
            let run = |request: &StoreRequest| {
                self.run_on(state, now_us, (&request.lock, &request.command))
            };
            Ok(Replies::from(group.iter().map(run).collect::<Answers>()))
        });
        then.take(group, replied);
    }

    fn topology(&self) -> Topology {
        if self.seen.is_some() { Topology::Quorum } else { Topology::Single }
    }

    fn ping(&self) -> StoreFuture<()> {
        ready(if self.is_closed() { Err(closed()) } else { Ok(()) }).boxed()
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn note_token(&self, _lock: &LockName, token: FencingToken) {
        if let Some(seen) = &self.seen {
            seen.note(token);
        }
    }

    fn servers(&self) -> u64 {
        self.shared.state().restarts + self.epochs.load(Ordering::Acquire)
    }

    fn standing(&self) -> StoreFuture<Standing> {
        let standing = self.step(|state, now_us| {
            self.looked_us.fetch_max(now_us, Ordering::AcqRel);
            let since_us = state.kept_since_us(now_us);
            let age = if since_us == 0 { u64::MAX } else { now_us.saturating_sub(since_us) };
            self.detect_data_loss(state);
            self.epoch_us.store(state.emptied_us, Ordering::Release);
            let server = state.restarts + self.epochs.load(Ordering::Acquire);
            Ok(Standing { server, age: Duration::from_micros(age) })
        });
        ready(standing).boxed()
    }

    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        let prefix = namespace.map(|namespace| format!("{namespace}:")).unwrap_or_default();
        let (shared, node, layout) = (Arc::clone(&self.shared), self.node.clone(), self.layout);
        vec![Arc::new(MemorySearch { shared, node, layout, prefix })]
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn reopen_subscription(&self) {
        let mut state = self.shared.state();
        // A node that a test has set deaf stays deaf: after `Resubscribed`, the next touch would
        // request another subscription, for ever.
        if state.deaf.has(self.node.as_str()) {
            return;
        }
        let Some(listener) = state.nodes.get(self.node.as_str()).map(Arc::clone) else {
            return;
        };
        state.outbox.push_back((listener, Event::Resubscribed));
        drop(state);
        self.shared.deliver();
    }

    fn close(&self) {
        let listener = self.shared.state().nodes.remove(self.node.as_str());
        // Dropped outside the mutex: this may be the last reference to the listener's owner.
        drop(listener);
        self.link.send_replace(Link::down("closed"));
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A search through the names of an in-memory store, which completes in a single step.
struct MemorySearch {
    shared: Arc<SharedStore>,
    node: NodeId,
    layout: &'static dyn Layout,
    /// Prefix of the names to find: the namespace and a colon, or empty.
    prefix: String,
}

impl Search for MemorySearch {
    fn step(&self, _cursor: u64) -> StoreFuture<(Vec<LockName>, u64)> {
        let state = self.shared.state();
        if !state.nodes.contains_key(self.node.as_str()) {
            return ready(Err(closed())).boxed();
        }
        let is_of_layout = |(_, marker): &&(_, _)| *marker == self.layout.marker();
        let names = state.locks.keys().filter(is_of_layout).map(|(name, _)| name);
        let names = names.filter(|name| name.as_str().starts_with(&self.prefix));
        ready(Ok((names.cloned().collect(), 0))).boxed()
    }
}

impl fmt::Debug for MemorySearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySearch").finish_non_exhaustive()
    }
}

fn closed() -> StoreError {
    StoreError::refused(LockErrorKind::Closed, "the node was closed")
}
