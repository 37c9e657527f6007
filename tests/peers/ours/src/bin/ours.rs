//! Our locks. Limits are raised to what the longest queue needs.

use lock_peer_kit::{Peer, run};
use lockcore::{LockGuard, LockOptions, Locks};

struct Ours(Locks);

impl Peer for Ours {
    type Hold = LockGuard;

    async fn take(&self, key: String) -> LockGuard {
        self.0.lock(key).await.expect("taken")
    }

    async fn give(&self, hold: LockGuard) {
        hold.release().await.expect("held");
    }
}

fn main() {
    run("lockcore", async |url| {
        let options = LockOptions::new().queue_limit(200_000);
        let builder = Locks::builder().defaults(options).max_waiting(200_000);
        Ours(builder.connect(url).await.expect("connected"))
    });
}
