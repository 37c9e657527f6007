//! Taking, and asking again.

use super::*;

fn granted(reply: &Reply<Acquired>) -> Vec<(Member, u64)> {
    assert_eq!(reply.outcome, Acquired::Granted);
    reply.grants.iter().map(|grant| (grant.member.clone(), grant.left_ms)).collect()
}

#[test]
fn what_fits_is_granted_its_full_lease() {
    let mut lock = Bench::new();
    let reply = lock.acquire(&write('a', 1));
    assert_eq!(granted(&reply), [(write('a', 1), LEASE)]);
    assert_eq!(reply.first_end_ms, Some(LEASE));
    assert_eq!(reply.grants[0].token.get(), lock.now_us);
}

#[test]
fn readers_join_each_other_and_a_writer_joins_no_one() {
    let mut lock = Bench::new();
    assert_eq!(lock.acquire(&read('a', 1)).outcome, Acquired::Granted);
    assert_eq!(lock.acquire(&read('b', 1)).outcome, Acquired::Granted);
    assert_eq!(lock.acquire(&write('c', 1)).outcome, queued(0));
    lock.leave(&write('c', 1), false);
    lock.release(&read('a', 1));
    lock.release(&read('b', 1));
    assert_eq!(lock.acquire(&write('c', 2)).outcome, Acquired::Granted);
    assert_eq!(lock.acquire(&read('a', 2)).outcome, queued(0));
}

#[test]
fn permits_are_granted_up_to_the_limit() {
    let mut lock = Bench::new();
    assert_eq!(lock.acquire(&permits('a', 1, 2, 3)).outcome, Acquired::Granted);
    assert_eq!(lock.acquire(&permits('b', 1, 2, 3)).outcome, queued(0));
    lock.leave(&permits('b', 1, 2, 3), false);
    assert_eq!(lock.acquire(&permits('b', 2, 1, 3)).outcome, Acquired::Granted);
    assert_eq!(lock.acquire(&permits('c', 1, 1, 3)).outcome, queued(0));
}

#[test]
fn a_newcomer_that_fits_stands_behind_a_waiter_that_does_not() {
    let mut lock = Bench::new();
    lock.acquire(&permits('a', 1, 1, 3));
    assert_eq!(lock.acquire(&permits('b', 1, 3, 3)).outcome, queued(0));
    assert_eq!(lock.acquire(&permits('c', 1, 1, 3)).outcome, queued(1));
    assert_eq!(lock.acquire_as(&permits('d', 1, 1, 3), Mode::Try, MANY).outcome, Acquired::Busy);
}

#[test]
fn each_request_is_judged_by_its_own_limit() {
    let mut lock = Bench::new();
    for number in 0..10 {
        lock.acquire(&permits('a', number, 1, 20));
    }
    assert_eq!(lock.acquire(&permits('b', 1, 1, 10)).outcome, queued(0));
    assert_eq!(lock.acquire(&permits('c', 1, 1, 20)).outcome, queued(1));
    lock.release(&permits('a', 0, 1, 20));
    // With nine in use there is room for one of ten, and then none for another of ten; one of
    // twenty fits.
    assert!(lock.holds(&permits('b', 1, 1, 10)));
    lock.touch(&[&permits('c', 1, 1, 20)]);
    assert!(lock.holds(&permits('c', 1, 1, 20)));
}

#[test]
fn a_write_waits_for_every_permit_and_keeps_all_others_out() {
    let (mut lock, w) = (Bench::new(), write('w', 1));
    lock.acquire(&permits('a', 1, 1, 10));
    lock.acquire(&permits('b', 1, 1, 10));
    assert_eq!(lock.acquire(&w).outcome, queued(0));
    lock.release(&permits('a', 1, 1, 10));
    assert!(!lock.holds(&w));
    lock.release(&permits('b', 1, 1, 10));
    assert!(lock.holds(&w));
    assert_eq!(lock.acquire(&permits('c', 1, 1, 10)).outcome, queued(0));
}

#[test]
fn a_hold_that_has_lapsed_counts_until_somebody_does_not_fit() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 1_000, Demand::READ));
    lock.pass(1_000);
    lock.acquire(&read('b', 1));
    assert_eq!(lock.state.used, Some(2));
    assert_eq!(granted(&lock.acquire(&read('c', 1))), [(read('c', 1), LEASE)]);
    assert_eq!(lock.acquire(&write('w', 1)).outcome, queued(0));
    assert_eq!(lock.state.used, Some(2));
}

#[test]
fn a_member_that_asks_again_has_the_same_hold_and_what_is_left_of_its_lease() {
    let mut lock = Bench::new();
    lock.acquire(&read('a', 1));
    lock.pass(800);
    let again = lock.acquire(&read('a', 1));
    assert_eq!(granted(&again), [(read('a', 1), LEASE - 800)]);
    assert_eq!(lock.state.used, Some(1));
}

#[test]
fn a_member_that_asks_again_keeps_its_place_and_is_believed_alive() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('b', 1), &write('c', 1)]);
    lock.pass(1_000);
    assert_eq!(lock.acquire(&read('b', 1)).outcome, queued(0));
    assert_eq!(lock.waiting(), [read('b', 1), write('c', 1)]);
    assert_eq!(lock.state.deadlines.get(&read('b', 1)), Some(lock.now() + PATIENCE_MS));
}

#[test]
fn a_member_whose_patience_has_ended_and_that_asks_again_stands_at_the_end() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 600_000, Demand::WRITE));
    lock.acquire(&write('b', 1));
    lock.pass(10_000);
    lock.acquire(&write('c', 1));
    lock.pass(5_000);
    assert_eq!(lock.acquire(&write('b', 1)).outcome, queued(1));
    assert_eq!(lock.waiting(), [write('c', 1), write('b', 1)]);
}

#[test]
fn a_member_whose_own_lease_has_ended_is_granted_anew_and_counts_once() {
    let mut lock = Bench::new();
    let (a, other) =
        (with_lease('a', 9, 2_000, Demand::READ), with_lease('a', 1, 1_000, Demand::READ));
    lock.bounds.reclaimed = 1;
    lock.acquire_all(&[&other, &a]);
    lock.pass(2_000);
    assert_eq!(granted(&lock.acquire(&a)), [(a.clone(), 2_000)]);
    assert_eq!((lock.state.used, lock.holders()), (Some(1), vec![a]));
}

#[test]
fn an_attempt_that_was_given_up_is_refused() {
    let mut lock = Bench::new();
    assert_eq!(lock.leave(&read('a', 1), true).outcome, [Left::Absent]);
    assert_eq!(lock.acquire(&read('a', 1)).outcome, Acquired::Refused);
    assert_eq!(lock.holders(), []);
    lock.pass(TOMBSTONE_MS);
    assert_eq!(lock.acquire(&read('a', 1)).outcome, Acquired::Granted);
}

#[test]
fn the_dead_ahead_make_a_free_resource_neither_busy_nor_full() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut lock = Bench::new();
        lock.acquire(&with_lease('g', 1, 1_000, Demand::WRITE));
        for number in 2..12 {
            lock.acquire(&write('g', number));
        }
        lock.away = "g".into();
        lock.pass(1_000);
        let reply = lock.acquire_as(&write('c', 1), mode, 5);
        assert_eq!(granted(&reply), [(write('c', 1), LEASE)]);
        assert_eq!(reply.passed_over, 10);
    }
}

#[test]
fn a_queue_is_full_with_as_many_live_waiters_as_the_caller_allows() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 600_000, Demand::WRITE));
    lock.acquire(&write('b', 1));
    lock.acquire(&write('b', 2));
    assert_eq!(lock.acquire_as(&write('c', 1), Mode::Wait, 2).outcome, Acquired::Full);
    assert_eq!(lock.waiting().len(), 2);
    lock.pass(PATIENCE_MS);
    assert_eq!(lock.acquire_as(&write('c', 1), Mode::Wait, 1).outcome, queued(0));
}

#[test]
fn whoever_enqueues_drops_the_dead_wherever_they_stand() {
    let mut lock = Bench::new();
    let (holder, head) = (with_lease('a', 1, 600_000, Demand::WRITE), write('b', 1));
    lock.acquire_all(&[&holder, &head, &read('g', 1), &read('g', 2)]);
    lock.pass(10_000);
    lock.touch(&[&head]);
    lock.pass(5_000);
    assert_eq!(lock.acquire(&read('c', 1)).outcome, queued(1));
    assert_eq!(lock.waiting(), [head, read('c', 1)]);
}

#[test]
fn the_reply_tells_the_first_end_of_a_lease() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 9_000, Demand::READ));
    lock.acquire(&with_lease('b', 1, 4_000, Demand::READ));
    lock.pass(1_000);
    assert_eq!(lock.acquire(&write('c', 1)).first_end_ms, Some(3_000));
}
