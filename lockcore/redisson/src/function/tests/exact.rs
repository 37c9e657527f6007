//! Rules that are exact to a millisecond or a microsecond, or that count requests. All others are
//! covered by the `protocol` tests.

use super::*;

#[test]
fn a_waiter_that_is_silent_for_its_patience_is_gone_the_ms_it_ends() {
    let (mut lock, b, c) = (Bench::new(), member('b', 1), member('c', 1));
    lock.acquire(&member_with_lease('a', 1, 600_000));
    lock.acquire(&b);
    lock.pass(PATIENCE_MS - 1);
    lock.acquire(&c);
    assert_eq!(lock.waiting(), [b.clone(), c.clone()]);
    lock.pass(1);
    lock.touch(&[&c]);
    assert_eq!(lock.waiting(), [c]);
    assert_eq!(lock.presence(&b), Presence::Gone);
}

#[test]
fn the_queue_limit_counts_a_waiter_no_more_the_ms_its_patience_ends() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    lock.acquire(&member('b', 1));
    lock.pass(1);
    lock.acquire(&member('c', 1));
    let full = Acquired::Full { waiting: 2 };
    assert_eq!(lock.acquire_as(&member('d', 1), Mode::Wait, 2).outcome, full);
    lock.pass(PATIENCE_MS - 1);
    assert_eq!(lock.acquire_as(&member('d', 1), Mode::Wait, 2).outcome, queued(1));
    assert_eq!(lock.waiting(), [member('c', 1), member('d', 1)]);
}

#[test]
fn a_foreign_head_is_dropped_the_ms_its_deadline_passes() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    lock.queue_foreign(&jvm(1), lock.now() + 1_000);
    lock.acquire(&member('b', 1));
    lock.pass(1_000);
    lock.release(&member('a', 1));
    assert_eq!(lock.holder(), Some(&member('b', 1)));
}

#[test]
fn each_node_is_asked_at_most_once_in_a_walk() {
    let mut lock = Bench::new();
    for waiting in [member('a', 1), member('b', 1), member('c', 1), member('b', 2)] {
        lock.acquire(&waiting);
    }
    let asked = std::cell::RefCell::new(Vec::new());
    let connected = |node: &str| {
        asked.borrow_mut().push(node[..1].to_owned());
        false
    };
    let command = Command::Release { member: ours(&member('a', 1)) };
    let (_, said) = step(&mut lock.state, &connected, &node('a'), &command, lock.now_us);
    assert_eq!((said, asked.into_inner()), (vec![], vec!["b".to_owned(), "c".to_owned()]));
}

#[test]
fn tokens_are_the_time_in_microseconds_or_one_more_than_the_last() {
    let mut lock = Bench::new();
    let mut last = 0;
    for number in 0..5 {
        lock.acquire(&member('a', number));
        lock.release(&member('a', number));
        assert_eq!(lock.token(), if number == 0 { lock.now_us } else { last + 1 });
        last = lock.token();
    }
    lock.pass(7);
    lock.acquire(&member('a', 9));
    assert_eq!(lock.token(), lock.now_us);
}

#[test]
fn less_than_a_millisecond_left_of_a_hold_is_told_as_one() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.pass(LEASE - 1);
    assert_eq!(left(&lock.release(&member('b', 1))), 1);
    // Without an expiry, no remaining time is known.
    lock.state.hold = Some(Hold { member: a, expires_ms: None });
    assert_eq!(left(&lock.release(&member('b', 1))), 1);
    assert_eq!(lock.inspect().holds[0].left_ms, 0);
}
