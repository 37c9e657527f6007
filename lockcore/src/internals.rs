//! Doors into the store for this project's own tests: no stability promise.

#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;
use std::time::Duration;

pub use crate::error::StoreError;
pub use crate::key::LockName;
pub use crate::member::{Label, Member, Ours};
pub use crate::options::Terms;
pub use crate::store::{
    Acquired, Each, Event, Grant, Inspection, Leaving, Left, Link, Listener, MAX_BATCH, MAX_LINES,
    MAX_RENEWALS, Mode, Presence, Released, Renewed, Reply, Share, Store, StoreFuture, Touched,
};

#[cfg(feature = "redis")]
pub use redis::*;

use crate::key::LockKey;
use crate::locks::Locks;
use crate::member::NodeId;
use crate::node::Inbox;
use crate::options::LockOptions;
use crate::store::memory::MemoryStore;

/// The protocol as a pure function.
pub mod protocol {
    pub use crate::store::protocol::*;
}

/// This process's half of the protocol, without I/O.
pub mod node {
    pub use crate::node::{
        Ask, Core, Counts, Due, Effect, Moment, Note, Outcome, Phase, Refusal, Request, Rules,
        Seat, shared_answer, shared_command,
    };
}

/// Options, with the defaults for what they leave open.
pub fn terms(options: LockOptions) -> Terms {
    options.terms()
}

/// The full name of a lock in `namespace`.
pub fn lock_name(key: &LockKey, namespace: Option<&str>) -> LockName {
    key.resolve(namespace)
}

/// A renewal of one hold.
///
/// # Errors
/// Of the request or of this lock.
pub async fn renew_one(
    store: &dyn Store,
    lock: &LockName,
    member: &Member,
) -> Result<Reply<Renewed>, StoreError> {
    store.renew(vec![(lock.clone(), member.clone())]).await?.remove(0)
}

/// A touch of one lock's members.
///
/// # Errors
/// Of the request or of this lock.
pub async fn touch_one(
    store: &dyn Store,
    lock: &LockName,
    members: Vec<Member>,
) -> Result<Reply<Touched>, StoreError> {
    store.touch(vec![(lock.clone(), members)]).await?.remove(0)
}

/// A new node's identity.
pub fn new_node() -> NodeId {
    NodeId::random()
}

/// The node with this text.
pub fn node_of(text: &str) -> NodeId {
    NodeId::of(text)
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

/// The same, by the rules of a queue that is shared with JVMs.
pub fn memory_store_with_peers(
    store: &MemoryStore,
    node: NodeId,
    listener: Arc<dyn Listener>,
) -> Arc<dyn Store> {
    store.connect_as(node, listener, true)
}

/// As if the machine of this node had been suspended for so long.
pub fn suspend(locks: &Locks, time: Duration) {
    locks.node.clock.suspend(time);
}
