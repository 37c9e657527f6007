//! Our locks. Limits are raised to the need of the longest queue. Usage: `ours ADDRESS [dropped]`:
//! guards are released, or dropped. Several addresses are the primaries of a quorum.

use lock_peer_kit::{Peer, run};
use lock_peer_ours::Ours;
use lockcore::{LockGuard, LockOptions, Locks, Quorum};

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
    Ours(match url.contains(',') {
        true => {
            let quorum = Quorum::new(url.split(','));
            builder.clone().init_quorum(quorum.clone()).await.expect("new, or marked already");
            builder.from_quorum(quorum).await.expect("connected")
        }
        false => builder.connect(url).await.expect("connected"),
    })
}
