//! Doors into the store for this project's own tests: no stability promise.

use std::sync::Arc;
use std::time::Duration;

pub use crate::error::StoreError;
pub use crate::key::LockName;
pub use crate::member::{Label, Member, Ours};
pub use crate::store::{
    Acquired, Event, Grant, Inspection, Leaving, Left, Link, Listener, MAX_BATCH, Mode, Presence,
    Released, Renewed, Reply, Store, StoreFuture, Touched,
};

use crate::error::LockError;
use crate::key::LockKey;
use crate::locks::Locks;
use crate::member::NodeId;
use crate::memory::MemoryStore;
use crate::node::Inbox;
use crate::redis::{Certificates, Connector, RedisSettings, RedisStore};

/// The protocol as a pure function.
pub mod protocol {
    pub use crate::protocol::*;
}

/// This process's half of the protocol, without I/O.
pub mod node {
    pub use crate::node::{
        Ask, Core, Counts, Due, Effect, Moment, Note, Outcome, Phase, Refusal, Request, Rules, Seat,
    };
}

/// What is written to a server and read from it.
pub mod wire {
    pub use crate::redis::door::*;
}

/// The full name of a lock in `namespace`.
pub fn lock_name(key: &LockKey, namespace: Option<&str>) -> LockName {
    key.resolve(namespace)
}

/// A new node's identity.
pub fn new_node() -> NodeId {
    NodeId::random()
}

/// One node's view of a Redis server, with the default prefix and a request timeout of 2 s.
///
/// # Errors
/// As [`Locks::connect`](crate::Locks::connect).
pub async fn redis_store(
    url: &str,
    node: NodeId,
    listener: Arc<dyn Listener>,
) -> Result<Arc<dyn Store>, LockError> {
    redis_store_as(url, node, listener, false).await
}

/// The same, for queues that are shared with JVMs if `peers` is set.
///
/// # Errors
/// As [`Locks::connect`](crate::Locks::connect).
pub async fn redis_store_as(
    url: &str,
    node: NodeId,
    listener: Arc<dyn Listener>,
    peers: bool,
) -> Result<Arc<dyn Store>, LockError> {
    let request_timeout = Duration::from_secs(2);
    let settings = RedisSettings {
        connector: Connector::from_url(url, &Certificates::default(), request_timeout)?,
        probe: LockKey::new(format!("lockcore-preflight-{node}"))?.resolve(None),
        node,
        prefix: Arc::from("lockcore"),
        label: Label::of_this_process(),
        namespace: None,
        request_timeout,
        peers,
    };
    Ok(Arc::new(RedisStore::connect(settings, listener).await?))
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
