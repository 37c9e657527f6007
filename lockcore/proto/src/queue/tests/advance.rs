//! The members that are granted when something comes free, and how they hear.

use super::*;

fn told(message: &Message) -> (char, Vec<(u64, u64)>) {
    let Message::Grants { node, grants, .. } = message else { panic!("{message:?}") };
    (node.as_str().chars().next().unwrap(), grants.clone())
}

#[test]
fn what_fits_behind_a_permit_with_a_smaller_limit_is_granted_in_the_same_step() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    bench.acquire_all(&[&permit('b', 1, 1), &permit('b', 2, 2), &read('b', 3)]);
    bench.release(&lock('a', 1));
    assert_eq!(bench.holders(), [permit('b', 1, 1), permit('b', 2, 2), read('b', 3)]);
}

#[test]
fn a_hand_over_grants_a_claim_and_tells_the_other_node() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 7)]);
    bench.release(&lock('a', 1));
    let [Message::Grants { node: to, grants, .. }] = &bench.said[..] else { unreachable!() };
    assert_eq!((to, grants), (&node('b'), &vec![(7, CLAIM)]));
    assert_eq!(bench.state.whole(bench.now()).unwrap().1, bench.now() + CLAIM);
}

#[test]
fn a_run_of_readers_at_the_head_is_granted_in_one_step_up_to_the_first_lock() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &read('b', 1), &read('c', 1), &lock('d', 1), &read('e', 1)]);
    bench.release(&lock('a', 1));
    assert_eq!(bench.holders(), [read('b', 1), read('c', 1)]);
    assert_eq!(bench.waiting(), [lock('d', 1), read('e', 1)]);
}

#[test]
fn a_node_is_told_of_all_its_grants_in_one_message_and_the_caller_by_the_reply() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &read('b', 1), &read('c', 1), &read('b', 2), &read('a', 2)]);
    let reply = bench.release(&lock('a', 1));
    let each: Vec<_> = bench.said().iter().map(told).collect();
    assert_eq!(each, [('b', vec![(1, CLAIM), (2, CLAIM)]), ('c', vec![(1, CLAIM)])]);
    let token = bench.state.shared_token().unwrap();
    assert_eq!(reply.grants, [Grant { member: read('a', 2), token, left_ms: CLAIM }]);
}

#[test]
fn what_is_handed_over_has_the_grantees_claim() {
    let mut bench = Bench::new();
    let (long, short) =
        (with_lease('b', 1, 24_000, Demand::READ), with_lease('c', 1, 900, Demand::READ));
    bench.acquire_all(&[&lock('a', 1), &long, &short]);
    bench.release(&lock('a', 1));
    assert_eq!((bench.left(&long), bench.left(&short)), (8_000, 900));
}

#[test]
fn a_head_that_does_not_fit_keeps_what_is_free() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permits('a', 1, 1, 3), &permits('b', 1, 2, 3)]);
    bench.acquire_all(&[&permits('c', 1, 3, 3), &permits('d', 1, 1, 3)]);
    bench.release(&permits('b', 1, 2, 3));
    assert_eq!(bench.holders(), [permits('a', 1, 1, 3)]);
    bench.release(&permits('a', 1, 1, 3));
    assert_eq!(bench.holders(), [permits('c', 1, 3, 3)]);
}

#[test]
fn as_many_as_fit_are_granted_in_order() {
    let mut bench = Bench::new();
    bench.acquire(&permits('a', 1, 3, 3));
    bench.acquire_all(&[&permits('b', 1, 1, 3), &permits('c', 1, 2, 3), &permits('d', 1, 1, 3)]);
    bench.release(&permits('a', 1, 3, 3));
    assert_eq!(bench.holders(), [permits('b', 1, 1, 3), permits('c', 1, 2, 3)]);
    assert_eq!(bench.waiting(), [permits('d', 1, 1, 3)]);
}

#[test]
fn a_dead_lock_keeps_no_readers_out_and_keeps_its_place_for_a_while() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('g', 1), &read('b', 1)]);
    bench.away = "g".into();
    let reply = bench.release(&lock('a', 1));
    assert_eq!((bench.holders(), reply.passed_over), (vec![read('b', 1)], 1));
    let passed = &bench.state.passed[node('g').as_str()];
    assert!(passed.members.get(&lock('g', 1)).is_some());
    assert_eq!(passed.ends_ms, bench.now() + PASSED_MS);
}

#[test]
fn a_dead_request_for_three_keeps_out_none_for_one() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    bench.acquire_all(&[&permits('g', 1, 3, 3), &permits('c', 1, 1, 3)]);
    bench.away = "g".into();
    bench.release(&permits('b', 1, 1, 3));
    assert!(bench.holds(&permits('c', 1, 1, 3)));
}

#[test]
fn with_nothing_free_no_one_is_asked_whether_it_is_connected() {
    for holder in [lock('a', 1), permits('a', 1, 1, 1)] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&holder, &permit('g', 1, 1), &permit('b', 1, 1)]);
        bench.away = "g".into();
        assert_eq!(bench.touch(&[&permit('b', 1, 1)]).passed_over, 0);
        assert_eq!(bench.waiting(), [permit('g', 1, 1), permit('b', 1, 1)]);
    }
}

#[test]
fn the_calling_node_counts_as_connected() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &read('a', 2)]);
    bench.away = "a".into();
    bench.release(&lock('a', 1));
    assert!(bench.holds(&read('a', 2)));
}

#[test]
fn a_silent_head_is_dropped_although_every_permit_is_held_but_not_behind_a_lock() {
    for (demand, left) in [(Demand::permits(1, 1).unwrap(), 0), (Demand::ALONE, 1)] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&with_lease('a', 1, 600_000, demand), &member('b', 1, demand)]);
        bench.pass(PATIENCE_MS);
        bench.acquire_as(&member('c', 1, demand), Mode::Try, 9);
        assert_eq!(bench.waiting().len(), left, "{demand}");
    }
}

#[test]
fn at_most_256_are_granted_in_one_step_and_the_reply_says_that_there_is_more() {
    let mut bench = Bench::new();
    bench.bounds.looked_at = 1_000;
    bench.acquire(&lock('a', 1));
    for number in 0..300 {
        bench.acquire(&read('b', number));
    }
    assert!(bench.release(&lock('a', 1)).more);
    assert_eq!((bench.holders().len(), bench.waiting().len()), (256, 44));
    assert!(!bench.touch(&[&read('b', 299)]).more);
    assert_eq!(bench.holders().len(), 300);
}

#[test]
fn exactly_as_many_as_one_step_grants_leave_no_more() {
    let mut bench = Bench::new();
    bench.bounds.granted = 2;
    bench.acquire_all(&[&lock('a', 1), &read('b', 1), &read('b', 2)]);
    assert!(!bench.release(&lock('a', 1)).more);
    assert_eq!(bench.holders().len(), 2);
}

#[test]
fn parts_that_have_lapsed_are_taken_out_before_anything_is_handed_on() {
    let mut bench = Bench::new();
    for number in 0..3 {
        bench.acquire(&with_lease('x', number, 1_000, Demand::READ));
    }
    bench.acquire(&lock('b', 1));
    bench.pass(1_000);
    assert_eq!(bench.touch(&[&lock('b', 1)]).grants.len(), 1);
    assert_eq!((bench.holders(), bench.used()), (vec![lock('b', 1)], ALL.into()));
}

#[test]
fn at_most_256_lapsed_parts_are_taken_out_in_one_step_and_the_reply_says_that_there_is_more() {
    let mut bench = Bench::new();
    for number in 0..300 {
        bench.acquire(&with_lease('x', number, 1_000, Demand::READ));
    }
    bench.acquire(&lock('b', 1));
    bench.pass(1_000);
    let reply = bench.touch(&[&lock('b', 1)]);
    assert!(reply.more && reply.grants.is_empty());
    assert_eq!(bench.used(), 44);
    assert_eq!(bench.touch(&[&lock('b', 1)]).grants.len(), 1);
}

#[test]
fn a_leave_of_the_head_hands_on_although_others_hold() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &lock('b', 1), &read('c', 1)]);
    assert_eq!(bench.leave(&lock('b', 1), false), Left::Left);
    assert_eq!(bench.holders(), [read('c', 1), read('a', 1)]);
}

#[test]
fn ten_permits_with_limits_one_to_ten_are_granted_in_one_step() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    for limit in 1..=10 {
        bench.acquire(&permit('b', limit.into(), limit));
    }
    bench.release(&lock('a', 1));
    assert_eq!((bench.holders().len(), bench.waiting()), (10, vec![]));
}

#[test]
fn the_silent_behind_a_permit_that_took_its_last_keep_no_read_out() {
    let mut bench = Bench::new();
    let holder = with_lease('a', 1, 600_000, Demand::ALONE);
    bench.acquire_all(&[&holder, &permit('b', 1, 1), &permit('g', 1, 1), &read('c', 1)]);
    bench.pass(PATIENCE_MS - 1);
    bench.touch(&[&permit('b', 1, 1)]);
    bench.touch(&[&read('c', 1)]);
    bench.pass(1);
    bench.release(&holder);
    assert_eq!(bench.holders(), [permit('b', 1, 1), read('c', 1)]);
    assert_eq!(bench.waiting(), []);
}
