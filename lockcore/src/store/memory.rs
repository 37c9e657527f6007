//! A store in this process's memory: the protocol behind a mutex, for tests and single processes.

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
    /// Releases, renewals and queued waiters are not affected. For tests of code that uses locks.
    ///
    /// An acquire refused as `Unavailable` or `ReadOnly` retries until its
    /// [`store_wait`](crate::LockOptions::store_wait) ends, as with a server.
    pub fn refuse(&self, kind: Option<LockErrorKind>) {
        self.shared.state().refusing = kind;
    }

    /// Connects another node.
    #[cfg(test)]
    pub(crate) fn connect(&self, node: NodeId, listener: Arc<dyn Listener>) -> Arc<dyn Store> {
        self.connect_as(node, listener, QUEUE, None)
    }

    /// Connects another node, with the rules of this layout. As a quorum primary, the store
    /// respects tokens `seen` on all primaries.
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

    /// Sets whether messages to `node` are not received, as if it had subscribed at another server.
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

    /// Restarts the store, with all data or none.
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

    /// Sets whether messages to `node` are lost although they count as received.
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
    /// A panic elsewhere cannot leave a half-changed lock: the protocol calls no foreign code.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers messages in the order of publication, without the mutex, because a listener may
    /// call back. A single thread delivers at a time; the others leave their messages in the
    /// outbox.
    fn deliver(&self) {
        let Some(mut delivery) = Delivery::begin(self) else {
            return;
        };
        while let Some((listener, event)) = delivery.next() {
            listener.hear(event);
        }
    }
}

/// The exclusive right to deliver messages.
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
            // In the same critical section as the look, or a message posted in between would stay
            // there.
            state.is_delivering = false;
            self.is_over = true;
        }
        letter
    }
}

/// After a listener's panic, messages are still delivered to the others.
impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.state().is_delivering = false;
        }
    }
}
