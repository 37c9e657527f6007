//! Leases that end on either side, and holders that outlast the patience of the waiters.

use std::time::Duration;

use lockcore::LockErrorKind;
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, KEY, granted, release};
use crate::jvm::Jvm;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_s_lease_that_ends_lets_us_in() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let started = Instant::now();
    assert_eq!(jvm.run("lock", "a", "1500").await, "ok");
    let waiting = bench.wait(&locks).await;
    let guard = granted(waiting).await;
    assert!(started.elapsed() >= Duration::from_millis(1_500));
    assert!(jvm.run("unlock", "a", "").await.contains("IllegalMonitorState"));
    release(guard).await;
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn our_lease_that_ends_lets_a_jvm_in() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let lease = Duration::from_millis(1_500);
    let guard = bench.locks.key(KEY).fixed_lease(lease).lock().await.expect("free");
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert!(guard.is_lost());
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_s_hold_whose_expiry_was_taken_away_is_not_ended_by_a_short_lease_of_ours() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    assert_eq!(jvm.run("lock", "a", "600000").await, "ok");
    assert_eq!(jvm.run("clear-expire", "a", "").await, "true");
    let request = bench.locks.key(KEY).lease(Duration::from_millis(100));
    let acquire = request.wait(Duration::from_secs(1)).lock();
    let error = acquire.await.expect_err("a JVM has it");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert_eq!(jvm.run("count", "a", "").await, "1");
    let left = bench.redis.pttl(KEY).await;
    assert!((20_000..=30_000).contains(&left), "{left} ms");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    bench.nothing_is_left().await;
}

/// D3: a JVM's waiter is dropped once it has waited for its step and the holder's lease; ours is
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_holder_that_outlasts_the_wait_timeout_costs_us_no_position() {
    let mut bench = Bench::start().await;
    // The step is a second instead of five minutes, so that ten seconds are like 50 minutes.
    let mut jvm = Jvm::start_with(&bench.server.url(), 1_000, 30_000).await;
    let locks = bench.locks.clone();
    let lease = Duration::from_secs(1);
    let holder = bench.locks.key(KEY).lease(lease).lock().await.expect("free");
    let first = bench.wait(&locks).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let second = bench.wait(&bench.node().await).await;
    bench.wait_in(&mut jvm, "lock", "b", "").await;
    let ours: Vec<_> = bench.waiting().await.into_iter().filter(|m| m.starts_with('~')).collect();
    // The test is about this time.
    sleep(Duration::from_secs(10)).await;
    let later: Vec<_> = bench.waiting().await.into_iter().filter(|m| m.starts_with('~')).collect();
    assert_eq!(later, ours);
    assert_eq!(bench.waiting().await[0], ours[0], "still the first");
    release(holder).await;
    release(granted(first).await).await;
    // The JVM's threads come before or after the second: their order is for them to lose.
    let mut a = false;
    let mut b = false;
    while !(a && b) {
        sleep(Duration::from_millis(20)).await;
        for (thread, done) in [("a", &mut a), ("b", &mut b)] {
            if !*done && jvm.has_ended("lock", thread) {
                assert_eq!(jvm.run("unlock", thread, "").await, "ok");
                *done = true;
            }
        }
        if second.is_finished() {
            break;
        }
    }
    release(granted(second).await).await;
    for (thread, done) in [("a", a), ("b", b)] {
        if !done {
            assert_eq!(jvm.end("lock", thread).await, "ok");
            assert_eq!(jvm.run("unlock", thread, "").await, "ok");
        }
    }
    assert_eq!(locks.status().positions_lost, 0);
    bench.nothing_is_left().await;
}
