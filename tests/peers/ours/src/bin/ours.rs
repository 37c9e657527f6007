//! Our locks, with limits raised for the longest queue. Usage: `ours ADDRESS [dropped | batch=N]`:
//! guards are released, or dropped; `batch` sets the batch limit. Several addresses are quorum
//! primaries.

use lock_peer_kit::{Peer, run};
use lock_peer_ours::Ours;
use lockcore::{LockGuard, LockOptions, Locks, LocksBuilder, Quorum};

/// Locks whose guards are dropped.
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
        None => run("lockcore", async |url| connect(builder(), url).await),
        Some("dropped") => run("lockcore", async |url| Dropped(connect(builder(), url).await)),
        Some(limit) => {
            let limit = limit.strip_prefix("batch=").and_then(|limit| limit.parse().ok());
            let limit = limit.expect("dropped, or batch=N");
            run("lockcore", async move |url| connect(builder().batch_limit(limit), url).await);
        }
    }
}

fn builder() -> LocksBuilder {
    Locks::builder().defaults(LockOptions::new().queue_limit(200_000)).max_waiting(200_000)
}

async fn connect(builder: LocksBuilder, url: String) -> Ours {
    Ours(match url.contains(',') {
        true => {
            let quorum = Quorum::new(url.split(','));
            builder.clone().init_quorum(quorum.clone()).await.expect("new, or marked already");
            builder.connect(quorum).await.expect("connected")
        }
        false => builder.connect(url).await.expect("connected"),
    })
}
