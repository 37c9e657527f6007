//! The setup of most of these tests: a server behind a proxy, waiters in a known order, bounds.

use std::time::Duration;

use lock_tests::{COUNTER, LockChild, Proxy, Raw, RedisServer, Watcher, eventually, holds_key};
use lockcore::{LockError, LockGuard, Locks};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The bound of anything that happens at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The default lease: no test waits for its end.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A lease for tests that wait for its end; long enough not to be lost on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

pub(crate) type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// A server, and a proxy in front of it.
pub(crate) struct Setup {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    /// A connection that bypasses the proxy.
    pub(crate) redis: Raw,
}

pub(crate) async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let redis = Raw::connect(&server.url()).await;
    Setup { server, proxy, redis }
}

impl Setup {
    /// Starts a tool that subscribes to everything on this server.
    pub(crate) async fn watched(&self) -> Watcher {
        Watcher::start(&self.server.url()).await
    }

    /// Connects a node through the proxy.
    pub(crate) async fn through(&self) -> Locks {
        connect(&self.proxy.url()).await
    }

    /// Connects a node without the proxy.
    pub(crate) async fn direct(&self) -> Locks {
        connect(&self.server.url()).await
    }

    /// Starts a child process, without the proxy.
    pub(crate) async fn child(&self) -> LockChild {
        LockChild::start(env!("CARGO_BIN_EXE_lock-child"), &self.server.url()).await
    }
}

pub(crate) async fn connect(url: &str) -> Locks {
    soon("a connection", Locks::connect(url)).await.expect("the server accepts us")
}

/// Acquires a free lock.
pub(crate) async fn held(locks: &Locks, key: &str, lease: Duration) -> LockGuard {
    soon("the lock", locks.key(key).lease(lease).lock()).await.expect("the lock is free")
}

/// Starts an attempt; on return it has its position in the queue.
pub(crate) async fn queued(locks: &Locks, key: &str, lease: Duration, redis: &mut Raw) -> Waiting {
    let before = queue(redis, key).await;
    let node = locks.node().to_string();
    let waiting = tokio::spawn(locks.key(key).lease(lease).lock());
    eventually(&format!("one more waits for {key}"), SOON, async || {
        let is_new = |member: &String| member.contains(&node) && !before.contains(member);
        queue(redis, key).await.iter().any(is_new)
    })
    .await;
    waiting
}

/// Waits for the guard of a waiter.
pub(crate) async fn granted(waiting: Waiting) -> LockGuard {
    soon("the grant", waiting).await.expect("no panic").expect("the lock in the end")
}

/// Panics if `future` takes longer than [`SOON`].
#[track_caller]
pub(crate) fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    let future = future.into_future();
    async move {
        let Ok(output) = timeout(SOON, future).await else {
            panic!("{caller}: not within {SOON:?}: {what}")
        };
        output
    }
}

pub(crate) async fn release(guard: LockGuard) {
    soon("the release", guard.release()).await.expect("the hold lasted");
}

/// Reads the waiting members, next first.
pub(crate) async fn queue(redis: &mut Raw, key: &str) -> Vec<String> {
    redis.queue(key).await
}

pub(crate) async fn queue_has(redis: &mut Raw, key: &str, count: usize) {
    let what = format!("{count} waiting for {key}");
    eventually(&what, SOON, async || queue(redis, key).await.len() == count).await;
}

/// Reads the holding member.
pub(crate) async fn holder(redis: &mut Raw, key: &str) -> Option<String> {
    redis.holder(key).await
}

/// Reads the last value of the token counter, which all locks share. The positions of waiters are
/// counter values as well.
pub(crate) async fn counter(redis: &mut Raw) -> u64 {
    let text = redis.get(COUNTER).await;
    text.expect("a token was given out").parse().expect("it is a number")
}

pub(crate) fn channel(node: &str) -> String {
    format!("lockcore:grants:{node}")
}

/// Waits until the server publishes the node's grants to `count` connections.
pub(crate) async fn listens(redis: &mut Raw, node: &str, count: usize) {
    let what = format!("the server counts {count} subscriptions of {node}");
    let channel = channel(node);
    eventually(&what, SOON, async || redis.subscribers(&channel).await == count).await;
}

pub(crate) async fn connected(locks: &Locks) {
    eventually("connected", SOON, async || locks.status().is_connected()).await;
}

/// Waits until no member holds the lock or waits for it; the remaining keys expire by themselves.
pub(crate) async fn nothing_left(redis: &mut Raw, key: &str) {
    eventually("neither hold nor queue is left", SOON, async || {
        holder(redis, key).await.is_none()
            && !redis.exists(&holds_key(key)).await
            && queue(redis, key).await.is_empty()
    })
    .await;
    for name in redis.keys("*").await {
        assert!(name == COUNTER || redis.pttl(&name).await != -1, "{name} never expires");
    }
}
