//! The time that a thread has to subscribe, whatever happened to others of its JVM.

use std::time::Duration;

use lock_tests::eventually;
use tokio::time::sleep;

use crate::bench::{Bench, SOON, granted, release};
use crate::jvm::Jvm;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_thread_that_is_not_subscribed_yet_keeps_its_position_behind_a_ghost_of_its_own_jvm() {
    let mut bench = Bench::start().await;
    let mut jvm = Jvm::start_with_subscriptions(&bench.server.url(), 1).await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    // Redisson leaves the entry of a thread that is interrupted where it is.
    let ghost = jvm.member("ghost").await;
    bench.wait_in(&mut jvm, "wait", "ghost", "600000").await;
    jvm.begin("interrupt", "ghost", "");
    assert_eq!(jvm.end("wait", "ghost").await, "failed InterruptedException");
    assert_eq!(bench.waiting().await, std::slice::from_ref(&ghost));
    // The one subscription goes to a thread that waits for another lock.
    let other = locks.lock("other").await.expect("free");
    let busy = jvm.member("busy").await;
    jvm.send("lock busy other");
    bench.until_heard("other", &busy).await;
    release(guard).await;
    // The test is about this time: the ghost has been told to come for most of its grace.
    sleep(Duration::from_secs(5)).await;
    let late = jvm.member("late").await;
    jvm.begin("lock", "late", "");
    bench.until_waiting(2).await;
    let waiting = bench.wait(&locks).await;
    let ours = bench.waiting().await[2].clone();
    let mut redis = bench.redis.clone();
    let queue = async || !redis.list(crate::bench::QUEUE).await.contains(&ghost);
    eventually("the ghost is dropped", SOON, queue).await;
    assert_eq!(bench.waiting().await, [late, ours]);
    release(other).await;
    assert_eq!(jvm.end("lock", "busy").await, "ok");
    assert_eq!(jvm.end("lock", "late").await, "ok");
    assert!(!waiting.is_finished());
    jvm.send("unlock busy other");
    assert_eq!(jvm.end("unlock", "busy").await, "ok");
    assert_eq!(jvm.run("unlock", "late", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}
