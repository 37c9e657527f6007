//! A node with very many simultaneous attempts on one lock.

use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{CommandStats, Connections, Flow, eventually};
use lockcore::Locks;
use tokio::task::coop::unconstrained;

use crate::common::{LONG, SOON, held, queue, queue_has, setup, soon};

// With all acquires at once, they waited for each other at the server until requests timed out
// there. The server then had to search the queue for repeated requests, which takes longer in a
// longer queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_who_ask_at_once_are_sent_in_portions_and_queue_in_their_order() {
    const COUNT: usize = 3_000;
    const AT_ONCE: usize = 256;

    let mut setup = setup().await;
    let other = setup.direct().await;
    let _guard = held(&other, "k", LONG).await;
    // Requests do not time out while the proxy is frozen.
    let builder = Locks::builder().request_timeout(Duration::from_secs(60));
    let locks = soon("a connection", builder.connect(setup.proxy.url())).await.expect("it stands");
    // From now on the node knows that the lock is busy, and uses the script at once.
    soon("an answer", locks.try_lock("k")).await.expect("an answer");
    let before = CommandStats::read(&mut setup.redis).await;
    setup.proxy.freeze(Connections::Commands, Flow::Replies).await;

    let attempts = (0..COUNT).map(|_| locks.key("k").queue_limit(COUNT as u32).lock());
    // All attempts begin in one poll of one task, which would otherwise yield in between.
    let waiting = tokio::spawn(unconstrained(join_all(attempts)));
    eventually("all wait", SOON, async || locks.status().waiting == COUNT).await;
    queue_has(&mut setup.redis, "k", AT_ONCE).await;
    setup.proxy.thaw();
    queue_has(&mut setup.redis, "k", COUNT).await;

    let ran = CommandStats::read(&mut setup.redis).await.since(&before);
    // Up to 64 in a command, and no request is sent twice.
    let portions = COUNT.div_ceil(64) as u64..=COUNT as u64 / 16;
    assert!(portions.contains(&ran.calls("zadd")) && ran.calls("zrank") == 0, "{ran:?}");
    let number = |member: &String| -> u64 {
        member.split(':').nth(1).and_then(|number| number.parse().ok()).expect("one of ours")
    };
    let numbers: Vec<u64> = queue(&mut setup.redis, "k").await.iter().map(number).collect();
    assert!(numbers.is_sorted(), "{:?}", numbers.windows(2).find(|pair| pair[0] > pair[1]));
    waiting.abort();
}
