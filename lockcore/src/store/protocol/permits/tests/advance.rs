//! Who is granted when something comes free, and how they hear.

use super::*;

fn told(message: &Message) -> (char, Vec<(u64, u64)>) {
    let Message::Grants { node, grants, .. } = message else { panic!("{message:?}") };
    (node.as_str().chars().next().unwrap(), grants.clone())
}

#[test]
fn a_run_of_readers_at_the_head_is_granted_in_one_step_up_to_the_first_writer() {
    let mut lock = Bench::new();
    lock.acquire_all(&[
        &write('a', 1),
        &read('b', 1),
        &read('c', 1),
        &write('d', 1),
        &read('e', 1),
    ]);
    lock.release(&write('a', 1));
    assert_eq!(lock.holders(), [read('b', 1), read('c', 1)]);
    assert_eq!(lock.waiting(), [write('d', 1), read('e', 1)]);
}

#[test]
fn a_node_is_told_of_all_its_grants_in_one_message() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('b', 1), &read('c', 1), &read('b', 2), &read('a', 2)]);
    let reply = lock.release(&write('a', 1));
    let said = lock.said();
    let each: Vec<_> = said.iter().map(told).collect();
    assert_eq!(each, [('b', vec![(1, CLAIM), (2, CLAIM)]), ('c', vec![(1, CLAIM)])]);
    assert_eq!(reply.grants, [lock.grant(read('a', 2), CLAIM)]);
}

#[test]
fn what_is_handed_over_has_the_grantees_claim() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    lock.acquire(&with_lease('b', 1, 24_000, Demand::READ));
    lock.acquire(&with_lease('c', 1, 900, Demand::READ));
    lock.release(&write('a', 1));
    assert_eq!(lock.left(&with_lease('b', 1, 24_000, Demand::READ)), 8_000);
    assert_eq!(lock.left(&with_lease('c', 1, 900, Demand::READ)), 900);
}

#[test]
fn a_head_that_does_not_fit_keeps_what_is_free() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&permits('a', 1, 1, 3), &permits('b', 1, 2, 3)]);
    lock.acquire_all(&[&permits('c', 1, 3, 3), &permits('d', 1, 1, 3)]);
    lock.release(&permits('b', 1, 2, 3));
    assert_eq!(lock.holders(), [permits('a', 1, 1, 3)]);
    lock.release(&permits('a', 1, 1, 3));
    assert_eq!(lock.holders(), [permits('c', 1, 3, 3)]);
}

#[test]
fn as_many_as_fit_are_granted_in_order() {
    let mut lock = Bench::new();
    lock.acquire(&permits('a', 1, 3, 3));
    lock.acquire_all(&[&permits('b', 1, 1, 3), &permits('c', 1, 2, 3), &permits('d', 1, 1, 3)]);
    lock.release(&permits('a', 1, 3, 3));
    assert_eq!(lock.holders(), [permits('b', 1, 1, 3), permits('c', 1, 2, 3)]);
    assert_eq!(lock.waiting(), [permits('d', 1, 1, 3)]);
}

#[test]
fn a_dead_writer_keeps_no_readers_out_and_keeps_its_place_for_a_while() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &write('g', 1), &read('b', 1)]);
    lock.away = "g".into();
    let reply = lock.release(&write('a', 1));
    assert_eq!((lock.holders(), reply.passed_over), (vec![read('b', 1)], 1));
    assert_eq!(lock.waiting(), [write('g', 1)]);
    assert_eq!(lock.state.deadlines.get(&write('g', 1)), Some(lock.now() + PASSED_OVER_MS));
}

#[test]
fn a_dead_request_for_three_keeps_out_none_for_one() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    lock.acquire_all(&[&permits('g', 1, 3, 3), &permits('c', 1, 1, 3)]);
    lock.away = "g".into();
    lock.release(&permits('b', 1, 1, 3));
    assert!(lock.holds(&permits('c', 1, 1, 3)));
}

#[test]
fn with_nothing_free_no_one_is_asked_whether_it_is_connected() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &write('g', 1), &write('b', 1)]);
    lock.away = "g".into();
    assert_eq!(lock.touch(&[&write('b', 1)]).passed_over, 0);
    assert_eq!(lock.state.deadlines.get(&write('g', 1)), Some(START + PATIENCE_MS));
}

#[test]
fn the_calling_node_counts_as_connected() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('a', 2)]);
    lock.away = "a".into();
    lock.release(&write('a', 1));
    assert!(lock.holds(&read('a', 2)));
}

#[test]
fn a_head_whose_patience_has_ended_is_dropped_although_everything_is_held() {
    let mut lock = Bench::new();
    let holder = with_lease('a', 1, 600_000, Demand::WRITE);
    lock.acquire_all(&[&holder, &write('b', 1)]);
    lock.pass(PATIENCE_MS);
    lock.acquire_as(&write('c', 1), Mode::Try, MANY);
    assert_eq!(lock.waiting(), []);
}

#[test]
fn a_thousand_dead_ahead_are_passed_in_one_step_whatever_they_demand() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    for number in 0..999 {
        let demand = if number % 2 == 0 { write('g', number) } else { read('g', number) };
        lock.acquire(&demand);
    }
    lock.acquire(&read('b', 1));
    lock.away = "g".into();
    let reply = lock.release(&write('a', 1));
    assert_eq!((lock.holders(), reply.passed_over, reply.more), (vec![read('b', 1)], 999, false));
}

#[test]
fn a_walk_ends_after_a_thousand_and_says_so_only_if_the_next_one_gets_further() {
    let mut lock = Bench::new();
    lock.bounds.looked_at = 3;
    lock.acquire(&with_lease('a', 1, 600_000, Demand::WRITE));
    lock.acquire_all(&[&write('g', 1), &write('g', 2), &write('g', 3), &read('b', 1)]);
    lock.away = "g".into();
    let reply = lock.release(&with_lease('a', 1, 600_000, Demand::WRITE));
    assert_eq!((reply.passed_over, reply.more), (3, false));
    assert_eq!(lock.holders(), []);
    // A newcomer does not take what those behind the dead are to have.
    assert_eq!(lock.acquire(&read('c', 1)).outcome, queued(4));
    lock.pass(PASSED_OVER_MS);
    let reply = lock.release(&read('x', 1));
    assert_eq!((lock.waiting().len(), reply.more), (2, true));
    let reply = lock.touch(&[&read('b', 1)]);
    assert_eq!(reply.grants.len(), 1);
    assert_eq!(lock.holders(), [read('b', 1), read('c', 1)]);
}

#[test]
fn at_most_256_are_granted_in_one_step_and_the_reply_says_that_there_is_more() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    for number in 0..300 {
        lock.acquire(&read('b', number));
    }
    assert!(lock.release(&write('a', 1)).more);
    assert_eq!((lock.holders().len(), lock.waiting().len()), (256, 44));
    assert!(!lock.touch(&[&read('b', 299)]).more);
    assert_eq!(lock.holders().len(), 300);
}

#[test]
fn exactly_as_many_as_one_step_grants_leave_no_more() {
    let mut lock = Bench::new();
    lock.bounds.granted = 2;
    lock.acquire_all(&[&write('a', 1), &read('b', 1), &read('b', 2)]);
    assert!(!lock.release(&write('a', 1)).more);
    assert_eq!(lock.holders().len(), 2);
}

#[test]
fn holds_that_have_lapsed_are_taken_out_before_anything_is_handed_on() {
    let mut lock = Bench::new();
    for number in 0..3 {
        lock.acquire(&with_lease('x', number, 1_000, Demand::READ));
    }
    lock.acquire(&write('b', 1));
    lock.pass(1_000);
    assert_eq!(lock.touch(&[&write('b', 1)]).grants.len(), 1);
    assert_eq!((lock.holders(), lock.state.used), (vec![write('b', 1)], Some(ALL.into())));
}

#[test]
fn at_most_256_lapsed_holds_are_taken_out_in_one_step_and_the_reply_says_that_there_is_more() {
    let mut lock = Bench::new();
    for number in 0..300 {
        lock.acquire(&with_lease('x', number, 1_000, Demand::READ));
    }
    lock.acquire(&write('b', 1));
    lock.pass(1_000);
    let reply = lock.touch(&[&write('b', 1)]);
    assert!(reply.more && reply.grants.is_empty());
    assert_eq!(lock.state.used, Some(44));
    assert_eq!(lock.touch(&[&write('b', 1)]).grants.len(), 1);
}

#[test]
fn a_leave_of_the_head_hands_on_although_others_hold() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&read('a', 1), &write('b', 1), &read('c', 1)]);
    assert_eq!(lock.leave(&write('b', 1), false).outcome, [Left::Left]);
    assert_eq!(lock.holders(), [read('a', 1), read('c', 1)]);
}

#[test]
fn a_read_behind_a_permit_that_took_its_last_is_granted_in_the_same_step() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &permits('b', 1, 1, 1), &read('c', 1)]);
    lock.release(&write('a', 1));
    assert_eq!(lock.holders(), [permits('b', 1, 1, 1), read('c', 1)]);
}

#[test]
fn ten_permits_with_limits_one_to_ten_are_granted_in_one_step() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    let waiting: Vec<_> = (1..=10).map(|n| permits('b', n.into(), 1, n)).collect();
    lock.acquire_all(&waiting.iter().collect::<Vec<_>>());
    lock.release(&write('a', 1));
    assert_eq!((lock.holders().len(), lock.waiting()), (10, vec![]));
}

#[test]
fn the_dead_behind_a_permit_that_took_its_last_keep_no_read_out() {
    let mut lock = Bench::new();
    lock.acquire(&with_lease('a', 1, 600_000, Demand::WRITE));
    lock.acquire(&permits('b', 1, 1, 1));
    lock.acquire_all(&[&permits('g', 1, 1, 1), &read('c', 1)]);
    lock.pass(PATIENCE_MS - 1);
    lock.state.raise(&permits('b', 1, 1, 1), lock.now());
    lock.state.raise(&read('c', 1), lock.now());
    lock.pass(1);
    lock.release(&with_lease('a', 1, 600_000, Demand::WRITE));
    assert_eq!(lock.holders(), [permits('b', 1, 1, 1), read('c', 1)]);
    assert_eq!(lock.waiting(), []);
}
