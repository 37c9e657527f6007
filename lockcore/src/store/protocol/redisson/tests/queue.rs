//! Waiting: touch, leave, the sweep, and the expiry of the queue.

use super::*;

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
    lock.state.deadlines.set(&b, START + 90_000);
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
fn list_and_sorted_set_expire_together_a_minute_after_the_greatest_deadline() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    assert_eq!(lock.state.queue_expires_ms, Some(START + PATIENCE_MS + QUEUE_SLACK_MS));
    lock.pass(PATIENCE_MS + QUEUE_SLACK_MS - 1);
    lock.inspect();
    assert_eq!(lock.waiting().len(), 1);
    lock.pass(1);
    lock.inspect();
    assert!(lock.waiting().is_empty() && lock.state.deadlines.is_empty());
    assert_eq!(lock.state.queue_expires_ms, None);
}

#[test]
fn an_enqueue_behind_others_writes_the_expiry_once_less_than_a_minute_is_left() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    let first = lock.now() + PATIENCE_MS + QUEUE_SLACK_MS;
    lock.state.deadlines.set(&member('b', 1), START + 60_000);
    lock.pass(PATIENCE_MS);
    lock.acquire(&member('b', 2));
    assert_eq!(lock.state.queue_expires_ms, Some(first));
    lock.pass(1);
    lock.state.deadlines.set(&member('b', 1), START);
    lock.acquire(&member('b', 3));
    let third = lock.now() + PATIENCE_MS + QUEUE_SLACK_MS;
    assert_eq!(lock.state.queue_expires_ms, Some(third));
}

#[test]
fn a_touch_and_a_pass_over_move_the_queues_expiry() {
    let (mut lock, b) = (held(), member('b', 1));
    lock.acquire(&b);
    lock.pass(2_000);
    lock.touch(&[&b]);
    let expected = lock.now() + PATIENCE_MS + QUEUE_SLACK_MS;
    assert_eq!(lock.state.queue_expires_ms, Some(expected));
    lock.away = "b".into();
    lock.release(&member_with_lease('h', 1, 600_000));
    let expected = lock.now() + PASSED_OVER_MS + QUEUE_SLACK_MS;
    assert_eq!(lock.state.queue_expires_ms, Some(expected));
}

#[test]
fn a_queue_whose_greatest_deadline_is_foreign_has_no_expiry() {
    let mut lock = held();
    lock.acquire(&member('b', 1));
    lock.queue_foreign(&jvm(1), START + 300_000);
    lock.state.queue_expires_ms = Some(START + 400_000);
    lock.touch(&[&member('b', 1)]);
    assert_eq!(lock.state.queue_expires_ms, None);
    lock.state.deadlines.set(&jvm(1), START + 1_000);
    lock.touch(&[&member('b', 1)]);
    assert_eq!(lock.state.queue_expires_ms, Some(START + PATIENCE_MS + QUEUE_SLACK_MS));
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
fn after_a_hand_over_the_queue_expires_with_those_who_were_passed_over() {
    let (mut lock, b, c) = (held(), member('b', 1), member('c', 1));
    lock.acquire(&b);
    lock.acquire(&c);
    lock.away = "b".into();
    lock.release(&member_with_lease('h', 1, 600_000));
    assert_eq!((lock.holder(), lock.waiting()), (Some(&c), vec![b]));
    // The grantee's deadline is not the greatest any more: it has left the queue.
    assert_eq!(lock.state.queue_expires_ms, Some(START + PASSED_OVER_MS + QUEUE_SLACK_MS));
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
