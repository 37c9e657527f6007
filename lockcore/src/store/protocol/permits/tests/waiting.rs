//! Staying in the queue, and leaving it.

use super::*;

#[test]
fn a_touch_tells_who_waits_who_holds_and_who_is_gone() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&read('a', 1), &write('a', 2)]);
    lock.pass(1_000);
    let reply = lock.touch(&[&read('a', 1), &write('a', 2), &read('a', 3)]);
    let expected = [Presence::Holding, Presence::Waiting, Presence::Gone];
    assert_eq!(reply.outcome.members, expected);
    assert_eq!(reply.grants, [lock.grant(read('a', 1), LEASE - 1_000)]);
    assert_eq!(reply.outcome.listeners, 1);
    assert_eq!(lock.state.deadlines.get(&write('a', 2)), Some(lock.now() + PATIENCE_MS));
    lock.away = "a".into();
    assert_eq!(lock.touch(&[&read('a', 1)]).outcome.listeners, 0);
}

#[test]
fn a_hold_whose_lease_has_ended_is_gone_for_a_touch() {
    let mut lock = Bench::new();
    lock.acquire(&read('a', 1));
    lock.pass(LEASE);
    assert_eq!(lock.presence(&read('a', 1)), Presence::Gone);
}

#[test]
fn a_touch_hands_on_what_is_free_and_tells_it() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&with_lease('a', 1, 1_000, Demand::WRITE), &write('b', 1)]);
    lock.pass(1_000);
    let reply = lock.touch(&[&write('b', 1)]);
    assert_eq!(reply.outcome.members, [Presence::Waiting]);
    assert_eq!(reply.grants, [lock.grant(write('b', 1), CLAIM)]);
    assert_eq!(lock.presence(&write('b', 1)), Presence::Holding);
}

#[test]
fn a_touch_revives_a_waiter_whose_patience_has_ended_and_drops_the_other_dead() {
    let mut lock = Bench::new();
    let holder = with_lease('a', 1, 600_000, Demand::WRITE);
    lock.acquire_all(&[&holder, &write('b', 1), &write('g', 1)]);
    lock.pass(PATIENCE_MS);
    assert_eq!(lock.presence(&write('b', 1)), Presence::Waiting);
    assert_eq!(lock.waiting(), [write('b', 1)]);
}

#[test]
fn a_touch_that_runs_after_a_leave_revives_nothing() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('b', 1)]);
    lock.leave(&read('b', 1), false);
    assert_eq!(lock.presence(&read('b', 1)), Presence::Gone);
    assert!(lock.state.deadlines.is_empty() && lock.state.queue.is_empty());
}

#[test]
fn the_sweep_drops_sixteen_at_a_time() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 600_000, Demand::WRITE));
    lock.acquire(&write('b', 1));
    for number in 0..20 {
        lock.acquire(&read('g', number));
    }
    lock.pass(10_000);
    lock.touch(&[&write('b', 1)]);
    lock.pass(5_000);
    lock.touch(&[&write('b', 1)]);
    assert_eq!(lock.waiting().len(), 5);
}

#[test]
fn a_leave_takes_out_waiters_and_holders_and_tells_which_were_there() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&read('a', 1), &write('a', 2)]);
    let leaving = [read('a', 1), write('a', 2), read('a', 3)]
        .map(|member| Leaving { member, ambiguous: false });
    let command = Command::Leave { leaving: leaving.to_vec() };
    let Answer::Left(reply) = lock.run('a', &command) else { unreachable!() };
    assert_eq!(reply.outcome, [Left::Left, Left::Left, Left::Absent]);
    assert_eq!((lock.state.used, lock.holders(), lock.waiting()), (Some(0), vec![], vec![]));
}

#[test]
fn an_attempt_that_was_granted_and_given_up_is_refused_when_its_copy_arrives() {
    let mut lock = Bench::new();
    lock.acquire(&read('a', 1));
    assert_eq!(lock.leave(&read('a', 1), true).outcome, [Left::Left]);
    assert_eq!(lock.acquire(&read('a', 1)).outcome, Acquired::Refused);
    assert_eq!(lock.state.used, Some(0));
}

#[test]
fn whoever_is_passed_over_costs_nothing_once_five_seconds_are_over() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    for number in 0..100 {
        lock.acquire(&read('g', number));
    }
    lock.acquire(&write('b', 1));
    lock.away = "g".into();
    assert_eq!(lock.release(&write('a', 1)).passed_over, 100);
    lock.pass(PASSED_OVER_MS);
    assert_eq!(lock.release(&write('b', 1)).passed_over, 0);
    assert_eq!(lock.waiting(), []);
}

#[test]
fn a_waiter_that_is_passed_over_and_comes_back_has_kept_its_place() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &write('g', 1), &write('b', 1), &write('c', 1)]);
    lock.away = "g".into();
    lock.release(&write('a', 1));
    lock.away.clear();
    lock.presence(&write('g', 1));
    lock.release(&write('b', 1));
    assert_eq!(lock.holders(), [write('g', 1)]);
}
