//! The allocations of a lock and its release, on Redis.
//! The test starts a server of its own.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "../benches/support.rs"]
mod support;

use lockcore::Locks;
use support::Server;

const PAIRS: u64 = 50;

async fn pairs(locks: &Locks) {
    for _ in 0..PAIRS {
        locks.lock("allocations").await.unwrap().release().await.unwrap();
    }
}

#[test]
fn a_lock_and_its_release_allocate_little() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(async {
        let locks = Locks::connect(server.url()).await.unwrap();
        pairs(&locks).await;
        locks
    });
    let counted = allocation_counter::measure(|| runtime.block_on(pairs(&locks)));
    // A fraction is left for timers and buffers that grow now and then.
    let each = counted.count_total / PAIRS;
    // Some are the price of several members in one command: lists of one, and an index by lock. One
    // is that of an acquire without a script: its answer is a list.
    assert!(each <= 15, "{each} allocations, {} bytes", counted.bytes_total / PAIRS);
}
