//! What these tests have in common.

use std::time::Duration;

use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::Locks;

/// What happens at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const QUEUE: &str = "redisson_lock_queue:{k}";
pub(crate) const DEADLINES: &str = "redisson_lock_timeout:{k}";

pub(crate) struct Setup {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    /// Past the proxy.
    pub(crate) redis: Raw,
}

pub(crate) async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let redis = Raw::connect(&server.url()).await;
    Setup { server, proxy, redis }
}

impl Setup {
    /// A node past the proxy.
    pub(crate) async fn direct(&self) -> Locks {
        Locks::connect(self.server.url()).await.expect("the server accepts a node")
    }

    /// A node through the proxy.
    pub(crate) async fn through(&self) -> Locks {
        Locks::connect(self.proxy.url()).await.expect("the server accepts a node")
    }
}

pub(crate) async fn queue_has(redis: &mut Raw, count: usize) {
    let what = format!("{count} waiting");
    eventually(&what, SOON, async || redis.list_length(QUEUE).await == count).await;
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, future).await;
    done.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}
