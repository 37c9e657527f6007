//! Doors into the store on Redis.

use std::sync::Arc;
use std::time::Duration;

use proto::NodeId;

use crate::error::LockError;
use crate::key::LockKey;
pub use crate::store::redis::server_time::ServerTime as Seen;
use crate::store::redis::{Certificates, Connector, RedisSettings, RedisStore};
use crate::store::{Listener, Store};

/// The requests to a server and its answers.
pub mod wire {
    pub use crate::store::redis::door::*;
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
    redis_store_as(url, node, listener, false, Arc::default()).await
}

/// The same, for queues that are shared with JVMs if `peers` is set, with the times that were
/// `seen`.
///
/// # Errors
/// As [`Locks::connect`](crate::Locks::connect).
pub async fn redis_store_as(
    url: &str,
    node: NodeId,
    listener: Arc<dyn Listener>,
    peers: bool,
    seen: Arc<Seen>,
) -> Result<Arc<dyn Store>, LockError> {
    let request_timeout = Duration::from_secs(2);
    let settings = RedisSettings {
        connector: Connector::from_url(url, &Certificates::default(), request_timeout)?,
        probe: LockKey::new(format!("lockcore-preflight-{node}"))?.resolve(None),
        node,
        prefix: Arc::from("lockcore"),
        label: crate::builder::label_of_this_process(),
        namespace: None,
        request_timeout,
        peers,
        replicas: None,
        server_time: seen,
    };
    Ok(Arc::new(RedisStore::connect(settings, listener).await?))
}
