//! Notifying JVMs to try again, and JVMs that do not receive the notification.

use proto::Party;

use crate::bench::Bench;
use crate::facts;
use crate::thread::{STEP_MS, THREADS};

facts! {
    redisson: [
        a_jvm_that_does_not_hear_has_eight_seconds_and_one_that_does_keeps_its_position,
        a_thread_at_the_head_that_is_heard_of_ends_all_suspicion,
        a_thread_that_queues_again_is_not_taken_for_the_one_that_it_was,
        a_thread_that_queued_after_a_ghost_of_its_jvm_was_found_out_has_its_own_eight_seconds,
        a_suspect_is_remembered_between_two_tries_that_are_minutes_apart,
        a_suspect_that_is_heard_of_again_has_its_eight_seconds_anew,
        a_suspect_from_before_the_clock_was_set_back_is_dropped_after_eight_seconds,
        a_jvm_behind_a_member_that_is_skipped_is_told_when_that_one_is_gone,
        a_deaf_node_s_member_is_skipped_for_five_seconds_and_keeps_its_score,
    ],
}

async fn a_jvm_that_does_not_hear_has_eight_seconds_and_one_that_does_keeps_its_position(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut thread = bench.listen(THREADS[0]).await;
    let holder = a.hold(30_000).await;
    for member in [THREADS[1], THREADS[2], THREADS[0]] {
        bench.jvm_queues(member, STEP_MS).await;
    }
    let waiting = b.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(bench.pokes(&mut thread).await, 0);
    b.touch(&[&waiting]).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    for (ms, count) in [(7_000, 4), (1_000, 2), (52_000, 2)] {
        bench.age_suspects(ms).await;
        b.touch(&[&waiting]).await;
        // Both threads of the JVM that is gone, and then no thread beyond the subscribed thread.
        assert_eq!(bench.parties().await.len(), count, "{ms} ms later");
    }
    assert_eq!(bench.holding().await, None);
    assert_eq!(bench.suspects().await, [] as [&str; 0]);
    assert!(bench.pokes(&mut thread).await >= 2);
}

async fn a_thread_at_the_head_that_is_heard_of_ends_all_suspicion(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS).await;
    let waiting = b.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    let thread = bench.listen(THREADS[1]).await;
    bench.age_suspects(8_000).await;
    b.touch(&[&waiting]).await;
    bench.deafen(thread).await;
    b.touch(&[&waiting]).await;
    bench.age_suspects(7_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.parties().await, [Party::from(THREADS[1]), Party::from(&waiting)]);
    bench.age_suspects(1_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.holder().await, Some(waiting));
}

async fn a_thread_that_queues_again_is_not_taken_for_the_one_that_it_was(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS).await;
    let waiting = a.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    // It subscribed late, acquired and released the lock, and returns after nine seconds.
    bench.head_goes(STEP_MS).await;
    a.touch(&[&waiting]).await;
    bench.age_suspects(9_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS + 5).await;
    a.release(&waiting).await;
    assert_eq!(bench.parties().await.len(), 1, "it has its time to subscribe");
}

async fn a_thread_that_queued_after_a_ghost_of_its_jvm_was_found_out_has_its_own_eight_seconds(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS).await;
    a.release(&holder).await;
    bench.age_suspects(5_000).await;
    bench.jvm_queues(THREADS[2], STEP_MS).await;
    let waiting = b.queue(30_000).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    bench.age_suspects(3_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.parties().await, [Party::from(THREADS[2]), Party::from(&waiting)]);
    bench.age_suspects(5_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.holder().await, Some(waiting), "none is before it");
}

async fn a_suspect_is_remembered_between_two_tries_that_are_minutes_apart(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS).await;
    a.release(&holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    bench.pass(STEP_MS / 2).await;
    a.hold(30_000).await;
}

async fn a_suspect_that_is_heard_of_again_has_its_eight_seconds_anew(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    for member in [THREADS[1], THREADS[2]] {
        bench.jvm_queues(member, STEP_MS).await;
    }
    let waiting = b.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(bench.suspects().await, [THREADS[1], THREADS[2]]);
    bench.age_suspects(7_000).await;
    let thread = bench.listen(THREADS[2]).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.suspects().await, [THREADS[1]]);
    bench.deafen(thread).await;
    bench.age_suspects(1_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.parties().await, [Party::from(THREADS[2]), Party::from(waiting)]);
}

async fn a_suspect_from_before_the_clock_was_set_back_is_dropped_after_eight_seconds(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.jvm_queues(THREADS[1], STEP_MS).await;
    let waiting = b.queue(30_000).await;
    a.release(&holder).await;
    bench
        .change(|state, now_ms| {
            let since_ms = &mut state.of_redisson().suspects.since_ms;
            since_ms.values_mut().for_each(|since| *since = now_ms + 60_000);
        })
        .await;
    b.touch(&[&waiting]).await;
    bench.age_suspects(8_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.holder().await, Some(waiting));
}

async fn a_jvm_behind_a_member_that_is_skipped_is_told_when_that_one_is_gone(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut thread = bench.listen(THREADS[0]).await;
    let holder = a.hold(30_000).await;
    let deaf = bench.plant_dead(1).await.remove(0);
    bench.jvm_queues(THREADS[0], STEP_MS).await;
    let waiting = b.queue(30_000).await;
    a.release(&holder).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.pokes(&mut thread).await, 0);
    bench.end_patience(&deaf).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.pokes(&mut thread).await, 1);
}

async fn a_deaf_node_s_member_is_skipped_for_five_seconds_and_keeps_its_score(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let deaf = Party::from(bench.plant_dead(1).await.remove(0));
    let near = b.queue(30_000).await;
    let (mut before, _) = bench.state().await;
    a.release(&holder).await;
    let (mut after, _) = bench.state().await;
    assert_eq!(bench.holder().await, Some(near));
    assert_eq!(after.of_redisson().deadlines.get(&deaf), before.of_redisson().deadlines.get(&deaf));
    let patience_ms = bench.patience(deaf).await.expect("still believed alive");
    assert!((4_000..=5_000).contains(&patience_ms), "{patience_ms} ms");
}
