//! A server with an append-only file, and bounds.

use std::time::Duration;

use lock_tests::{Disk, Proxy, Raw, RedisServer, eventually};
use lockcore::{LockError, LockErrorKind, Locks, LocksBuilder};

/// The bound of anything that happens at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A server with an append-only file, a proxy in front, and a connection that bypasses the proxy.
pub(crate) struct Setup {
    pub(crate) proxy: Proxy,
    pub(crate) redis: Raw,
    pub(crate) server: RedisServer,
    pub(crate) disk: Disk,
}

pub(crate) async fn setup(appendfsync: &str) -> Setup {
    let disk = Disk::new();
    let server = disk.options(appendfsync).start();
    let redis = Raw::connect(&server.url()).await;
    Setup { proxy: Proxy::start(server.address()), redis, server, disk }
}

impl Setup {
    /// A node behind the proxy whose grants wait for the disk.
    pub(crate) async fn node(&self) -> Locks {
        self.node_with(fsync()).await
    }

    pub(crate) async fn node_with(&self, builder: LocksBuilder) -> Locks {
        soon("a connection", builder.connect(self.proxy.url())).await.expect("accepted")
    }
}

pub(crate) fn fsync() -> LocksBuilder {
    Locks::builder().require_fsync(true)
}

/// Panics if `future` takes longer than [`SOON`].
#[track_caller]
pub(crate) fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    let future = future.into_future();
    async move {
        let Ok(output) = tokio::time::timeout(SOON, future).await else {
            panic!("{caller}: not within {SOON:?}: {what}")
        };
        output
    }
}

/// Checks that an acquire was refused for these reasons, and that its grant is released.
pub(crate) async fn refused_and_given_back<T>(
    answer: Result<T, LockError>,
    words: &[&str],
    locks: &Locks,
) {
    let Err(error) = answer else { panic!("it was granted") };
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in: {error}");
    }
    assert!(error.is_retryable());
    eventually("it is given back", SOON, async || {
        let status = locks.status();
        let found = locks.inspect("key").await.expect("an inspection");
        found.holders.is_empty() && (status.holding, status.releasing) == (0, 0)
    })
    .await;
}
