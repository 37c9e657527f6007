//! The scores that JVMs use to decide who keeps the position, and for how long.

use proto::Party;

use crate::bench::Bench;
use crate::facts;
use crate::thread::{STEP_MS, THREADS};

facts! {
    redisson: [
        a_newcomer_s_score_bears_every_step_that_those_ahead_may_subtract,
        a_newcomer_builds_no_more_than_an_hour_on_the_score_of_the_last,
        turns_of_ours_and_of_jvms_do_not_push_the_scores_into_the_future,
        a_score_rises_with_the_time_and_is_short_where_no_jvm_stands_before_us,
        a_jvm_that_built_its_score_on_a_short_one_of_ours_does_not_run_out_of_it_behind_us,
        dead_entries_that_were_dropped_do_not_push_the_scores_into_the_future,
        a_hold_of_400_s_leaves_a_waiter_enough_for_the_steps_of_those_ahead,
    ],
}

const STEP: i64 = STEP_MS as i64;

async fn a_newcomer_s_score_bears_every_step_that_those_ahead_may_subtract(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    // They add a second each, and subtract five minutes each.
    for thread in THREADS {
        bench.jvm_queues(thread, 1_000).await;
    }
    let member = b.queue(30_000).await;
    for _ in THREADS {
        bench.head_goes(STEP_MS).await;
    }
    let left_ms = bench.score(&member).await;
    assert!(left_ms > STEP, "{left_ms} ms are left");
    assert_eq!(bench.holder().await, Some(holder));
}

async fn a_newcomer_builds_no_more_than_an_hour_on_the_score_of_the_last(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    bench.jvm_queues(THREADS[0], STEP_MS).await;
    // The remaining lease, a step for the JVM, and a step for our member.
    let enough_ms = 30_000 + 2 * STEP;
    for (last_ms, expected_ms) in [
        (1_000, enough_ms),
        (enough_ms + 7_000, enough_ms + 7_000),
        (90_000_000, enough_ms + 3_600_000),
    ] {
        bench.set_score(THREADS[0], last_ms as u64).await;
        let newcomer = b.queue(30_000).await;
        let score_ms = bench.score(&newcomer).await;
        assert!((expected_ms - 3_000..=expected_ms).contains(&score_ms), "{score_ms} ms");
        b.leave(&newcomer).await;
    }
}

async fn turns_of_ours_and_of_jvms_do_not_push_the_scores_into_the_future(mut bench: Bench) {
    let a = bench.node().await;
    let mut holder = a.hold(30_000).await;
    let mut waiting = a.queue(30_000).await;
    for round in 0..50 {
        bench.jvm_queues(&format!("{}{round}", THREADS[0]), STEP_MS).await;
        let next = a.queue(30_000).await;
        a.release(&holder).await;
        holder = waiting;
        // The JVM's turn comes and goes.
        bench.head_goes(STEP_MS).await;
        waiting = next;
    }
    let (mut state, now_ms) = bench.state().await;
    let (greatest, _) = state.of_redisson().deadlines.greatest().expect("one waits");
    assert!(greatest < now_ms + 4 * STEP_MS, "{} ms ahead", greatest - now_ms);
}

async fn a_score_rises_with_the_time_and_is_short_where_no_jvm_stands_before_us(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let head = a.queue(30_000).await;
    bench.jvm_queues(THREADS[0], 1_000).await;
    let second = b.queue(30_000).await;
    // Ten seconds pass without a touch.
    for member in [&head, &second] {
        bench.set_patience(member, 5_000).await;
    }
    let before = bench.score(&second).await;
    b.touch(&[&second]).await;
    a.touch(&[&head]).await;
    let risen = bench.score(&second).await - before;
    assert!((9_000..20_000).contains(&risen), "{risen} ms");
    let is_short = |score_ms: i64| (50_000..=60_000).contains(&score_ms);
    assert!(is_short(bench.score(&head).await));
    // Once the JVM has gone, neither has an entry before it that subtracts.
    bench.set_score(&head, 700_000).await;
    bench
        .change(|state, _| {
            let state = state.of_redisson();
            let thread = Party::from(THREADS[0]);
            state.queue.retain(|party| *party != thread);
            state.deadlines.remove(&thread);
        })
        .await;
    b.touch(&[&second]).await;
    a.touch(&[&head]).await;
    for member in [&head, &second] {
        assert!(is_short(bench.score(member).await));
    }
}

async fn a_jvm_that_built_its_score_on_a_short_one_of_ours_does_not_run_out_of_it_behind_us(
    mut bench: Bench,
) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let first = a.queue(30_000).await;
    a.touch(&[&first]).await;
    for thread in THREADS {
        bench.jvm_queues(thread, 10_000).await;
    }
    a.touch(&[&first]).await;
    assert!(bench.score(THREADS[0]).await > STEP - 10_000, "the next is raised");
    assert!(bench.score(THREADS[1]).await < 100_000, "and no other");
    // Once the member is first itself, its score is left to the sums of JVMs.
    a.leave(&first).await;
    let waiting = a.queue(30_000).await;
    bench.set_score(THREADS[0], 20_000).await;
    a.touch(&[&waiting]).await;
    assert!(bench.score(THREADS[0]).await <= 20_000);
}

// Each dead entry has added five minutes, and nothing subtracts them when the entry is dropped.
async fn dead_entries_that_were_dropped_do_not_push_the_scores_into_the_future(mut bench: Bench) {
    let a = bench.node().await;
    let _thread = bench.listen(THREADS[0]).await;
    bench.jvm_holds(THREADS[0], Some(30_000)).await;
    let mut waiting = a.queue(30_000).await;
    for round in 0..60 {
        // The queue always contains a JVM, so that there is always a score to build on.
        bench.jvm_queues(&format!("{}{round}", THREADS[1]), STEP_MS).await;
        bench.jvm_queues(THREADS[0], STEP_MS).await;
        let next = a.queue(30_000).await;
        bench.change(|state, _| state.of_redisson().hold = None).await;
        a.touch(&[&waiting]).await;
        a.release(&waiting).await;
        bench.age_suspects(8_000).await;
        a.touch(&[&next]).await;
        let left = [Party::from(THREADS[0]), Party::from(&next)];
        assert_eq!(bench.parties().await, left, "the dead entry is dropped");
        bench.head_goes(STEP_MS).await;
        bench.jvm_holds(THREADS[0], Some(30_000)).await;
        waiting = next;
    }
    let score_ms = bench.score(&waiting).await;
    assert!((STEP + 1..16 * STEP).contains(&score_ms), "{score_ms} ms ahead");
}

// D3: a longer hold uses up the time that JVMs add when they enqueue; our score rises meanwhile.
async fn a_hold_of_400_s_leaves_a_waiter_enough_for_the_steps_of_those_ahead(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    bench.jvm_queues(THREADS[0], STEP_MS).await;
    let member = b.queue(30_000).await;
    for _ in 0..100 {
        // Four seconds pass; the holder renews.
        bench.pass(4_000).await;
        bench.change(|state, now_ms| state.set_lease_end(Some(now_ms + 30_000))).await;
        b.touch(&[&member]).await;
    }
    bench.head_goes(STEP_MS).await;
    let left_ms = bench.score(&member).await;
    assert!(left_ms > 200_000, "{left_ms} ms are left");
}
