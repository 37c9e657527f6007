//! Staying in the queue, and leaving it.

use super::*;

#[test]
fn a_waiter_of_a_silent_node_is_dropped_when_it_is_reached() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1)]);
    bench.pass(PATIENCE_MS);
    bench.acquire(&lock('b', 1));
    bench.release(&lock('a', 1));
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('b', 1)], vec![]));
}

#[test]
fn a_queue_that_is_full_of_the_silent_takes_newcomers() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('d', 1), &lock('d', 2)]);
    assert_eq!(bench.acquire_as(&lock('b', 1), Mode::Wait, 2).outcome, Acquired::Full);
    bench.pass(PATIENCE_MS);
    assert_eq!(bench.acquire_as(&lock('b', 1), Mode::Wait, 2).outcome, queued(0));
}

#[test]
fn an_attempt_that_was_given_up_is_never_granted() {
    let mut bench = Bench::new();
    bench.leave(&lock('a', 1), true);
    assert_eq!(bench.acquire(&lock('a', 1)).outcome, Acquired::Refused);
    assert_eq!(bench.acquire(&lock('b', 1)).outcome, Acquired::Granted);
    bench.leave(&lock('c', 1), true);
    bench.release(&lock('b', 1));
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, Acquired::Refused);
    bench.pass(TOMBSTONE_MS);
    bench.touch(&[&lock('c', 1)]);
    assert_eq!(bench.state.gone, SortedSet::default());
}

/// A lock with a short lease and a waiter, after `c` has given up. Then the clock is set back, and
/// the holder renews: its door ends before the tombstone.
fn given_up_before_the_clock_was_set_back() -> Bench {
    let mut bench = Bench::new();
    let holder = with_lease('a', 1, 2_000, Demand::ALONE);
    bench.acquire_all(&[&holder, &lock('b', 1)]);
    bench.leave(&lock('c', 1), true);
    bench.set_back(46_000);
    assert_eq!(bench.renew_one(&holder), Renewed::Held);
    bench
}

#[test]
fn an_attempt_that_was_given_up_is_refused_for_a_minute_also_where_the_clock_is_set_back() {
    let mut bench = given_up_before_the_clock_was_set_back();
    bench.pass(TOMBSTONE_MS - 1);
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, Acquired::Refused);
}

#[test]
fn a_tombstone_that_outlives_its_door_counts_no_more_and_no_waiter_is_lost() {
    let mut bench = given_up_before_the_clock_was_set_back();
    // The clock is set forward: since `c` gave up, it went through more than a minute.
    bench.pass(64_000);
    bench.touch(&[&lock('b', 1)]);
    assert_eq!(bench.holders(), [lock('b', 1)]);
    let mark = bench.state.door.as_ref().map(|door| door.mark);
    assert_eq!(mark, Some(Mark::Waited));
    assert!(bench.state.gone.get(&lock('c', 1)).is_some());
    assert_eq!(bench.acquire(&lock('c', 1)).outcome, queued(0));
    bench.acquire(&lock('d', 1));
    bench.release(&lock('b', 1));
    assert_eq!(bench.holders(), [lock('c', 1)]);
    bench.release(&lock('c', 1));
    assert_eq!(bench.holders(), [lock('d', 1)]);
}

#[test]
fn a_touch_tells_which_wait_which_hold_and_which_are_gone() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &lock('a', 2)]);
    bench.pass(1_000);
    let reply = bench.touch(&[&read('a', 1), &lock('a', 2), &read('a', 3)]);
    let expected = [Presence::Holding, Presence::Waiting, Presence::Gone];
    assert_eq!((&reply.outcome.members[..], reply.outcome.listeners), (&expected[..], 1));
    assert_eq!((&reply.grants[0].member, reply.grants[0].left_ms), (&read('a', 1), LEASE - 1_000));
    assert_eq!(bench.state.patience[node('a').as_str()], bench.now() + PATIENCE_MS);
    bench.away = "a".into();
    assert_eq!(bench.touch(&[&read('a', 1)]).outcome.listeners, 0);
}

#[test]
fn a_hold_whose_lease_has_ended_is_gone_for_a_touch() {
    for one in [lock('a', 1), read('a', 1)] {
        let mut bench = Bench::new();
        bench.acquire(&one);
        bench.pass(LEASE);
        assert_eq!(bench.presence(&one), Presence::Gone);
    }
}

#[test]
fn a_touch_hands_on_what_is_free_and_tells_it() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&with_lease('a', 1, 1_000, Demand::ALONE), &lock('b', 1)]);
    bench.pass(1_000);
    let reply = bench.touch(&[&lock('b', 1)]);
    assert_eq!(reply.outcome.members, [Presence::Waiting]);
    assert_eq!((&reply.grants[0].member, reply.grants[0].left_ms), (&lock('b', 1), CLAIM));
    assert_eq!(bench.presence(&lock('b', 1)), Presence::Holding);
}

#[test]
fn a_touch_of_a_waiter_of_a_silent_node_keeps_it() {
    let mut bench = Bench::new();
    let holder = with_lease('a', 1, 600_000, Demand::ALONE);
    bench.acquire_all(&[&holder, &lock('b', 1), &lock('g', 1)]);
    bench.pass(PATIENCE_MS);
    assert_eq!(bench.presence(&lock('b', 1)), Presence::Waiting);
    bench.release(&holder);
    assert_eq!((bench.holders(), bench.waiting()), (vec![lock('b', 1)], vec![lock('g', 1)]));
}

#[test]
fn a_touch_that_runs_after_a_leave_revives_nothing() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &read('b', 1)]);
    bench.leave(&read('b', 1), false);
    assert_eq!(bench.presence(&read('b', 1)), Presence::Gone);
    assert_eq!(bench.waiting(), []);
}

#[test]
fn a_leave_takes_out_waiters_and_holders_and_tells_which_were_there() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &lock('a', 2)]);
    let leaving = [read('a', 1), lock('a', 2), read('a', 3)]
        .map(|member| Leaving { member, ambiguous: false });
    let command = Command::Leave { leaving: leaving.to_vec() };
    let Answer::Left(reply) = bench.run('a', &command) else { unreachable!() };
    assert_eq!(reply.outcome, [Left::Left, Left::Left, Left::Absent]);
    assert_eq!((bench.used(), bench.holders(), bench.waiting()), (0, vec![], vec![]));
}

#[test]
fn an_attempt_that_was_granted_and_given_up_is_refused_when_its_copy_arrives() {
    for one in [lock('a', 1), read('a', 1)] {
        let mut bench = Bench::new();
        bench.acquire(&one);
        assert_eq!(bench.leave(&one, true), Left::Left);
        assert_eq!(bench.acquire(&one).outcome, Acquired::Refused);
        assert_eq!(bench.used(), 0);
    }
}

#[test]
fn a_newcomer_renews_its_nodes_patience_only_where_little_is_left() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&with_lease('a', 1, 600_000, Demand::ALONE), &lock('b', 1)]);
    let until_ms = bench.now() + PATIENCE_MS;
    bench.pass(PATIENCE_MS - FRESH_MS);
    bench.acquire(&lock('b', 2));
    assert_eq!(bench.state.patience[node('b').as_str()], until_ms);
    bench.pass(1);
    bench.acquire(&lock('b', 3));
    assert_eq!(bench.state.patience[node('b').as_str()], bench.now() + PATIENCE_MS);
}
