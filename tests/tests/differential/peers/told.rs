//! Who is told to come, who tells us, and what becomes of JVMs that do not hear.

use std::time::Duration;

use lock_tests::eventually;
use lockcore::internals::{Event, Party};
use redis::cmd;

use super::THREADS;
use super::bench::Bench;
use crate::snapshot::keys;
use crate::world::{DEAF, SOON};

const STEP: u64 = 300_000;

#[tokio::test]
async fn a_jvm_s_unlock_reaches_the_member_it_is_for_and_no_other_node() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let (ours, _) = (bench.queued(0).await, bench.queued(1).await);
    let channel = bench.channel(ours.as_str());
    bench.world.redis.publish(&channel, "0").await;
    let Bench { world, .. } = &mut bench;
    for (number, told) in
        [(0, vec![Event::Poked { number: ours.number() }]), (1, vec![]), (2, vec![])]
    {
        assert_eq!(world.nodes[number].heard(&mut world.redis).await, told, "node {number}");
    }
}

#[tokio::test]
async fn a_jvm_that_does_not_hear_has_eight_seconds_and_one_that_does_keeps_its_place() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    for thread in [THREADS[1], THREADS[2], THREADS[0]] {
        bench.jvm_queues(thread, STEP).await;
    }
    let waiting = bench.queued(1).await;
    bench.release(0, &holder).await;
    assert_eq!(bench.poked().await, 0);
    bench.touch(1, &waiting).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    for (ms, count) in [(7_000, 4), (1_000, 2), (52_000, 2)] {
        bench.age_suspects(ms).await;
        bench.touch(1, &waiting).await;
        // Both threads of the JVM that is gone, and then none past the one that listens.
        assert_eq!(bench.look().await.state.queue.len(), count, "{ms} ms later");
    }
    assert_eq!(bench.look().await.state.hold, None);
    assert_eq!(bench.suspects().await, [] as [&str; 0]);
    assert!(bench.poked().await >= 2);
}

#[tokio::test]
async fn a_thread_that_queues_again_is_not_taken_for_what_it_was() {
    let mut bench = Bench::start().await;
    let (mut holder, _) = bench.acquire(0).await;
    bench.jvm_queues(THREADS[1], STEP).await;
    let waiting = bench.queued(0).await;
    bench.release(0, &holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    // It subscribed late, took the lock, gave it back, and comes again after nine seconds.
    bench.jvm_head_goes(STEP as i64).await;
    bench.touch(0, &waiting).await;
    holder = waiting;
    bench.age_suspects(9_000).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    bench.jvm_queues(THREADS[1], STEP).await;
    bench.release(0, &holder).await;
    let seen = bench.look().await;
    assert_eq!(seen.state.queue.len(), 1, "it has its time to subscribe");
}

#[tokio::test]
async fn a_thread_that_queued_after_a_ghost_of_its_jvm_was_found_out_has_its_own_eight_seconds() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    bench.jvm_queues(THREADS[1], STEP).await;
    bench.release(0, &holder).await;
    bench.age_suspects(5_000).await;
    bench.jvm_queues(THREADS[2], STEP).await;
    let waiting = bench.queued(1).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    bench.age_suspects(3_000).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.look().await.state.queue, [Party::from(THREADS[2]), Party::from(&waiting)]);
    bench.age_suspects(5_000).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.look().await.state.hold.expect("none is before it").member, waiting);
}

#[tokio::test]
async fn a_suspect_that_is_heard_of_again_has_its_eight_seconds_anew() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    for thread in [THREADS[1], THREADS[2]] {
        bench.jvm_queues(thread, STEP).await;
    }
    let waiting = bench.queued(1).await;
    bench.release(0, &holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    bench.age_suspects(7_000).await;
    let channel = bench.channel(THREADS[2]);
    let subscription = bench.world.subscribe(&channel).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    drop(subscription);
    let redis = &mut bench.world.redis;
    eventually("the server notices", SOON, async || redis.subscribers(&channel).await == 0).await;
    bench.age_suspects(1_000).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.look().await.state.queue, [Party::from(THREADS[2]), Party::from(waiting)]);
}

#[tokio::test]
async fn a_jvm_behind_a_member_that_is_passed_over_is_told_when_that_one_is_gone() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    let deaf = bench.queued(DEAF).await;
    bench.jvm_queues(THREADS[0], STEP).await;
    let waiting = bench.queued(1).await;
    bench.release(0, &holder).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.poked().await, 0);
    let [_, _, _, _, alive, ..] = keys(bench.lock.as_str());
    let past = bench.look().await.at_ms() - 1;
    let () = bench.world.redis.ask(cmd("ZADD").arg(alive).arg(past).arg(deaf.as_str())).await;
    bench.touch(1, &waiting).await;
    assert_eq!(bench.poked().await, 1);
}

#[tokio::test]
async fn a_deaf_node_s_member_is_passed_over_for_five_seconds_and_keeps_its_score() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    let deaf = bench.queued(DEAF).await;
    let before = bench.look().await.score(&deaf);
    let near = bench.queued(1).await;
    bench.release(0, &holder).await;
    let seen = bench.look().await;
    assert_eq!(seen.state.hold.as_ref().expect("handed over").member, near);
    assert_eq!(seen.score(&deaf), before);
    let alive = seen.state.alive.get(&Party::from(deaf)).expect("still believed alive");
    assert!(alive <= seen.at_ms() + 5_000);
}
