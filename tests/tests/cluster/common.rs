//! Shared parts of these tests: bounds, names in given slots, and locks acquired at once.

use std::time::Duration;

use lock_tests::Clustered;
use lockcore::{LockGuard, LockOptions, Locks};
use proto::LockName;

/// The bound of a failover on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A lease much longer than a test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let limit = tokio::time::timeout(SOON, future).await;
    limit.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

pub(crate) async fn connect(clustered: &Clustered) -> Locks {
    let locks = Locks::builder().defaults(LockOptions::new().lease(LONG));
    soon("a connection", locks.connect(clustered.url())).await.expect("accepted")
}

pub(crate) fn slot(key: &str) -> u16 {
    LockName::from(key).slot()
}

/// Acquires a free lock.
pub(crate) async fn held(locks: &Locks, key: &str) -> LockGuard {
    soon("the lock", locks.lock(key)).await.expect("the lock is free")
}

pub(crate) async fn release(guard: LockGuard) {
    soon("the release", guard.release()).await.expect("it was held");
}
