//! The common part of these tests: bounds, and a lock acquired at once.

use std::time::Duration;

use lockcore::{LockError, LockGuard, Locks};

/// The bound of a failover on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let limit = tokio::time::timeout(SOON, future).await;
    limit.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

pub(crate) async fn connect(url: &str) -> Result<Locks, LockError> {
    soon("a connection", Locks::connect(url)).await
}

/// Acquires a free lock.
pub(crate) async fn held(locks: &Locks, key: &str) -> LockGuard {
    soon("the lock", locks.lock(key)).await.expect("the lock is free")
}

pub(crate) async fn release(guard: LockGuard) {
    soon("the release", guard.release()).await.expect("it was held");
}
