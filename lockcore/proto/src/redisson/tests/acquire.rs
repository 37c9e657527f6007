//! Acquire, rule by rule.

use super::*;

#[test]
fn a_free_lock_without_a_queue_is_granted_for_the_full_lease() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    let reply = lock.acquire(&a);
    assert_eq!((reply.outcome, left(&reply)), (Acquired::Granted, LEASE));
    let grant = &reply.grants[0];
    assert_eq!((grant.member.clone(), grant.token.get()), (ours(&a), lock.now_us));
    assert_eq!(lock.said(), []);
}

#[test]
fn a_member_that_holds_already_is_told_so_with_the_same_token_and_what_is_left() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    let first = lock.acquire(&a);
    lock.pass(12_000);
    let again = lock.acquire(&a);
    assert_eq!((again.outcome, left(&again)), (Acquired::Granted, LEASE - 12_000));
    assert_eq!(again.grants[0].member, first.grants[0].member);
    assert_eq!(again.grants[0].token, first.grants[0].token);
}

#[test]
fn a_held_lock_is_queued_for_and_positions_count_from_zero() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    for (position, number) in (0..3).zip(1..) {
        let reply = lock.acquire(&member('b', number));
        assert_eq!((reply.outcome, left(&reply), reply.grants), (queued(position), LEASE, vec![]));
    }
    assert_eq!(lock.deadline(&member('b', 1)), lock.now() + PATIENCE_MS);
}

#[test]
fn asking_again_from_the_queue_keeps_the_place_and_raises_the_deadline() {
    let (mut lock, b) = (Bench::new(), member('b', 1));
    lock.acquire(&member('a', 1));
    lock.acquire(&b);
    lock.acquire(&member('c', 1));
    lock.pass(4_000);
    // Rule 4 stands before rules 5 and 6: neither the mode nor the limit matters any more.
    for mode in [Mode::Wait, Mode::Try] {
        assert_eq!(lock.acquire_as(&b, mode, 1).outcome, queued(0));
    }
    assert_eq!(lock.deadline(&b), lock.now() + PATIENCE_MS);
    assert_eq!(lock.waiting().len(), 2);
}

#[test]
fn try_on_a_held_lock_is_busy_and_leaves_no_trace() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    let before = lock.state.clone();
    assert_eq!(lock.acquire_as(&member('b', 1), Mode::Try, MANY).outcome, Acquired::Busy);
    assert_eq!(lock.state, before);
}

#[test]
fn the_queue_limit_counts_live_waiters_and_the_full_answer_changes_nothing() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    lock.acquire(&member('b', 1));
    lock.pass(1);
    lock.acquire(&member('c', 1));
    let before = lock.state.clone();
    assert_eq!(lock.acquire_as(&member('d', 1), Mode::Wait, 2).outcome, Acquired::Full);
    assert_eq!(lock.state, before);
    // The very ms in which its deadline is reached, a waiter is not live any more.
    lock.pass(PATIENCE_MS - 1);
    assert_eq!(lock.acquire_as(&member('d', 1), Mode::Wait, 2).outcome, queued(1));
    assert_eq!(lock.waiting(), [member('c', 1), member('d', 1)]);
}

#[test]
fn a_tombstone_refuses_even_a_free_lock_until_it_expires() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.leave(&a, true);
    lock.pass(TOMBSTONE_MS - 1);
    let reply = lock.acquire(&a);
    assert_eq!((reply.outcome, left(&reply), reply.grants), (Acquired::Refused, 0, vec![]));
    lock.pass(1);
    assert_eq!(lock.acquire(&a).outcome, Acquired::Granted);
}

#[test]
fn a_newcomer_finds_a_free_lock_with_a_live_waiter_and_hands_it_over() {
    for mode in [Mode::Try, Mode::Wait] {
        let (mut lock, b) = (Bench::new(), member('b', 1));
        lock.acquire(&member_with_lease('a', 1, 5_000));
        lock.acquire(&b);
        lock.pass(5_000);
        let reply = lock.acquire_as(&member('c', 1), mode, MANY);
        let outcome = if mode == Mode::Try { Acquired::Busy } else { queued(0) };
        assert_eq!((reply.outcome, left(&reply)), (outcome, CLAIM));
        assert_eq!(lock.holder(), Some(&b));
        assert!(matches!(&lock.said()[..], [Message::Grant { member, .. }] if b == *member));
    }
}

#[test]
fn a_waiter_that_asks_again_at_its_turn_is_granted_its_claim_without_a_message() {
    let (mut lock, b) = (Bench::new(), member('b', 1));
    lock.acquire(&member_with_lease('a', 1, 5_000));
    lock.acquire(&b);
    lock.pass(5_000);
    let reply = lock.acquire(&b);
    assert_eq!((reply.outcome, left(&reply)), (Acquired::Granted, CLAIM));
    assert_eq!(b, reply.grants[0].member);
    assert_eq!(lock.said(), []);
    assert!(lock.waiting().is_empty() && lock.state.deadlines.is_empty());
}

#[test]
fn behind_waiters_that_cannot_take_it_the_caller_gets_the_full_lease() {
    for mode in [Mode::Try, Mode::Wait] {
        let (mut lock, c) = (Bench::new(), member('c', 1));
        lock.acquire(&member_with_lease('a', 1, 5_000));
        lock.acquire(&member('b', 1));
        lock.away = "b".into();
        lock.pass(5_000);
        let reply = lock.acquire_as(&c, mode, 1);
        assert_eq!((reply.outcome, left(&reply)), (Acquired::Granted, LEASE));
        assert_eq!(lock.waiting(), [member('b', 1)]);
    }
}

#[test]
fn nobody_is_granted_past_a_foreign_member() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut lock = Bench::new();
        lock.queue_foreign(&jvm(1), lock.now() + 300_000);
        let reply = lock.acquire_as(&member('c', 1), mode, MANY);
        let outcome = if mode == Mode::Try { Acquired::Busy } else { queued(1) };
        assert_eq!((reply.outcome, left(&reply)), (outcome, 0));
        assert_eq!(lock.said(), [Message::Poke { member: jvm(1) }]);
        assert_eq!(lock.holder(), None);
    }
}

#[test]
fn a_foreign_holder_is_told_of() {
    let mut lock = Bench::new();
    lock.state.hold = Some(Hold { member: jvm(1), expires_ms: Some(lock.now() + 700) });
    let reply = lock.acquire(&member('a', 1));
    assert_eq!((reply.outcome, left(&reply)), (queued(0), 700));
    assert_eq!(reply.grants, []);
}
