//! What holds when a part of the keys is lost.

use super::*;

fn lose_state(lock: &mut Bench) {
    let state = &mut lock.state;
    (state.used, state.token, state.era, state.ends_ms) = (None, None, None, None);
    state.reduced.clear();
}

#[test]
fn a_sum_that_was_lost_is_computed_again() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    lock.state.used = None;
    assert_eq!(lock.acquire(&permits('c', 1, 1, 3)).outcome, queued(0));
    assert_eq!(lock.state.used, Some(3));
}

#[test]
fn with_the_whole_state_lost_the_holds_count_and_the_token_is_the_clocks() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&read('a', 1), &read('b', 1)]);
    lose_state(&mut lock);
    lock.pass(5);
    let reply = lock.acquire(&write('c', 1));
    assert_eq!(reply.outcome, queued(0));
    assert_eq!(lock.token(), lock.now_us);
    assert_eq!(lock.state.used, Some(2));
    assert!(lock.state.ends_ms.is_some());
}

#[test]
fn with_the_holds_lost_nothing_is_in_use() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &write('b', 1)]);
    lock.state.holds.clear();
    lock.touch(&[&write('b', 1)]);
    assert_eq!(lock.holders(), [write('b', 1)]);
    assert_eq!(lock.state.used, Some(ALL.into()));
    assert_eq!(lock.renew(&[&write('a', 1)]).outcome, [Renewed::NotHeld]);
}

#[test]
fn a_waiter_whose_deadline_was_lost_is_dropped_at_the_head_unless_it_is_touched_before() {
    for is_touched in [false, true] {
        let mut lock = Bench::new();
        lock.acquire_all(&[&write('a', 1), &read('b', 1), &write('c', 1)]);
        lock.state.deadlines.clear();
        if is_touched {
            lock.touch(&[&read('b', 1)]);
        }
        lock.touch(&[&write('c', 1)]);
        lock.release(&write('a', 1));
        assert_eq!(lock.holds(&write('c', 1)), !is_touched);
    }
}

#[test]
fn deadlines_without_a_queue_count_for_nothing() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &write('b', 1), &write('c', 1)]);
    lock.state.queue.clear();
    assert_eq!(lock.acquire_as(&write('d', 1), Mode::Wait, 1).outcome, queued(0));
    assert_eq!(lock.state.deadlines.len(), 1);
}
