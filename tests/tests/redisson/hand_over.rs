//! Hand-overs from a JVM to us and back, re-entrant holds, and force.

use std::time::Duration;

use lockcore::{LockErrorKind, Locks};
use tokio::time::Instant;

use crate::bench::{Bench, KEY, granted, release};
use crate::jvm::Jvm;

const TIMES: u32 = 10;
/// The bound of a woken wait: without a message, a JVM looks again after up to 30 s, and we after
/// up to 4 s.
const WOKEN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn each_wakes_the_other_when_it_lets_go() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let mut guard = bench.hold().await;
    let mut spent = Duration::ZERO;
    for _ in 0..TIMES {
        bench.wait_in(&mut jvm, "lock", "a", "").await;
        let started = Instant::now();
        release(guard).await;
        assert_eq!(jvm.end("lock", "a").await, "ok");
        spent += started.elapsed();
        let waiting = bench.wait(&locks).await;
        let started = Instant::now();
        assert_eq!(jvm.run("unlock", "a", "").await, "ok");
        guard = granted(waiting).await;
        spent += started.elapsed();
    }
    release(guard).await;
    assert!(spent < WOKEN, "{TIMES} times to and fro took {spent:?}");
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn without_the_option_a_jvm_and_we_do_not_exclude_each_other() {
    let bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = Locks::connect(bench.server.url()).await.expect("connected");
    let guard = locks.lock(KEY).await.expect("free");
    assert_eq!(jvm.run("try", "a", "").await, "true");
    release(guard).await;
    let guard = locks.try_lock(KEY).await.expect("answered").expect("it is another lock");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_re_entrant_hold_ends_with_its_last_unlock() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    for _ in 0..3 {
        assert_eq!(jvm.run("lock", "a", "").await, "ok");
    }
    assert_eq!(jvm.run("count", "a", "").await, "3");
    let waiting = bench.wait(&locks).await;
    for left in ["2", "1"] {
        assert_eq!(jvm.run("unlock", "a", "").await, "ok");
        assert_eq!(jvm.run("count", "a", "").await, left);
        assert!(locks.try_lock(KEY).await.expect("answered").is_none());
    }
    assert!(!waiting.is_finished());
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_that_forces_its_own_lock_open_lets_us_in() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    assert_eq!(jvm.run("lock", "a", "").await, "ok");
    let waiting = bench.wait(&locks).await;
    assert_eq!(jvm.run("force", "b", "").await, "true");
    let guard = granted(waiting).await;
    assert!(jvm.run("unlock", "a", "").await.contains("IllegalMonitorState"));
    assert!(!guard.is_lost());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_that_forces_our_lock_open_is_noticed_at_the_next_renewal() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let lease = Duration::from_secs(6);
    let guard = bench.locks.key(KEY).lease(lease).lock().await.expect("free");
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let started = Instant::now();
    assert_eq!(jvm.run("force", "b", "").await, "true");
    assert_eq!(jvm.end("lock", "a").await, "ok");
    tokio::time::timeout(lease, guard.lost()).await.expect("told before its lease ends");
    assert!(started.elapsed() < lease);
    let error = guard.release().await.expect_err("another has it");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn we_can_force_a_jvm_off() {
    let mut bench = Bench::start().await;
    let mut jvm: Jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    assert_eq!(jvm.run("lock", "a", "").await, "ok");
    bench.wait_in(&mut jvm, "lock", "b", "").await;
    let waiting = bench.wait(&locks).await;
    assert!(locks.force_release(KEY).await.expect("answered"));
    assert_eq!(jvm.end("lock", "b").await, "ok", "the next in the queue is told");
    assert!(jvm.run("unlock", "a", "").await.contains("IllegalMonitorState"));
    assert_eq!(jvm.run("unlock", "b", "").await, "ok");
    release(granted(waiting).await).await;
}
