//! A node waits for very many locks, and the connection breaks.

use lock_tests::CommandStats;
use lock_tests::Connections;
use lock_tests::chaos::Crowd;

// With all touches at once, requests timed out in the node's own queue at the server, which broke
// the next connection, and so on. Whether a second connection breaks also depends on the machine:
// `lock-torture interrupted` counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_waiting_locks_are_touched_after_a_break_and_keep_their_positions() {
    const KEYS: usize = 5_000;

    let mut crowd = Crowd::start(KEYS).await;
    let before = CommandStats::read(&mut crowd.redis).await;
    let since_us = crowd.redis.time_us().await;
    assert_eq!(crowd.proxy.cut(Connections::Commands).await, 1);
    crowd.touched_since(since_us).await;
    let ran = CommandStats::read(&mut crowd.redis).await.since(&before);

    let touches = ran.calls("psetex");
    assert!(touches >= KEYS as u64, "{touches} touches");
    let status = crowd.locks.status();
    assert_eq!((status.waiting, status.positions_lost), (KEYS, 0));
}
