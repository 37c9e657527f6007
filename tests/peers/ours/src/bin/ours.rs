//! Our locks. Limits are raised to the need of the longest queue. Usage: `ours ADDRESS [dropped]`:
//! guards are released, or dropped.

use lock_peer_kit::{Peer, run};
use lock_peer_ours::Ours;
use lockcore::{LockGuard, LockOptions, Locks};

/// Locks whose guards are dropped, and released in the background.
struct Dropped(Ours);

impl Peer for Dropped {
    type Hold = LockGuard;

    async fn take(&self, key: String) -> LockGuard {
        self.0.take(key).await
    }

    async fn give(&self, hold: LockGuard) {
        drop(hold);
    }
}

fn main() {
    match std::env::args().nth(2).as_deref() {
        Some("dropped") => run("lockcore", async |url| Dropped(connect(url).await)),
        _ => run("lockcore", connect),
    }
}

async fn connect(url: String) -> Ours {
    let options = LockOptions::new().queue_limit(200_000);
    let builder = Locks::builder().defaults(options).max_waiting(200_000);
    Ours(builder.connect(url).await.expect("connected"))
}
