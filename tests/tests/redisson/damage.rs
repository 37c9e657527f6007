//! Other damage of Redisson's queue, and its repair where one of ours waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_tests::{CommandStats, eventually};
use redis::cmd;
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{Bench, KEY, QUEUE, SCORES, SOON, granted, release};

/// A thread of a JVM that is gone.
const GONE: &str = "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:1";

/// D4: the head is told that the lock is free, and leaves; the next is not told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_head_that_leaves_a_free_lock_does_not_keep_it_from_the_next() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    // This thread was told and will not come: it has no subscriber and no process.
    let () = bench.redis.ask(cmd("RPUSH").arg(QUEUE).arg(GONE)).await;
    let soon = bench.now_ms().await + 300_000;
    let () = bench.redis.ask(cmd("ZADD").arg(SCORES).arg(soon).arg(GONE)).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let waiting = bench.wait(&locks).await;
    let () = bench.redis.ask(cmd("LREM").arg(QUEUE).arg(1).arg(GONE)).await;
    let () = bench.redis.ask(cmd("ZREM").arg(SCORES).arg(GONE)).await;
    let started = Instant::now();
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
}

/// D5: Redisson never drops an entry without a score.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn an_entry_without_a_score_is_dropped() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    let () = bench.redis.ask(cmd("RPUSH").arg(QUEUE).arg(GONE)).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let waiting = bench.wait(&locks).await;
    let started = Instant::now();
    release(guard).await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert!(started.elapsed() < Duration::from_secs(6), "at once, and not as one that is gone");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
}

/// D6: a JVM whose clock is ahead drops the head although it is alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn whom_a_jvm_threw_out_gets_its_position_back() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let guard = bench.hold().await;
    let first = bench.wait(&locks).await;
    let second = bench.wait(&locks).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let before = bench.waiting().await;
    // The scores look so to a clock that is far ahead.
    let past = bench.now_ms().await - 1;
    for member in &before[..2] {
        let () = bench.redis.ask(cmd("ZADD").arg(SCORES).arg(past).arg(member)).await;
    }
    assert_eq!(jvm.run("try", "b", "").await, "false");
    assert_eq!(bench.waiting().await, before[2..], "thrown out");
    let mut redis = bench.redis.clone();
    eventually("they are back", SOON, async || redis.list(QUEUE).await == before).await;
    release(guard).await;
    release(granted(first).await).await;
    release(granted(second).await).await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert_eq!(locks.status().positions_lost, 0);
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn whom_a_jvm_s_delete_threw_out_come_back_in_the_order_in_which_they_came() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let nodes = [bench.locks.clone(), bench.node().await];
    let guard = bench.hold().await;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let acquire = nodes[number % 2].lock(KEY);
        let turns = Arc::clone(&turns);
        tasks.push(tokio::spawn(async move {
            let guard = acquire.await.expect("granted");
            turns.lock().expect("no panic").push(number);
            release(guard).await;
        }));
        bench.until_waiting(number + 1).await;
    }
    assert_eq!(jvm.run("delete", "a", "").await, "true");
    for task in tasks {
        timeout(SOON, task).await.expect("in time").expect("no panic");
    }
    assert_eq!(*turns.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
    for locks in nodes {
        assert_eq!(locks.status().positions_lost, 0);
    }
    assert!(guard.release().await.is_err(), "it is deleted, too");
    bench.nothing_is_left().await;
}

/// D1: with a dead head before a free lock, a JVM asks as fast as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_behind_a_dead_head_stops_spinning_once_one_of_ours_has_looked() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    let later = bench.now_ms().await + 300_000;
    let () = bench.redis.ask(cmd("RPUSH").arg(QUEUE).arg(GONE)).await;
    let () = bench.redis.ask(cmd("ZADD").arg(SCORES).arg(later).arg(GONE)).await;
    bench.wait_in(&mut jvm, "lock", "a", "").await;
    let before = calls(&mut bench).await;
    sleep(Duration::from_secs(1)).await;
    let spun = calls(&mut bench).await - before;
    assert!(spun > 100, "{spun}: Redisson has learnt to wait, and this test is obsolete");
    assert!(!jvm.has_ended("lock", "a"));
    let waiting = bench.wait(&locks).await;
    let started = Instant::now();
    assert_eq!(jvm.end("lock", "a").await, "ok");
    let spent = started.elapsed();
    assert!(spent < Duration::from_secs(16), "{spent:?}");
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
    bench.nothing_is_left().await;
}

async fn calls(bench: &mut Bench) -> u64 {
    CommandStats::read(&mut bench.redis).await.calls("evalsha")
}
