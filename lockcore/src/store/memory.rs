//! A store in this process's memory, for tests and single processes. It runs the protocol behind a
//! mutex.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::layout::Layout;
#[cfg(test)]
use proto::layout::QUEUE;
use proto::{LockErrorKind, NodeId};

use crate::store::seen::SeenTokens;
use crate::store::{Listener, Store};

mod clock;
mod node;
mod state;
#[cfg(test)]
mod tests;

use clock::StoreClock;
use node::MemoryNode;
use state::MemoryState;

/// A store in this process's memory, with the same rules as the Redis store.
///
/// The store uses tokio's clock: under paused time, tests do not wait for leases. Clones share a
/// store. Pass it to several [`LocksBuilder::on_memory`](crate::LocksBuilder::on_memory), and each
/// of these `Locks` behaves like a separate process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<SharedStore>,
}

#[derive(Default)]
struct SharedStore {
    state: Mutex<MemoryState>,
    clock: StoreClock,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every acquire on this store fail with `kind`, until called again with `None`.
    /// Releases, renewals and queued waiters are not affected. Use it in tests of code that uses
    /// locks.
    ///
    /// An acquire refused as `Unavailable` or `ReadOnly` retries until its
    /// [`store_wait`](crate::LockOptions::store_wait) ends, as with a server.
    pub fn refuse(&self, kind: Option<LockErrorKind>) {
        self.shared.state().refusing = kind;
    }

    /// Connects another node, which sends its commands by the returned store and receives its
    /// messages by `listener`.
    #[cfg(test)]
    pub(crate) fn connect(&self, node: NodeId, listener: Arc<dyn Listener>) -> Arc<dyn Store> {
        self.connect_as(node, listener, QUEUE, None)
    }

    /// Connects another node, with the rules of this layout. With `seen`, the store is a quorum
    /// primary, whose tokens are above the tokens seen on all primaries.
    pub(crate) fn connect_as(
        &self,
        node: NodeId,
        listener: Arc<dyn Listener>,
        layout: &'static dyn Layout,
        seen: Option<Arc<SeenTokens>>,
    ) -> Arc<dyn Store> {
        self.shared.state().nodes.insert(node.as_str().into(), listener);
        Arc::new(MemoryNode::new(Arc::clone(&self.shared), node, layout, seen))
    }

    /// Sets whether the node's subscription is missing, as if the node had subscribed at another
    /// server.
    #[cfg(test)]
    pub(crate) fn set_deaf(&self, node: &NodeId, deaf: bool) {
        self.shared.state().deaf.set(node, deaf);
    }

    /// Advances the store's clock, so that leases end earlier.
    #[cfg(test)]
    pub(crate) fn set_clock_forward(&self, by: std::time::Duration) {
        self.shared.clock.set_forward(by);
    }

    /// Sets the store's clock back.
    #[cfg(test)]
    pub(crate) fn set_clock_back(&self, by: std::time::Duration) {
        self.shared.clock.set_back(by);
    }

    /// Simulates a restart, in which the store keeps all data or none.
    #[cfg(test)]
    pub(crate) fn restart(&self, keeps: bool) {
        let now_us = self.shared.clock.now_us();
        let mut state = self.shared.state();
        state.restarts += 1;
        state.restarted_us = now_us;
        drop(state);
        if !keeps {
            self.flush();
        }
    }

    /// Empties the store, like `FLUSHALL`.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        let now_us = self.shared.clock.now_us();
        let mut state = self.shared.state();
        state.emptied_us = now_us;
        state.empty();
    }

    /// Sets whether messages to `node` are lost although the store counts the node as a subscriber.
    #[cfg(test)]
    pub(crate) fn set_lossy(&self, node: &NodeId, lossy: bool) {
        self.shared.state().lossy.set(node, lossy);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl SharedStore {
    /// Locks and returns the state. Ignores a poisoned mutex, because the protocol calls no foreign
    /// code, so a panic cannot leave a half-changed lock.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the messages in the outbox, in the order of publication. The mutex is not held,
    /// because a listener may call back. A single thread delivers at a time; other threads leave
    /// their messages in the outbox.
    fn deliver(&self) {
        let Some(mut delivery) = Delivery::begin(self) else {
            return;
        };
        while let Some((listener, event)) = delivery.next() {
            listener.hear(event);
        }
    }
}

/// The exclusive right to deliver messages, until dropped.
struct Delivery<'a> {
    shared: &'a SharedStore,
    is_over: bool,
}

impl<'a> Delivery<'a> {
    fn begin(shared: &'a SharedStore) -> Option<Self> {
        let mut state = shared.state();
        if state.is_delivering || state.outbox.is_empty() {
            return None;
        }
        state.is_delivering = true;
        Some(Self { shared, is_over: false })
    }

    fn next(&mut self) -> Option<state::Letter> {
        let mut state = self.shared.state();
        let letter = state.outbox.pop_front();
        if letter.is_none() {
            // Reset in the critical section that found the outbox empty. Otherwise a message posted
            // in between would stay there.
            state.is_delivering = false;
            self.is_over = true;
        }
        letter
    }
}

/// Gives up the right to deliver after a listener's panic, so that other messages are still
/// delivered.
impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.state().is_delivering = false;
        }
    }
}
