//! Who keeps the place, and for how long: scores, our own deadlines, and getting back in.

use lockcore::internals::{Acquired, Member, Presence};
use redis::cmd;

use crate::bench::Bench;
use crate::snapshot::keys;
use crate::world::THREADS;

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
    let score = seen.state.deadlines.get(&member).expect("it waits");
    assert!(score > seen.at_ms + STEP, "{} ms are left", score as i64 - seen.at_ms as i64);
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
    assert!(greatest < seen.at_ms + 4 * STEP, "{} ms ahead", greatest - seen.at_ms);
}

#[tokio::test]
async fn a_score_rises_with_the_time_and_the_head_s_is_short_when_somebody_stands_behind() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    let (head, second) = (bench.queued(0).await, bench.queued(1).await);
    let [_, _, scores, _, alive, _] = keys(bench.lock.as_str());
    // Ten seconds pass without a touch.
    let seen = bench.look().await;
    for member in [&head, &second] {
        let lived = seen.state.alive.get(member).expect("alive") - 10_000;
        let () =
            bench.world.redis.ask(cmd("ZADD").arg(&alive).arg(lived).arg(member.as_str())).await;
    }
    let before = seen.state.deadlines.get(&second).expect("it waits");
    assert_eq!(bench.touch(1, &second).await, Presence::Waiting);
    assert_eq!(bench.touch(0, &head).await, Presence::Waiting);
    let seen = bench.look().await;
    let after = seen.state.deadlines.get(&second).expect("it waits");
    assert!((10_000..20_000).contains(&(after - before)), "{}", after - before);
    let score = seen.state.deadlines.get(&head).expect("it waits");
    assert!((seen.at_ms + 50_000..=seen.at_ms + 60_000).contains(&score));
    // Alone, its score is what newcomers build on, and is not lowered.
    let () = bench.world.redis.ask(cmd("ZADD").arg(&scores).arg(after).arg(head.as_str())).await;
    let leaving = lockcore::internals::Leaving { member: second, ambiguous: false };
    bench.node(1).store.leave(&bench.lock, vec![leaving]).await.expect("answered");
    assert_eq!(bench.touch(0, &head).await, Presence::Waiting);
    assert!(bench.look().await.state.deadlines.get(&head).expect("it waits") >= after);
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
    let leaving = lockcore::internals::Leaving { member: b.clone(), ambiguous: false };
    bench.node(0).store.leave(&bench.lock, vec![leaving]).await.expect("answered");
    let members = vec![a.clone(), b, c.clone()];
    let touched = bench.node(0).store.touch(&bench.lock, members).await.expect("answered");
    let expected = [Presence::Waiting, Presence::Gone, Presence::Waiting];
    assert_eq!(touched.outcome.members, expected);
    assert_eq!(bench.look().await.state.queue, [a, c, Member::from(THREADS[0])]);
}

#[tokio::test]
async fn the_keys_of_a_queue_and_the_token_have_no_end_and_the_rest_has_one() {
    let mut bench = Bench::start().await;
    let (holder, reply) = bench.acquire(0).await;
    assert_eq!(reply.outcome, Acquired::Granted);
    let member = bench.queued(0).await;
    let [hold, queue, scores, token, alive, _] = keys(bench.lock.as_str());
    // Another client's, such as a MultiLock's.
    for key in [&queue, &scores] {
        let () = bench.world.redis.ask(cmd("PEXPIRE").arg(key).arg(60_000)).await;
    }
    bench.touch(0, &member).await;
    for key in [&queue, &scores, &token] {
        assert_eq!(bench.world.redis.pttl(key).await, -1, "{key}");
    }
    for key in [&hold, &alive] {
        assert!(bench.world.redis.pttl(key).await > 0, "{key}");
    }
    bench.release(0, &holder).await;
    bench.release(0, &member).await;
    assert_eq!(bench.world.redis.keys("*").await, [token], "nothing else is left");
}

/// D3: what JVMs add at their enqueue is used up by a holder that takes longer; ours rises meanwhile.
#[tokio::test]
async fn a_hold_of_400_s_leaves_a_waiter_enough_for_the_steps_of_those_ahead() {
    let mut bench = Bench::start().await;
    bench.acquire(0).await;
    bench.jvm_queues(THREADS[0], STEP).await;
    let member = bench.queued(1).await;
    let [_, _, scores, _, alive, _] = keys(bench.lock.as_str());
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
    let score = seen.state.deadlines.get(&member).expect("it waits");
    assert!(score > seen.at_ms + 200_000, "{} ms are left", score as i64 - seen.at_ms as i64);
}
