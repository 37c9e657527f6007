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
/// The store uses tokio's clock, so tests with paused time do not wait for leases. All clones are
/// the same store. Pass clones to several calls of
/// [`LocksBuilder::on_memory`](crate::LocksBuilder::on_memory), and each of these `Locks` behaves
/// like a separate process.
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
    /// Releases, renewals and queued waiters are not affected. For tests of code that uses locks.
    ///
    /// An acquire refused as `Unavailable` or `ReadOnly` retries until its
    /// [`store_wait`](crate::LockOptions::store_wait) ends, as with a server.
    pub fn refuse(&self, kind: Option<LockErrorKind>) {
        self.shared.state().refusing = kind;
    }

    /// Connects another node. The node sends its commands by the returned store, and `listener`
    /// receives the messages for the node.
    #[cfg(test)]
    pub(crate) fn connect(&self, node: NodeId, listener: Arc<dyn Listener>) -> Arc<dyn Store> {
        self.connect_as(node, listener, QUEUE, None)
    }

    /// Connects another node, which uses the rules of this layout. If `seen` is set, the store is a
    /// quorum primary for this node: new tokens are above the tokens seen on all primaries.
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

    /// Sets whether the store treats the node as not subscribed, as if the subscription were at
    /// another server.
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

    /// Simulates a restart. The store keeps all data if `keeps` is true, and otherwise none.
    #[cfg(test)]
    pub(crate) fn restart(&self, keeps: bool) {
        self.shared.state().restarts += 1;
        if !keeps {
            self.flush();
        }
    }

    /// Simulates a replacement by a server that has run for long, with a copy of this store's
    /// identity record and without its locks.
    #[cfg(test)]
    pub(crate) fn replace(&self) {
        let mut state = self.shared.state();
        state.restarts += 1;
        state.empty();
    }

    /// Empties the store, like `FLUSHALL`.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        let now_us = self.shared.clock.now_us();
        let mut state = self.shared.state();
        state.emptied_us = now_us;
        state.empty();
    }

    /// Sets whether messages to `node` are lost while the store still counts the node as a
    /// subscriber.
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

    /// Delivers the messages in the outbox, in the order of publication. The mutex is not locked
    /// during a delivery, because a listener may call the store. Only one thread delivers at a
    /// time; others leave their messages in the outbox.
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

/// Gives up the right to deliver if a listener has panicked, so that later messages are still
/// delivered.
impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.state().is_delivering = false;
        }
    }
}
