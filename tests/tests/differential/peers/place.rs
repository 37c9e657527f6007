//! Who keeps the place, and for how long: scores, our own deadlines, and getting back in.

use lockcore::internals::{Acquired, Member, Mode, Party, Presence};
use redis::cmd;

use super::THREADS;
use super::bench::Bench;
use crate::asking::left_ms;
use crate::snapshot::{Snapshot, keys};

const STEP: u64 = 300_000;

#[tokio::test]
async fn a_newcomer_s_score_bears_every_step_that_those_ahead_may_subtract() {
    let mut bench = Bench::start().await;
    let (holder, _) = bench.acquire(0).await;
    // They add a second each, and subtract five minutes each.
    for thread in THREADS {
        bench.jvm_queues(thread, 1_000).await;
    }
    let member = bench.queued(1).await;
    for _ in THREADS {
        bench.jvm_head_goes(STEP as i64).await;
    }
    let seen = bench.look().await;
    let score = seen.score(&member);
    assert!(score > seen.at_ms() + STEP, "{} ms are left", score as i64 - seen.at_ms() as i64);
    assert_eq!(seen.state.hold.expect("held").member, holder);
}

#[tokio::test]
async fn turns_of_ours_and_of_jvms_do_not_push_the_scores_into_the_future() {
    let mut bench = Bench::start().await;
    let (mut holder, _) = bench.acquire(0).await;
    let mut waiting = bench.queued(0).await;
    for round in 0..50 {
        bench.jvm_queues(&format!("{}{round}", THREADS[0]), STEP).await;
        let next = bench.queued(0).await;
        bench.release(0, &holder).await;
        holder = waiting;
        // The JVM's turn comes and goes.
        bench.jvm_head_goes(STEP as i64).await;
        waiting = next;
    }
    let seen = bench.look().await;
    let greatest = seen.state.deadlines.iter().map(|(ms, _)| ms).max().expect("somebody waits");
    assert!(greatest < seen.at_ms() + 4 * STEP, "{} ms ahead", greatest - seen.at_ms());
}

#[tokio::test]
async fn a_score_rises_with_the_time_and_is_short_where_no_jvm_stands_before_us() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let head = bench.queued(0).await;
    bench.jvm_queues(THREADS[0], 1_000).await;
    let second = bench.queued(1).await;
    let [_, _, scores, _, alive, ..] = keys(bench.lock.as_str());
    // Ten seconds pass without a touch.
    let seen = bench.look().await;
    for member in [&head, &second] {
        let lived = seen.state.alive.get(&Party::from(member)).expect("alive") - 10_000;
        let () =
            bench.world.redis.ask(cmd("ZADD").arg(&alive).arg(lived).arg(member.as_str())).await;
    }
    let before = seen.score(&second);
    assert_eq!(bench.touch(1, &second).await, Presence::Waiting);
    assert_eq!(bench.touch(0, &head).await, Presence::Waiting);
    let seen = bench.look().await;
    let after = seen.score(&second);
    assert!((10_000..20_000).contains(&(after - before)), "{}", after - before);
    let short = |seen: &Snapshot, member: &Member| {
        (seen.at_ms() + 50_000..=seen.at_ms() + 60_000).contains(&seen.score(member))
    };
    assert!(short(&seen, &head));
    // Once the JVM has gone, both have none before them that subtracts.
    let () = bench.world.redis.ask(cmd("ZADD").arg(&scores).arg(after).arg(head.as_str())).await;
    let [_, queue, ..] = keys(bench.lock.as_str());
    let () = bench.world.redis.ask(cmd("LREM").arg(queue).arg(1).arg(THREADS[0])).await;
    let () = bench.world.redis.ask(cmd("ZREM").arg(&scores).arg(THREADS[0])).await;
    assert_eq!(bench.touch(1, &second).await, Presence::Waiting);
    assert_eq!(bench.touch(0, &head).await, Presence::Waiting);
    let seen = bench.look().await;
    for member in [&head, &second] {
        assert!(short(&seen, member));
    }
}

#[tokio::test]
async fn a_jvm_that_built_its_score_on_a_short_one_of_ours_does_not_run_out_of_it_behind_us() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let first = bench.queued(0).await;
    bench.touch(0, &first).await;
    for thread in THREADS {
        bench.jvm_queues(thread, 10_000).await;
    }
    bench.touch(0, &first).await;
    let seen = bench.look().await;
    assert!(seen.score(THREADS[0]) > seen.at_ms() + STEP - 10_000, "the next is raised");
    assert!(seen.score(THREADS[1]) < seen.at_ms() + 100_000, "and no other");
    // Once it is first itself, it is left to what JVMs make of it.
    bench.node(0).leave(&first).await;
    let waiting = bench.queued(0).await;
    let [_, _, scores, ..] = keys(bench.lock.as_str());
    let soon = bench.look().await.at_ms() + 20_000;
    let () = bench.world.redis.ask(cmd("ZADD").arg(scores).arg(soon).arg(THREADS[0])).await;
    bench.touch(0, &waiting).await;
    assert_eq!(bench.look().await.score(THREADS[0]), soon);
}

/// Each dead entry has added five minutes, and who drops it subtracts nothing.
#[tokio::test]
async fn dead_entries_that_were_dropped_do_not_push_the_scores_into_the_future() {
    let mut bench = Bench::start().await;
    let [hold, ..] = keys(bench.lock.as_str());
    bench.jvm_holds(THREADS[0]).await;
    let mut waiting = bench.queued(0).await;
    for round in 0..60 {
        // A JVM stands in the queue at all times, so that there is always a score to build on.
        bench.jvm_queues(&format!("{}{round}", THREADS[1]), STEP).await;
        bench.jvm_queues(THREADS[0], STEP).await;
        let next = bench.queued(0).await;
        let () = bench.world.redis.ask(cmd("DEL").arg(&hold)).await;
        bench.touch(0, &waiting).await;
        bench.release(0, &waiting).await;
        bench.age_suspects(8_000).await;
        bench.touch(0, &next).await;
        let left = [Party::from(THREADS[0]), Party::from(&next)];
        assert_eq!(bench.look().await.state.queue, left, "the dead entry is dropped");
        bench.jvm_head_goes(STEP as i64).await;
        bench.jvm_holds(THREADS[0]).await;
        waiting = next;
    }
    let seen = bench.look().await;
    let score = seen.score(&waiting);
    assert!(score > seen.at_ms() + STEP, "{} ms ahead", score as i64 - seen.at_ms() as i64);
    assert!(score < seen.at_ms() + 16 * STEP, "{} ms ahead", score - seen.at_ms());
}

#[tokio::test]
async fn whom_a_jvm_threw_out_of_several_nodes_come_back_in_the_order_in_which_they_came() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let mut ours = Vec::new();
    for number in 0..6 {
        ours.push(bench.queued(number % 2).await);
    }
    bench.jvm_queues(THREADS[0], STEP).await;
    for _ in 0..6 {
        bench.jvm_head_goes(0).await;
    }
    assert_eq!(bench.look().await.state.queue, [Party::from(THREADS[0])]);
    for node in [1, 0] {
        let members: Vec<_> = ours.iter().skip(node).step_by(2).collect();
        let touched = bench.node(node).touch(&members).await;
        assert_eq!(touched.outcome.members, [Presence::Waiting; 3]);
    }
    let mut queue: Vec<_> = ours.iter().map(Party::from).collect();
    queue.push(Party::from(THREADS[0]));
    assert_eq!(bench.look().await.state.queue, queue);
}

#[tokio::test]
async fn a_hold_without_an_end_gets_the_lease_of_the_one_who_asks_and_a_jvm_s_thirty_seconds() {
    let mut bench = Bench::start().await;
    let [hold, ..] = keys(bench.lock.as_str());
    for (holder, expected) in [(THREADS[0], 20_000..=30_000), ("", 0..=300)] {
        let ours = bench.node(1).member(30_000);
        let holder = if holder.is_empty() { ours.as_str() } else { holder };
        let () = bench.world.redis.ask(cmd("DEL").arg(&hold)).await;
        let () = bench.world.redis.ask(cmd("HSET").arg(&hold).arg(holder).arg(1)).await;
        let member = bench.node(0).member(300);
        let reply = bench.node(0).acquire(&member, Mode::Try, 1).await;
        assert_eq!(reply.outcome, Acquired::Busy);
        let told = left_ms(&reply);
        assert!(expected.contains(&told), "{told} ms for {holder}");
        let left = bench.world.redis.pttl(&hold).await;
        assert!(left > 0 && left as u64 <= told, "{left} ms for {holder}");
    }
}

#[tokio::test]
async fn those_whom_a_jvm_threw_out_are_back_at_the_head_in_their_order_unless_they_left() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let (a, b, c) = (bench.queued(0).await, bench.queued(0).await, bench.queued(0).await);
    bench.jvm_queues(THREADS[0], STEP).await;
    for _ in 0..3 {
        bench.jvm_head_goes(0).await;
    }
    bench.node(0).leave(&b).await;
    let touched = bench.node(0).touch(&[&a, &b, &c]).await;
    let expected = [Presence::Waiting, Presence::Gone, Presence::Waiting];
    assert_eq!(touched.outcome.members, expected);
    assert_eq!(bench.look().await.state.queue, [a.into(), c.into(), Party::from(THREADS[0])]);
}

#[tokio::test]
async fn the_keys_of_a_queue_and_the_token_have_no_end_and_the_rest_has_one() {
    let mut bench = Bench::start().await;
    let (holder, reply) = bench.acquire(0).await;
    assert_eq!(reply.outcome, Acquired::Granted);
    let member = bench.queued(0).await;
    let [hold, queue, scores, token, alive, arrivals, _] = keys(bench.lock.as_str());
    // Another client's, such as a MultiLock's.
    for key in [&queue, &scores] {
        let () = bench.world.redis.ask(cmd("PEXPIRE").arg(key).arg(60_000)).await;
    }
    bench.touch(0, &member).await;
    for key in [&queue, &scores, &token] {
        assert_eq!(bench.world.redis.pttl(key).await, -1, "{key}");
    }
    for key in [&hold, &alive, &arrivals] {
        assert!(bench.world.redis.pttl(key).await > 0, "{key}");
    }
    bench.release(0, &holder).await;
    bench.release(0, &member).await;
    assert_eq!(bench.world.redis.keys("*").await, [token], "nothing else is left");
}

/// D3: what JVMs add at their enqueue is used up by a holder that takes longer; ours rises
/// meanwhile.
#[tokio::test]
async fn a_hold_of_400_s_leaves_a_waiter_enough_for_the_steps_of_those_ahead() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    bench.jvm_queues(THREADS[0], STEP).await;
    let member = bench.queued(1).await;
    let [_, _, scores, _, alive, ..] = keys(bench.lock.as_str());
    for _ in 0..100 {
        // Four seconds pass: every time that is stored is as much nearer.
        for (key, waiting) in
            [(&scores, THREADS[0]), (&scores, member.as_str()), (&alive, member.as_str())]
        {
            let mut pass = cmd("ZINCRBY");
            pass.arg(key).arg(-4_000).arg(waiting);
            let () = bench.world.redis.ask(&pass).await;
        }
        assert_eq!(bench.touch(1, &member).await, Presence::Waiting);
    }
    bench.jvm_head_goes(STEP as i64).await;
    let seen = bench.look().await;
    let score = seen.score(&member);
    assert!(score > seen.at_ms() + 200_000, "{} ms are left", score as i64 - seen.at_ms() as i64);
}
