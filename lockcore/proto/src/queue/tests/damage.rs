//! The state after a part of the keys was lost.

use super::*;

#[test]
fn a_door_without_an_end_gets_one() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.state.door.as_mut().unwrap().ends_ms = None;
    bench.touch(&[&lock('b', 1)]);
    let ends_ms = bench.state.door.as_ref().unwrap().ends_ms;
    assert_eq!(ends_ms, Some(bench.now() + LEASE + MARGIN_MS));
}

#[test]
fn parts_whose_door_was_lost_are_counted_again() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permit('a', 1, 2), &permit('a', 2, 2)]);
    bench.state.door = None;
    assert_eq!(bench.acquire(&permit('b', 1, 2)).outcome, queued(0));
    assert_eq!(bench.state.used(), 2);
}

#[test]
fn a_sum_that_was_lost_is_computed_again() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    bench.state.set_parts(0, bench.state.shared_token());
    assert_eq!(bench.acquire(&permits('c', 1, 1, 3)).outcome, queued(0));
    assert_eq!(bench.used(), 3);
}

#[test]
fn without_a_door_a_lock_is_free_and_the_parts_beside_it_are_dropped() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &read('b', 1)]);
    bench.state.door = None;
    let command = Command::Acquire { member: lock('c', 1), mode: Mode::Try, queue_limit: 1 };
    let Answer::Acquired(reply) = bench.run('c', &command) else { unreachable!() };
    assert_eq!(reply.outcome, Acquired::Granted);
    assert_eq!(bench.renew_one(&read('a', 1)), Renewed::NotHeld);
    assert_eq!(bench.state.holds, SortedSet::default());
}

#[test]
fn with_the_holds_lost_nothing_is_in_use() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &lock('b', 1)]);
    bench.state.holds.clear();
    assert_eq!(bench.inspect().token, None);
    bench.touch(&[&lock('b', 1)]);
    assert_eq!(bench.holders(), [lock('b', 1)]);
    assert_eq!(bench.renew_one(&read('a', 1)), Renewed::NotHeld);
}

#[test]
fn a_waiter_whose_patience_was_lost_is_dropped_at_the_head_unless_it_is_touched_before() {
    for is_touched in [false, true] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&lock('a', 1), &read('b', 1), &lock('c', 1)]);
        bench.state.patience.clear();
        if is_touched {
            bench.touch(&[&read('b', 1)]);
        }
        bench.touch(&[&lock('c', 1)]);
        bench.release(&lock('a', 1));
        assert_eq!(bench.holds(&lock('c', 1)), !is_touched);
    }
}

#[test]
fn patience_without_a_queue_counts_for_nothing() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1), &lock('c', 1)]);
    bench.state.queue.clear();
    assert_eq!(bench.acquire_as(&lock('d', 1), Mode::Wait, 1).outcome, queued(0));
    assert_eq!(bench.waiting(), [lock('d', 1)]);
}
