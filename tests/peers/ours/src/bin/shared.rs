//! Our reads, writes and permits. Usage: `shared ADDRESS read-write|permits`.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_peer_kit::{Peer, run};
use lockcore::{Locks, Permit, ReadGuard, WriteGuard};

/// Of so many turns, one writes.
const WRITES: usize = 10;
const PERMITS: u32 = 10;

struct Shared {
    locks: Locks,
    is_read_and_written: bool,
    turns: AtomicUsize,
}

enum Hold {
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Peer for Shared {
    type Hold = Hold;

    async fn take(&self, key: String) -> Hold {
        if !self.is_read_and_written {
            return Hold::Permit(self.locks.permit(key, PERMITS).await.expect("taken"));
        }
        match self.turns.fetch_add(1, Ordering::Relaxed) % WRITES {
            0 => Hold::Write(self.locks.write(key).await.expect("taken")),
            _ => Hold::Read(self.locks.read(key).await.expect("taken")),
        }
    }

    async fn give(&self, hold: Hold) {
        let given = match hold {
            Hold::Read(read) => read.release().await,
            Hold::Write(write) => write.release().await,
            Hold::Permit(permit) => permit.release().await,
        };
        given.expect("held");
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
