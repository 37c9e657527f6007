//! Taking, and asking again.

use super::*;

fn granted(reply: &Reply<Acquired>) -> Vec<(Member, u64)> {
    assert_eq!(reply.outcome, Acquired::Granted);
    reply.grants.iter().map(|grant| (grant.member.clone(), grant.left_ms)).collect()
}

#[test]
fn a_free_lock_leaves_nothing_but_the_counter() {
    let mut bench = Bench::new();
    let reply = bench.acquire(&lock('a', 1));
    assert_eq!((reply.outcome, reply.grants[0].left_ms), (Acquired::Granted, LEASE));
    assert_eq!(bench.release(&lock('a', 1)).outcome, Released::Released);
    assert_eq!(bench.state, QueueState::default());
}

#[test]
fn locks_reads_and_permits_of_a_name_exclude_each_other() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    assert_eq!(bench.acquire(&read('b', 1)).outcome, queued(0));
    assert_eq!(bench.acquire(&permit('b', 2, 3)).outcome, queued(1));
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, queued(2));
    bench.release(&lock('a', 1));
    assert_eq!(bench.holders(), [read('b', 1), permit('b', 2, 3)]);
    bench.release(&read('b', 1));
    bench.release(&permit('b', 2, 3));
    assert_eq!(bench.holders(), [lock('c', 1)]);
}

#[test]
fn the_same_attempt_is_the_same_hold_or_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1), &lock('c', 1)]);
    bench.pass(1_000);
    let again = bench.acquire(&lock('a', 1));
    assert_eq!((again.outcome, again.grants[0].left_ms), (Acquired::Granted, LEASE - 1_000));
    assert_eq!(bench.acquire(&lock('b', 1)).outcome, queued(0));
    assert_eq!(bench.waiting(), [lock('b', 1), lock('c', 1)]);
}

#[test]
fn what_fits_is_granted_its_full_lease() {
    for one in [lock('a', 1), read('a', 1), permits('a', 1, 2, 3)] {
        let mut bench = Bench::new();
        let reply = bench.acquire(&one);
        assert_eq!(granted(&reply), [(one, LEASE)]);
        assert_eq!(reply.first_end_ms, Some(LEASE));
        assert_eq!(reply.grants[0].token.get(), bench.now_us + 1);
    }
}

#[test]
fn readers_join_each_other_and_a_lock_joins_no_one() {
    let mut bench = Bench::new();
    assert_eq!(bench.acquire(&read('a', 1)).outcome, Acquired::Granted);
    assert_eq!(bench.acquire(&read('b', 1)).outcome, Acquired::Granted);
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, queued(0));
    bench.leave(&lock('c', 1), false);
    bench.release(&read('a', 1));
    bench.release(&read('b', 1));
    assert_eq!(bench.acquire(&lock('c', 2)).outcome, Acquired::Granted);
    assert_eq!(bench.acquire(&read('a', 2)).outcome, queued(0));
}

#[test]
fn permits_are_granted_up_to_the_limit() {
    let mut bench = Bench::new();
    assert_eq!(bench.acquire(&permits('a', 1, 2, 3)).outcome, Acquired::Granted);
    assert_eq!(bench.acquire(&permits('b', 1, 2, 3)).outcome, queued(0));
    bench.leave(&permits('b', 1, 2, 3), false);
    assert_eq!(bench.acquire(&permits('b', 2, 1, 3)).outcome, Acquired::Granted);
    assert_eq!(bench.acquire(&permits('c', 1, 1, 3)).outcome, queued(0));
}

#[test]
fn a_newcomer_that_fits_stands_behind_a_waiter_that_does_not() {
    let mut bench = Bench::new();
    bench.acquire(&permits('a', 1, 1, 3));
    assert_eq!(bench.acquire(&permits('b', 1, 3, 3)).outcome, queued(0));
    assert_eq!(bench.acquire(&permits('c', 1, 1, 3)).outcome, queued(1));
    assert_eq!(bench.acquire_as(&permits('d', 1, 1, 3), Mode::Try, 9).outcome, Acquired::Busy);
}

#[test]
fn each_request_is_judged_by_its_own_limit() {
    let mut bench = Bench::new();
    for number in 0..10 {
        bench.acquire(&permits('a', number, 1, 20));
    }
    assert_eq!(bench.acquire(&permits('b', 1, 1, 10)).outcome, queued(0));
    assert_eq!(bench.acquire(&permits('c', 1, 1, 20)).outcome, queued(1));
    // With nine in use there is room for one of ten, and then for one of twenty.
    bench.release(&permits('a', 0, 1, 20));
    assert!(bench.holds(&permits('b', 1, 1, 10)) && bench.holds(&permits('c', 1, 1, 20)));
}

#[test]
fn a_lock_waits_for_every_permit_and_keeps_all_others_out() {
    let (mut bench, w) = (Bench::new(), lock('w', 1));
    bench.acquire_all(&[&permits('a', 1, 1, 10), &permits('b', 1, 1, 10)]);
    assert_eq!(bench.acquire(&w).outcome, queued(0));
    bench.release(&permits('a', 1, 1, 10));
    assert!(!bench.holds(&w));
    bench.release(&permits('b', 1, 1, 10));
    assert!(bench.holds(&w));
    assert_eq!(bench.acquire(&permits('c', 1, 1, 10)).outcome, queued(0));
}

#[test]
fn a_part_whose_lease_has_ended_counts_until_somebody_does_not_fit() {
    let mut bench = Bench::new();
    bench.acquire(&with_lease('a', 1, 1_000, Demand::READ));
    bench.pass(1_000);
    bench.acquire(&read('b', 1));
    assert_eq!(bench.used(), 2);
    assert_eq!(granted(&bench.acquire(&read('c', 1))), [(read('c', 1), LEASE)]);
    assert_eq!(bench.acquire(&lock('w', 1)).outcome, queued(0));
    assert_eq!(bench.used(), 2);
}

#[test]
fn a_part_that_is_asked_for_again_is_the_same_hold() {
    let mut bench = Bench::new();
    let first = bench.acquire(&read('a', 1)).grants[0].token;
    bench.pass(800);
    let again = bench.acquire(&read('a', 1));
    assert_eq!(granted(&again), [(read('a', 1), LEASE - 800)]);
    assert_eq!((again.grants[0].token, bench.used()), (first, 1));
}

#[test]
fn a_lock_that_is_asked_for_again_is_told_a_new_token() {
    let mut bench = Bench::new();
    let first = bench.acquire(&lock('a', 1)).grants[0].token;
    assert!(bench.acquire(&lock('a', 1)).grants[0].token > first);
}

#[test]
fn a_member_of_a_silent_node_that_asks_again_keeps_its_place() {
    let mut bench = Bench::new();
    let holder = with_lease('a', 1, 600_000, Demand::ALONE);
    bench.acquire_all(&[&holder, &lock('b', 1), &lock('c', 1)]);
    bench.pass(PATIENCE_MS);
    assert_eq!(bench.acquire(&lock('b', 1)).outcome, queued(0));
    assert_eq!(bench.waiting(), [lock('b', 1), lock('c', 1)]);
    assert_eq!(bench.state.patience[node('b').as_str()], bench.now() + PATIENCE_MS);
}

#[test]
fn a_member_whose_own_lease_has_ended_is_granted_anew_and_counts_once() {
    let mut bench = Bench::new();
    let (a, other) =
        (with_lease('a', 9, 2_000, Demand::READ), with_lease('a', 1, 1_000, Demand::READ));
    bench.bounds.reclaimed = 1;
    bench.acquire_all(&[&other, &a]);
    bench.pass(2_000);
    assert_eq!(granted(&bench.acquire(&a)), [(a.clone(), 2_000)]);
    assert_eq!((bench.used(), bench.holders()), (1, vec![a]));
}

#[test]
fn the_dead_ahead_make_a_free_lock_neither_busy_nor_full() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut bench = Bench::new();
        bench.acquire(&with_lease('g', 1, 1_000, Demand::ALONE));
        for number in 2..12 {
            bench.acquire(&lock('g', number));
        }
        bench.away = "g".into();
        bench.pass(1_000);
        let reply = bench.acquire_as(&lock('c', 1), mode, 5);
        assert_eq!(granted(&reply), [(lock('c', 1), LEASE)]);
        assert_eq!(reply.passed_over, 10);
    }
}

#[test]
fn the_reply_tells_the_first_end_of_a_lease() {
    let mut bench = Bench::new();
    bench.acquire(&with_lease('a', 1, 9_000, Demand::READ));
    bench.acquire(&with_lease('b', 1, 4_000, Demand::READ));
    bench.pass(1_000);
    assert_eq!(bench.acquire(&lock('c', 1)).first_end_ms, Some(3_000));
}
