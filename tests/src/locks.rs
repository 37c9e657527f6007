//! Waits for states of a lock.

use std::time::Duration;

use lockcore::Locks;

use crate::eventually;

/// The bound of anything that happens at once: a machine that compiles next to the tests is slow.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Whether any node holds the lock.
pub async fn is_held(locks: &Locks, key: &str) -> bool {
    !locks.inspect(key).await.expect("an inspection").holders.is_empty()
}

/// Waits until `count` attempts wait for the lock.
pub async fn queued(locks: &Locks, key: &str, count: usize) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        locks.inspect(key).await.expect("an inspection").waiters.len() == count
    })
    .await;
}

/// Waits until the lock has no holders and no waiters.
pub async fn free(locks: &Locks, key: &str) {
    eventually(&format!("{key} is free"), LIMIT, async || {
        let inspection = locks.inspect(key).await.expect("an inspection");
        inspection.holders.is_empty() && inspection.waiters.is_empty()
    })
    .await;
}
