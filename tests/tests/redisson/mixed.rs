//! Processes of ours with and without `redisson_peers(true)` on one name: two locks, not one.

use lockcore::Locks;

use crate::bench::{Bench, KEY, release};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_and_one_without_redisson_peers_do_not_exclude_each_other_on_one_name() {
    let bench = Bench::start().await;
    let without = Locks::connect(&bench.server.url()).await.expect("connected");
    let theirs = bench.hold().await;
    let ours = without.try_lock(KEY).await.expect("answered").expect("it is another lock");
    // Each excludes its own side alone.
    let beside = bench.node().await;
    let behind = Locks::connect(&bench.server.url()).await;
    assert!(beside.try_lock(KEY).await.expect("answered").is_none());
    let behind = behind.expect("connected");
    assert!(behind.try_lock(KEY).await.expect("answered").is_none());
    release(theirs).await;
    assert!(behind.try_lock(KEY).await.expect("answered").is_none());
    release(ours).await;
    assert!(behind.try_lock(KEY).await.expect("answered").is_some());
}
