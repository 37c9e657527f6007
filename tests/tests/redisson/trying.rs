//! Attempts that do not wait, or not for ever.

use std::time::Duration;

use lockcore::LockErrorKind;

use crate::bench::{Bench, KEY, granted, release};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn nobody_who_only_tries_gets_past_a_holder_or_a_queue() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    assert_eq!(jvm.run("try", "a", "").await, "false");
    bench.wait_in(&mut jvm, "lock", "b", "").await;
    let waiting = bench.wait(&locks).await;
    release(guard).await;
    assert_eq!(jvm.end("lock", "b").await, "ok");
    assert_eq!(jvm.run("try", "a", "").await, "false");
    assert!(locks.try_lock(KEY).await.expect("answered").is_none());
    assert_eq!(jvm.run("unlock", "b", "").await, "ok");
    release(granted(waiting).await).await;
    assert_eq!(jvm.run("try", "a", "").await, "true");
    assert!(locks.try_lock(KEY).await.expect("answered").is_none());
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(locks.try_lock(KEY).await.expect("answered").expect("free")).await;
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_wait_that_is_long_enough_ends_with_the_lock_and_another_leaves_the_queue() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    assert_eq!(jvm.run("wait", "a", "300").await, "false");
    assert_eq!(jvm.run("async", "a", "300").await, "false");
    bench.until_waiting(0).await;
    bench.wait_in(&mut jvm, "wait", "a", "20000").await;
    release(guard).await;
    assert_eq!(jvm.end("wait", "a").await, "true");
    let short = locks.lock_timeout(KEY, Duration::from_millis(300)).await;
    assert_eq!(short.expect_err("held").kind(), LockErrorKind::Timeout);
    bench.until_waiting(0).await;
    let acquire = locks.lock_timeout(KEY, Duration::from_secs(20));
    let waiting = tokio::spawn(acquire);
    bench.until_waiting(1).await;
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

/// D2: such a JVM subtracts its default of five minutes from every waiter behind it, whatever it
/// had added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn asynchronous_timeouts_worth_400_s_do_not_cost_us_our_position() {
    let mut bench = Bench::start().await;
    // Two steps of 200 s each.
    let mut jvm = crate::jvm::Jvm::start_with(&bench.server.url(), 200_000, 30_000).await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    bench.wait_in(&mut jvm, "async", "a", "2000").await;
    bench.wait_in(&mut jvm, "async", "b", "2000").await;
    let waiting = bench.wait(&locks).await;
    let ours = bench.waiting().await[2].clone();
    let before = bench.score(&ours).await.expect("queued");
    assert_eq!(jvm.end("async", "a").await, "false");
    assert_eq!(jvm.end("async", "b").await, "false");
    let after = bench.score(&ours).await.expect("still queued");
    assert!(before - after >= 390_000, "they subtracted {} ms", before - after);
    // A newcomer drops the member that stands at the head with a score in the past.
    bench.wait_in(&mut jvm, "lock", "c", "").await;
    assert_eq!(bench.waiting().await[0], ours);
    release(guard).await;
    let guard = granted(waiting).await;
    assert!(!jvm.has_ended("lock", "c"));
    release(guard).await;
    assert_eq!(jvm.end("lock", "c").await, "ok");
    assert_eq!(locks.status().positions_lost, 0);
    assert_eq!(jvm.run("unlock", "c", "").await, "ok");
    bench.nothing_is_left().await;
}
