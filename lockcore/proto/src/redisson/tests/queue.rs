//! Waiting: touch, leave, the sweep, and the expiry of the queue.

use super::*;
use crate::redisson::peers::ALIVE_MS;

fn held() -> Bench {
    let mut lock = Bench::new();
    lock.acquire(&member_with_lease('h', 1, 600_000));
    lock
}

#[test]
fn a_touch_tells_of_each_member_in_order_and_raises_only_waiters() {
    let mut lock = held();
    let (waits, holds, unknown) =
        (member('h', 2), member_with_lease('h', 1, 600_000), member('h', 3));
    lock.acquire(&waits);
    lock.pass(4_000);
    let mut reply = lock.touch(&[&unknown, &waits, &holds]);
    let expected = [Presence::Gone, Presence::Waiting, Presence::Holding];
    assert_eq!(reply.outcome.members, expected);
    assert_eq!(lock.deadline(&waits), lock.now() + PATIENCE_MS);
    assert_eq!(lock.state.deadlines.len(), 1);
    assert_eq!(reply.grants.pop().map(|grant| grant.member), Some(ours(&holds)));
}

#[test]
fn a_touch_never_lowers_a_deadline() {
    let (mut lock, b) = (held(), member('b', 1));
    lock.acquire(&b);
    lock.state.alive.set(&b, START + 90_000);
    lock.touch(&[&b]);
    assert_eq!(lock.deadline(&b), START + 90_000);
}

#[test]
fn a_touch_tells_a_node_that_nobody_listens_to_its_channel() {
    let (mut lock, b) = (held(), member('b', 1));
    lock.acquire(&b);
    assert_eq!(lock.touch(&[&b]).outcome.listeners, 1);
    lock.away = "b".into();
    assert_eq!(lock.touch(&[&b]).outcome.listeners, 0);
}

#[test]
fn a_waiter_that_is_silent_for_its_patience_is_gone_the_ms_it_ends() {
    let (mut lock, b, c) = (held(), member('b', 1), member('c', 1));
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
fn leaving_tells_who_was_there_and_hands_a_hold_over() {
    let mut lock = Bench::new();
    let (a, b) = (member('a', 1), member('b', 1));
    lock.acquire(&a);
    lock.acquire(&member('a', 2));
    lock.acquire(&b);
    let leaving = [&a, &member('a', 2), &member('a', 3)]
        .map(|member| Leaving { member: ours(member), ambiguous: false });
    let answer = lock.run('a', Command::Leave { leaving: leaving.into() });
    let Answer::Left(reply) = answer else { unreachable!() };
    assert_eq!(reply.outcome, [Left::Left, Left::Left, Left::Absent]);
    assert_eq!((lock.holder(), lock.waiting()), (Some(&b), vec![]));
    assert!(lock.state.gone.is_empty());
}

#[test]
fn only_an_ambiguous_leave_writes_a_tombstone_and_does_so_in_any_case() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    assert_eq!(lock.leave(&member('b', 1), true).outcome, [Left::Left]);
    assert_eq!(lock.leave(&member('b', 2), true).outcome, [Left::Absent]);
    lock.leave(&member('b', 3), false);
    let expires_ms = lock.now() + TOMBSTONE_MS;
    let expected = [1, 2].map(|number| (ours(&member('b', number)), expires_ms));
    assert_eq!(lock.state.gone, BTreeMap::from(expected));
}

#[test]
fn the_sweep_drops_sixteen_at_a_time_the_lowest_deadlines_first() {
    let mut lock = held();
    for number in 0..20 {
        lock.acquire(&member('b', number));
        lock.pass(1);
    }
    lock.pass(PATIENCE_MS);
    lock.acquire(&member('c', 1));
    let left: Vec<Party> = (16..20).map(|number| member('b', number)).collect();
    assert_eq!(lock.waiting(), [left, vec![member('c', 1)]].concat());
    lock.touch(&[&member('c', 1)]);
    assert_eq!(lock.waiting(), [member('c', 1)]);
}

#[test]
fn the_sweep_never_drops_a_foreign_member() {
    let mut lock = held();
    lock.queue_foreign(&jvm(1), lock.now() + 10);
    lock.acquire(&member('b', 1));
    lock.pass(PATIENCE_MS);
    lock.acquire(&member('c', 1));
    assert_eq!(lock.waiting(), [jvm(1), member('c', 1)]);
}

#[test]
fn the_queue_has_no_end_and_ours_are_forgotten_75_s_after_the_last_was_heard_of() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    assert_eq!(lock.state.queue_expires_ms, None);
    assert_eq!(lock.state.alive_expires_ms, Some(START + ALIVE_MS));
    lock.pass(ALIVE_MS - 1);
    lock.inspect();
    assert_eq!((lock.state.alive.len(), lock.state.arrivals.len()), (1, 1));
    lock.pass(1);
    lock.inspect();
    assert!(lock.state.alive.is_empty() && lock.state.arrivals.is_empty());
    assert_eq!(lock.state.alive_expires_ms, None);
}

#[test]
fn a_touch_and_a_pass_over_move_the_end_of_what_is_known_of_ours() {
    let (mut lock, b) = (held(), member('b', 1));
    lock.acquire(&b);
    lock.pass(2_000);
    lock.touch(&[&b]);
    assert_eq!(lock.state.alive_expires_ms, Some(lock.now() + ALIVE_MS));
    lock.pass(2_000);
    lock.away = "b".into();
    lock.release(&member_with_lease('h', 1, 600_000));
    assert_eq!(lock.state.alive_expires_ms, Some(lock.now() + ALIVE_MS));
}

#[test]
fn a_queue_that_has_an_end_loses_it_by_a_touch() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    lock.state.queue_expires_ms = Some(START + 400_000);
    lock.touch(&[&member('b', 1)]);
    assert_eq!(lock.state.queue_expires_ms, None);
}

#[test]
fn a_sorted_set_without_a_list_is_deleted_before_use() {
    for is_touch in [false, true] {
        let (mut lock, b) = (held(), member('b', 1));
        lock.state.deadlines.set(&b, START + 1_000);
        if is_touch {
            assert_eq!(lock.presence(&b), Presence::Gone);
            assert!(lock.state.deadlines.is_empty());
        } else {
            assert_eq!(lock.acquire_as(&b, Mode::Wait, 1).outcome, queued(0));
            assert_eq!(lock.deadline(&b), START + PATIENCE_MS);
        }
    }
}

#[test]
fn a_reply_tells_how_many_were_passed_over() {
    let mut lock = held();
    for number in 0..3 {
        lock.acquire(&member('b', number));
    }
    lock.away = "b".into();
    assert_eq!(lock.release(&member_with_lease('h', 1, 600_000)).passed_over, 3);
    assert_eq!(lock.acquire(&member('c', 1)).passed_over, 3);
    assert_eq!(lock.acquire(&member('c', 1)).passed_over, 0);
}
