//! distkit's mutex with its defaults, including a lease of 30 s: polls every 50 ms.

use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, Mutex, MutexGuard};
use lock_peer_kit::{Peer, run};
use redis::aio::ConnectionManager;

struct Distkit(ConnectionManager);

impl Peer for Distkit {
    type Hold = MutexGuard;

    async fn take(&self, key: String) -> MutexGuard {
        // distkit refuses colons.
        let key = DistkitRedisKey::try_from(key.replace(':', "/")).expect("a short name");
        Mutex::new(LockOptions::new(key, self.0.clone())).lock().await.expect("taken")
    }

    async fn give(&self, hold: MutexGuard) {
        hold.release().await.expect("held");
    }
}

fn main() {
    run("distkit 0.7.1", async |url| {
        let client = redis::Client::open(url).expect("a URL");
        Distkit(client.get_connection_manager().await.expect("connected"))
    });
}
