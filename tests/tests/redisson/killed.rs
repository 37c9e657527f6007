//! Processes that die without a word, waiting and holding.

use std::time::Duration;

use lock_tests::LockChild;
use redis::cmd;
use tokio::time::Instant;

use crate::bench::{Bench, KEY, SCORES, granted, release};
use crate::jvm::Jvm;

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_killed_while_it_holds_costs_its_lease() {
    let mut bench = Bench::start().await;
    let mut jvm = Jvm::start_with(&bench.server.url(), 300_000, 3_000).await;
    let locks = bench.locks.clone();
    assert_eq!(jvm.run("lock", "a", "").await, "ok");
    let waiting = bench.wait(&locks).await;
    jvm.kill();
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

/// D1 and the ghosts: without us, each of these threads would cost five minutes and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn jvms_killed_with_many_waiting_threads_cost_one_grace_in_all() {
    let mut bench = Bench::start().await;
    let mut dying = bench.jvm().await;
    let mut another = bench.jvm().await;
    let mut living = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    for thread in ["a", "b"] {
        bench.wait_in(&mut dying, "lock", thread, "").await;
        bench.wait_in(&mut another, "lock", thread, "").await;
    }
    bench.wait_in(&mut living, "lock", "e", "").await;
    let waiting = bench.wait(&locks).await;
    dying.kill();
    another.kill();
    let started = Instant::now();
    release(guard).await;
    assert_eq!(living.end("lock", "e").await, "ok");
    let spent = started.elapsed();
    // The grace of 8 s, and the next look of one of our waiters.
    assert!(spent < Duration::from_secs(16), "{spent:?}");
    assert_eq!(living.run("unlock", "e", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_process_of_ours_killed_while_it_holds_costs_its_lease() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let mut child = child(&bench).await;
    child.lock("a", KEY, LEASE).await;
    child.granted("a").await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    child.kill();
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_process_of_ours_killed_while_it_waits_is_passed_by_where_another_of_ours_is() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    let mut child = child(&bench).await;
    for name in ["a", "b", "c"] {
        child.lock(name, KEY, LEASE).await;
    }
    bench.until_waiting(3).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let waiting = bench.wait(&locks).await;
    child.kill();
    let started = Instant::now();
    release(guard).await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    let spent = started.elapsed();
    // The 5 s after it is skipped, and the next look of one of our waiters.
    assert!(spent < Duration::from_secs(13), "{spent:?}");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_process_of_ours_killed_at_the_head_is_out_of_a_jvm_s_way_after_a_minute() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let guard = bench.hold().await;
    let mut child = child(&bench).await;
    child.lock("a", KEY, LEASE).await;
    bench.until_waiting(1).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let ours = bench.waiting().await[0].clone();
    let mut redis = bench.redis.clone();
    let minute = async || {
        let now_ms = (redis.time_us().await / 1_000) as i64;
        let score: i64 = redis.ask(cmd("ZSCORE").arg(SCORES).arg(&ours)).await;
        score <= now_ms + 60_000
    };
    lock_tests::eventually("a touch makes the head's score short", LEASE * 4, minute).await;
    child.kill();
    release(guard).await;
    // No node of ours looks any more. The minute passes: for the server that is a score in the
    // past.
    let past = bench.now_ms().await - 1;
    let () = bench.redis.ask(cmd("ZADD").arg(SCORES).arg(past).arg(&ours)).await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn all_of_ours_killed_while_they_wait_are_out_of_a_jvm_s_way_after_the_same_minute() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let guard = bench.hold().await;
    let mut child = child(&bench).await;
    for (name, count) in [("a", 1), ("b", 2), ("c", 3)] {
        child.lock(name, KEY, LEASE).await;
        bench.until_waiting(count).await;
    }
    let ours = bench.waiting().await;
    let mut redis = bench.redis.clone();
    let minute = async || {
        let last_ms = (redis.time_us().await / 1_000) as f64 + 60_000.0;
        redis.scores(SCORES).await.iter().all(|(_, score)| *score <= last_ms)
    };
    lock_tests::eventually("a touch makes the scores short", LEASE * 4, minute).await;
    child.kill();
    release(guard).await;
    assert_eq!(jvm.run("try", "a", "").await, "false");
    assert_eq!(bench.waiting().await, ours);
    // The minute passes: for the server that is a score as much lower.
    for member in &ours {
        let () = bench.redis.ask(cmd("ZINCRBY").arg(SCORES).arg(-60_000).arg(member)).await;
    }
    assert_eq!(jvm.run("try", "a", "").await, "true");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    assert_eq!(bench.waiting().await, [] as [&str; 0]);
}

async fn child(bench: &Bench) -> LockChild {
    LockChild::start_with_peers(env!("CARGO_BIN_EXE_lock-child"), &bench.server.url()).await
}
