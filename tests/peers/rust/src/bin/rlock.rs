//! rlock with its defaults except for the lease: polls every 100 ms, renews.

use std::time::Duration;

use lock_peer_kit::{Peer, run};
use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard};

struct Rlock(RLock);

impl Peer for Rlock {
    type Hold = RLockGuard;

    async fn take(&self, key: String) -> RLockGuard {
        let options =
            AcquireOptions::builder().ttl(Duration::from_secs(30)).build().expect("in range");
        self.0.acquire_mutex_with_options(key, options).await.expect("taken")
    }

    async fn give(&self, mut hold: RLockGuard) {
        hold.release().await.expect("held");
    }
}

fn main() {
    run("rlock 0.2.0", async |url| Rlock(RLock::new(url).await.expect("connected")));
}
