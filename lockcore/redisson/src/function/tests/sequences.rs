//! Sequences of commands that broke an earlier draft of the protocol.

use super::*;

#[test]
fn a_retried_acquire_does_not_count_its_lease_from_the_retry() {
    let mut lock = Bench::new();
    let a = member_with_lease('a', 1, 1_000);
    lock.acquire(&a);
    lock.pass(800);
    assert_eq!(left(&lock.acquire(&a)), 200);
}

#[test]
fn the_claim_is_the_grantees_not_that_of_the_one_who_releases() {
    let mut lock = Bench::new();
    let a = member_with_lease('a', 1, 3_000);
    let b = member_with_lease('b', 1, 24_000);
    lock.acquire(&a);
    lock.acquire(&b);
    assert_eq!(left(&lock.release(&a)), 8_000);
}

#[test]
fn a_member_whose_claim_has_ended_is_gone_and_a_late_push_finds_another_holder() {
    let mut lock = Bench::new();
    let b = member('b', 1);
    let c = member('c', 1);
    lock.acquire(&member('a', 1));
    lock.acquire(&b);
    lock.acquire(&c);
    lock.release(&member('a', 1));
    let first = lock.token();
    lock.pass(CLAIM);
    lock.touch(&[&c]);
    assert!(lock.token() > first);
    assert_eq!(lock.presence(&b), Presence::Gone);
    // The attempt continues under a new id, at the end.
    assert_eq!(lock.acquire(&member('b', 2)).outcome, queued(0));
    assert_eq!(lock.holder(), Some(&c));
}

#[test]
fn an_acquire_that_a_leave_has_overtaken_is_never_granted() {
    let mut lock = Bench::new();
    let a = member('a', 1);
    assert_eq!(lock.leave(&a, true).outcome, [Left::Absent]);
    assert_eq!(lock.acquire(&a).outcome, Acquired::Refused);
    assert_eq!((lock.holder(), lock.waiting()), (None, vec![]));
}

#[test]
fn a_second_copy_of_an_acquire_that_was_granted_and_given_up_is_refused() {
    let mut lock = Bench::new();
    let a = member('a', 1);
    lock.acquire(&a);
    assert_eq!(lock.leave(&a, true).outcome, [Left::Left]);
    assert_eq!(lock.acquire(&a).outcome, Acquired::Refused);
}

#[test]
fn a_token_given_out_with_the_clock_ahead_is_not_followed_by_a_lower_one() {
    const YEAR: u64 = 365 * 24 * 3_600_000;
    let mut lock = Bench::new();
    lock.pass(YEAR);
    lock.acquire(&member('a', 1));
    let ahead = lock.token();
    lock.release(&member('a', 1));
    lock.now_us -= YEAR * 1_000;
    for hours in [1, 24, 300 * 24] {
        lock.pass(hours * 3_600_000);
        lock.acquire(&member('a', hours + 1));
        assert!(lock.token() > ahead, "{hours} h later");
        lock.release(&member('a', hours + 1));
    }
}

#[test]
fn a_lock_without_an_end_does_not_stay_locked_for_ever() {
    let mut lock = Bench::new();
    let b = member('b', 1);
    lock.state.hold = Some(Hold { member: member('a', 1), expires_ms: None });
    lock.acquire(&b);
    for _ in 0..3 {
        lock.pass(10_000);
        lock.touch(&[&b]);
    }
    assert_eq!(lock.holder(), Some(&b));
}

#[test]
fn ghosts_behind_a_live_head_neither_fill_the_queue_nor_stay() {
    let mut lock = Bench::new();
    let holder = member_with_lease('a', 1, 600_000);
    let head = member('b', 1);
    lock.acquire(&holder);
    lock.acquire(&head);
    for number in 0..9 {
        lock.acquire(&member('g', number));
    }
    lock.pass(10_000);
    lock.touch(&[&head]);
    lock.pass(6_000);
    assert_eq!(lock.acquire_as(&member('c', 1), Mode::Wait, 10).outcome, queued(1));
    assert_eq!(lock.waiting(), [head, member('c', 1)]);
}

#[test]
fn a_free_lock_with_a_queue_of_the_dead_is_neither_busy_nor_full() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut lock = Bench::new();
        lock.acquire(&member_with_lease('g', 1, 1_000));
        for number in 2..12 {
            lock.acquire(&member('g', number));
        }
        lock.away = "g".into();
        lock.pass(1_000);
        assert_eq!(lock.acquire_as(&member('c', 1), mode, 5).outcome, Acquired::Granted);
    }
}

#[test]
fn a_retried_release_tells_again_who_was_granted() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    lock.acquire(&member('a', 2));
    let first = lock.release(&member('a', 1));
    let again = lock.release(&member('a', 1));
    assert_eq!((again.outcome, left(&again)), (Released::NotHeld, CLAIM));
    assert_eq!(again.grants, first.grants);
    assert_eq!(again.grants[0].member, ours(&member('a', 2)));
}

#[test]
fn passing_over_costs_no_more_once_five_seconds_are_over() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    for number in 0..100 {
        lock.acquire(&member('g', number));
    }
    lock.acquire(&member('b', 1));
    lock.away = "g".into();
    lock.release(&member('a', 1));
    assert_eq!(lock.waiting().len(), 100);
    lock.pass(SKIPPED_MS);
    lock.release(&member('b', 1));
    assert!(lock.waiting().is_empty());
}

#[test]
fn a_touch_that_runs_after_a_leave_revives_nothing() {
    let mut lock = Bench::new();
    let b = member('b', 1);
    lock.acquire(&member('a', 1));
    lock.acquire(&b);
    lock.leave(&b, false);
    assert_eq!(lock.presence(&b), Presence::Gone);
    assert!(lock.state.deadlines.is_empty() && lock.waiting().is_empty());
}
