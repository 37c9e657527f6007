//! rslock with its defaults: three tries, each up to 200 ms after the last; then the call is
//! repeated.

use std::time::Duration;

use lock_peer_kit::{Peer, run};
use rslock::{Lock, LockManager};

struct Rslock(LockManager);

impl Peer for Rslock {
    type Hold = Lock;

    async fn take(&self, key: String) -> Lock {
        self.0.acquire_no_guard(key.as_str(), Duration::from_secs(30)).await.expect("taken")
    }

    async fn give(&self, hold: Lock) {
        hold.release().await;
    }
}

fn main() {
    run("rslock 0.10.0", async |urls| {
        Rslock(LockManager::new(urls.split(',').map(str::to_owned).collect()))
    });
}
