//! The scores by which JVMs judge, whom they throw out, and threads that are gone.

use super::*;
use crate::redisson::peers::{JVM_STEP_MS, SHORT_SCORE_MS, SLACK_MS};

/// A thread of a JVM queues, with five minutes of patience.
fn queue_thread(lock: &mut Bench, member: &Party) {
    let last = lock.state.queue.back().and_then(|last| lock.state.deadlines.get(last));
    let score_ms = last.unwrap_or(lock.now()) + 300_000;
    lock.queue_foreign(member, score_ms);
}

#[test]
fn threads_of_a_jvm_that_is_gone_cost_one_grace_and_a_late_one_has_its_own() {
    let mut lock = Bench::new();
    let (holder, ours) = (member('a', 1), member('b', 1));
    lock.acquire(&holder);
    queue_thread(&mut lock, &jvm(1));
    queue_thread(&mut lock, &jvm(2));
    lock.release(&holder);
    lock.pass(5_000);
    queue_thread(&mut lock, &jvm(3));
    lock.acquire(&ours);
    lock.pass(2_999);
    lock.touch(&[&ours]);
    assert_eq!(lock.state.queue.len(), 4);
    lock.pass(1);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(3), ours.clone()]);
    lock.pass(5_000);
    lock.touch(&[&ours]);
    assert_eq!(lock.state.hold.expect("none is before it").member, ours);
}

#[test]
fn a_thread_that_hears_keeps_its_place_and_ends_all_suspicion() {
    let mut lock = Bench::new();
    let (holder, ours) = (member('a', 1), member('b', 1));
    lock.acquire(&holder);
    queue_thread(&mut lock, &jvm(1));
    lock.acquire(&ours);
    lock.release(&holder);
    lock.heard.push(jvm(1));
    lock.pass(8_000);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(1), ours.clone()]);
    lock.heard.clear();
    lock.touch(&[&ours]);
    lock.pass(7_999);
    lock.touch(&[&ours]);
    assert_eq!(lock.waiting(), [jvm(1), ours]);
}

#[test]
fn all_whom_a_jvm_threw_out_come_back_with_the_first_touch_in_the_order_in_which_they_came() {
    let mut lock = Bench::new();
    lock.acquire(&member('c', 9));
    let ours = [member('a', 1), member('b', 1), member('a', 2), member('b', 2)];
    for waiting in &ours {
        lock.acquire(waiting);
    }
    queue_thread(&mut lock, &jvm(1));
    for _ in &ours {
        let head = lock.state.queue.pop_front().expect("queued");
        lock.state.deadlines.remove(&head);
    }
    assert_eq!(lock.touch(&[&ours[1], &ours[3]]).outcome.members, [Presence::Waiting; 2]);
    assert_eq!(lock.waiting()[..4], ours);
    assert_eq!(lock.waiting()[4], jvm(1));
    // Not who has left, or has not been heard of for too long.
    lock.state.queue.clear();
    lock.state.deadlines.clear();
    lock.leave(&ours[0], false);
    lock.pass(PATIENCE_MS - 1);
    lock.touch(&[&ours[1]]);
    assert_eq!(lock.waiting(), ours[1..]);
    lock.state.queue.clear();
    lock.state.deadlines.clear();
    lock.pass(1);
    lock.touch(&[&ours[1]]);
    assert_eq!(lock.waiting(), ours[1..2]);
}

#[test]
fn a_newcomer_builds_no_more_than_an_hour_on_the_score_of_the_last() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    queue_thread(&mut lock, &jvm(1));
    let enough_ms = START + LEASE + 2 * JVM_STEP_MS;
    for (last_ms, expected_ms) in [
        (START + 1_000, enough_ms),
        (enough_ms + 7, enough_ms + 7),
        (START + 90_000_000, enough_ms + SLACK_MS),
    ] {
        let newcomer = member('b', last_ms);
        lock.state.deadlines.set(&jvm(1), last_ms);
        lock.acquire(&newcomer);
        assert_eq!(lock.score(&newcomer), expected_ms);
        lock.state.drop_waiting(&newcomer);
    }
}

#[test]
fn a_score_is_short_where_no_jvm_stands_before_us_and_the_next_jvm_s_does_not_run_out() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    let (first, second, third) = (member('b', 1), member('b', 2), member('b', 3));
    lock.acquire(&first);
    lock.acquire(&second);
    for (number, score_ms) in [(1, 90_000), (2, 100_000)] {
        queue_thread(&mut lock, &jvm(number));
        lock.state.deadlines.set(&jvm(number), START + score_ms);
    }
    lock.acquire(&third);
    lock.touch(&[&first, &second, &third]);
    let score = |member: &Party| lock.score(member) - START;
    assert_eq!([score(&first), score(&second)], [SHORT_SCORE_MS; 2]);
    assert_eq!([score(&jvm(1)), score(&jvm(2))], [JVM_STEP_MS, 100_000]);
    assert!(score(&third) > 2 * JVM_STEP_MS);
}
