//! Doors into the store for this project's own tests: no stability promise.

#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;
use std::time::Duration;

use proto::NodeId;
pub use proto::{
    ALL, Acquired, Answer, Answers, Command, Demand, Event, Grant, Inspection, Label, Leaving,
    Left, Link, LockName, MAX_BATCH, MAX_LINES, MAX_RENEWALS, Member, Mode, Party, Presence,
    Released, Renewed, Reply, StoreError, Terms, Touched,
};

pub use crate::store::{Listener, Store, StoreFuture};

#[cfg(feature = "redis")]
pub use redis::*;

use crate::key::LockKey;
use crate::locks::Locks;
use crate::node::Inbox;
use crate::options::LockOptions;
use crate::store::memory::MemoryStore;

/// The protocol as a pure function.
pub mod protocol {
    pub use proto::{MAX_BATCH, PATIENCE_MS, SortedSet, TOMBSTONE_MS, queue, redisson};
}

/// This process's half of the protocol, without I/O.
pub mod node {
    pub use proto::node::{
        Ask, Core, Counts, Due, Effect, Mirror, Moment, Note, Outcome, Phase, Refusal, Request,
        Rules,
    };
}

/// Options, with the defaults for those that are unset.
pub fn terms(options: LockOptions) -> Terms {
    options.terms()
}

/// The full name of a lock in `namespace`.
pub fn lock_name(key: &LockKey, namespace: Option<&str>) -> LockName {
    key.resolve(namespace)
}

/// Runs one command.
///
/// # Errors
/// Of the request or of this lock.
pub async fn run(
    store: &dyn Store,
    lock: &LockName,
    command: Command,
) -> Result<Answer, StoreError> {
    store.run(lock, &command).await
}

/// A new node's identity.
pub fn new_node() -> NodeId {
    crate::builder::new_node()
}

/// The node with this text.
pub fn node_of(text: &str) -> NodeId {
    NodeId::from(text)
}

/// A `Locks` on a store of the test's own, which hears of nothing but replies.
///
/// # Panics
/// Outside a tokio runtime.
pub fn locks_on(store: Arc<dyn Store>, node: NodeId) -> Locks {
    Locks::builder().build(store, node, &Inbox::default())
}

/// One node's view of a store in memory.
pub fn memory_store(
    store: &MemoryStore,
    node: NodeId,
    listener: Arc<dyn Listener>,
) -> Arc<dyn Store> {
    store.connect(node, listener)
}

/// Acts as if the machine of this node had been suspended for so long.
pub fn suspend(locks: &Locks, time: Duration) {
    locks.node.clock.suspend(time);
}
