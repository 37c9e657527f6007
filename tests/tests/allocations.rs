//! The allocations of a lock and its release, on Redis. A binary of its own: they are counted by
//! its allocator.

use lock_tests::RedisServer;
use lockcore::Locks;

const PAIRS: u64 = 50;

async fn pairs(locks: &Locks) {
    for _ in 0..PAIRS {
        let guard = locks.lock("allocations").await.expect("free");
        guard.release().await.expect("held");
    }
}

#[test]
fn a_lock_and_its_release_allocate_little() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let locks = runtime.block_on(async {
        let locks = Locks::connect(server.url()).await.expect("the server is up");
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
