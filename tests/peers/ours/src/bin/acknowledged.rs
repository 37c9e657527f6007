//! Our locks where so many replicas have to have a grant. Usage: `acknowledged ADDRESS REPLICAS`.

use std::time::Duration;

use lock_peer_kit::{Peer, run};
use lockcore::{LockGuard, Locks};

struct Acknowledged(Locks);

impl Peer for Acknowledged {
    type Hold = LockGuard;

    async fn take(&self, key: String) -> LockGuard {
        self.0.lock(key).await.expect("taken")
    }

    async fn give(&self, hold: LockGuard) {
        hold.release().await.expect("held");
    }
}

fn main() {
    let replicas = std::env::args().nth(2).expect("usage: acknowledged ADDRESS REPLICAS");
    let replicas = replicas.parse().expect("REPLICAS is a number");
    run("lockcore", async |url| {
        let builder = Locks::builder().require_replicas(replicas, Duration::from_millis(500));
        Acknowledged(builder.connect(url).await.expect("connected"))
    });
}
