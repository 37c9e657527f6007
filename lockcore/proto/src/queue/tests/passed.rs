//! Members that are passed over, since their nodes are not connected.

use super::*;

#[test]
fn the_dead_are_passed_over_once() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    for number in 1..=40 {
        bench.acquire(&lock('d', number));
    }
    bench.acquire_all(&[&lock('b', 1), &lock('b', 2)]);
    bench.away = "d".to_owned();
    assert_eq!(bench.release(&lock('a', 1)).passed_over, 40);
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('b', 1)], vec![lock('b', 2)]));
    assert_eq!(bench.release(&lock('b', 1)).passed_over, 0);
}

#[test]
fn a_member_that_was_passed_over_comes_back_into_its_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1), &lock('b', 1), &lock('d', 2), &lock('c', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.release(&lock('b', 1));
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('c', 1)], vec![]));
    bench.acquire(&lock('a', 2));
    bench.away.clear();
    for number in [2, 1] {
        assert_eq!(bench.touch(&[&lock('d', number)]).outcome.members, [Presence::Waiting]);
    }
    assert_eq!(bench.waiting(), [lock('d', 1), lock('d', 2), lock('a', 2)]);
    bench.release(&lock('c', 1));
    assert_eq!(bench.holders(), [lock('d', 1)]);
}

#[test]
fn a_member_comes_back_to_a_lock_that_is_held_without_waiters_and_marks_its_door() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.acquire(&lock('b', 1));
    assert_eq!(bench.state.door.as_ref().unwrap().mark, Mark::None);
    bench.away.clear();
    assert_eq!(bench.touch(&[&lock('d', 1)]).outcome.members, [Presence::Waiting]);
    bench.release(&lock('b', 1));
    assert_eq!(bench.holders(), [lock('d', 1)]);
}

#[test]
fn a_place_that_was_passed_over_ends_with_its_time() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.pass(PASSED_MS);
    assert_eq!(bench.touch(&[&lock('d', 1)]).outcome.members, [Presence::Gone]);
}

#[test]
fn more_than_a_command_looks_at_is_left_to_the_next() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    for number in 0..2 * LOOKED_AT as u64 + 5 {
        bench.acquire(&lock('d', number));
    }
    bench.acquire(&lock('b', 1));
    bench.away = "d".to_owned();
    let reply = bench.release(&lock('a', 1));
    assert_eq!((reply.passed_over, reply.more), (LOOKED_AT as u64, true));
    assert!(bench.touch(&[&lock('b', 1)]).more);
    assert!(!bench.touch(&[&lock('b', 1)]).more);
    assert_eq!(bench.holders(), [lock('b', 1)]);
}

#[test]
fn a_member_that_was_passed_over_can_leave_and_does_not_come_back() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    assert_eq!(bench.leave(&lock('d', 1), false), Left::Left);
    assert_eq!(bench.presence(&lock('d', 1)), Presence::Gone);
}

#[test]
fn members_that_were_passed_over_count_neither_for_the_limit_nor_for_positions() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1), &lock('d', 2), &lock('b', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    assert_eq!(bench.acquire_as(&lock('c', 1), Mode::Wait, 1).outcome, queued(0));
}

#[test]
fn a_late_acquire_of_one_that_was_passed_over_does_not_cost_its_place() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.away = "d".to_owned();
    bench.release(&lock('a', 1));
    bench.acquire_all(&[&lock('a', 2), &lock('d', 2), &lock('d', 1)]);
    bench.release(&lock('a', 2));
    bench.acquire(&lock('a', 3));
    bench.away.clear();
    for number in [2, 1] {
        assert_eq!(bench.presence(&lock('d', number)), Presence::Waiting);
    }
    assert_eq!(bench.waiting(), [lock('d', 1), lock('d', 2)]);
}
