//! Our locks with reads, and permits. Usage: `shared ADDRESS read-write|permits`.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_peer_kit::{Peer, run};
use lockcore::{LockGuard, Locks};

/// One of this many turns writes.
const WRITES: usize = 10;
const PERMITS: u32 = 10;

struct Shared {
    locks: Locks,
    is_read_and_written: bool,
    turns: AtomicUsize,
}

impl Peer for Shared {
    type Hold = LockGuard;

    async fn take(&self, key: String) -> LockGuard {
        let acquire = match self.is_read_and_written {
            false => self.locks.permit(key, PERMITS),
            true => match self.turns.fetch_add(1, Ordering::Relaxed) % WRITES {
                0 => self.locks.write(key),
                _ => self.locks.read(key),
            },
        };
        acquire.await.expect("taken")
    }

    async fn give(&self, hold: LockGuard) {
        hold.release().await.expect("held");
    }
}

fn main() {
    let form = std::env::args().nth(2).expect("usage: shared ADDRESS read-write|permits");
    run("lockcore", async |url| Shared {
        locks: Locks::connect(url).await.expect("connected"),
        is_read_and_written: form == "read-write",
        turns: AtomicUsize::new(0),
    });
}
