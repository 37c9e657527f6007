//! Holds: release, renew, force release, tokens and expiry.

use super::*;
use crate::demand::ALL;

#[test]
fn only_the_holder_can_release_and_only_once() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    assert_eq!(lock.release(&member('a', 2)).outcome, Released::NotHeld);
    assert_eq!(lock.release(&a).outcome, Released::Released);
    let again = lock.release(&a);
    assert_eq!((again.outcome, left(&again), again.grants), (Released::NotHeld, 0, vec![]));
}

#[test]
fn a_renewal_sets_the_members_full_lease() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.pass(20_000);
    let reply = lock.renew(&a);
    assert_eq!((left(&reply), reply.outcome), (LEASE, vec![Renewed::Held]));
    assert_eq!(reply.grants[0].token.get(), START * 1_000);
}

#[test]
fn a_renewal_turns_a_claim_into_the_full_lease() {
    let (mut lock, b) = (Bench::new(), member('b', 1));
    lock.acquire(&member('a', 1));
    lock.acquire(&b);
    lock.release(&member('a', 1));
    assert_eq!(lock.inspect().holds[0].2, CLAIM);
    assert_eq!(left(&lock.renew(&b)), LEASE);
}

#[test]
fn a_renewal_never_revives_and_never_hands_over() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.acquire(&member_with_lease('b', 1, LEASE));
    lock.pass(10_000);
    lock.touch(&[&member('b', 1)]);
    lock.pass(10_000);
    lock.touch(&[&member('b', 1)]);
    // A lease has ended in the ms in which nothing is left of it.
    lock.pass(10_000);
    let reply = lock.renew(&a);
    assert_eq!((left(&reply), reply.outcome), (0, vec![Renewed::NotHeld]));
    assert_eq!(lock.said(), []);
    assert_eq!(lock.holder(), None);
    assert_eq!(lock.waiting(), [member('b', 1)]);
}

#[test]
fn a_forced_release_tells_the_holders_node_first_and_then_hands_over() {
    let (mut lock, a, b) = (Bench::new(), member('a', 1), member('b', 1));
    lock.acquire(&a);
    lock.acquire(&b);
    let reply = lock.force_release('c');
    assert_eq!((reply.outcome, left(&reply), reply.grants), (Released::Released, CLAIM, vec![]));
    let said = lock.said();
    assert_eq!(said[0], Message::Revoked { node: node('a'), member: ours(&a) });
    assert!(matches!(&said[1..], [Message::Grant { member, left_ms: CLAIM, .. }] if b == *member));
}

#[test]
fn a_forced_release_of_a_free_lock_is_not_held_and_of_a_foreign_one_is_silent() {
    let mut lock = Bench::new();
    assert_eq!(lock.force_release('a').outcome, Released::NotHeld);
    lock.state.hold = Some(Hold { member: jvm(1), expires_ms: None });
    assert_eq!(lock.force_release('a').outcome, Released::Released);
    assert_eq!(lock.said(), []);
    assert_eq!(lock.holder(), None);
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
fn a_token_has_no_end_since_an_rfencedlock_counts_on_from_it() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    let expiry = |lock: &Bench| lock.state.token.as_ref().map(|token| token.expires_ms);
    assert_eq!(expiry(&lock), Some(None));
    lock.renew(&a);
    lock.release(&a);
    assert_eq!(expiry(&lock), Some(None));
}

#[test]
fn a_lost_token_is_replaced_when_its_holder_asks_and_the_lease_stays() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.pass(3_000);
    lock.state.token = None;
    assert_eq!(lock.acquire(&member('b', 1)).grants, []);
    assert_eq!(lock.state.token, None);
    let reply = lock.acquire(&a);
    assert_eq!(left(&reply), LEASE - 3_000);
    assert_eq!(reply.grants[0].token.get(), lock.now_us);
}

#[test]
fn less_than_a_millisecond_left_of_a_hold_is_told_as_one() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.pass(LEASE - 1);
    assert_eq!(left(&lock.release(&member('b', 1))), 1);
    // Without an end, nothing of it is known to be left.
    lock.state.hold = Some(Hold { member: a, expires_ms: None });
    assert_eq!(left(&lock.release(&member('b', 1))), 1);
    assert_eq!(lock.inspect().holds[0].2, 0);
}

#[test]
fn acquire_and_touch_give_a_hold_without_an_end_the_first_members_lease() {
    let endless = |lock: &mut Bench, member| {
        lock.state.hold = Some(Hold { member, expires_ms: None });
    };
    let mut lock = Bench::new();
    endless(&mut lock, member('c', 1));
    assert_eq!(left(&lock.acquire(&member_with_lease('a', 1, 7_000))), 7_000);
    endless(&mut lock, member('c', 1));
    let (first, second) = (member_with_lease('a', 2, 8_000), member_with_lease('a', 1, 7_000));
    assert_eq!(left(&lock.touch(&[&first, &second])), 8_000);
    // A JVM knows nothing of our lease.
    endless(&mut lock, jvm(1));
    assert_eq!(left(&lock.touch(&[&first])), 30_000);
    endless(&mut lock, jvm(1));
    assert_eq!(left(&lock.acquire(&member_with_lease('a', 3, 40_000))), 40_000);
}

#[test]
fn inspect_tells_holder_token_and_queue_and_changes_nothing() {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    lock.acquire(&member('b', 1));
    lock.queue_foreign(&jvm(1), START + 300_000);
    lock.pass(100);
    let before = lock.state.clone();
    let found = lock.inspect();
    assert_eq!(found.holds, [(member('a', 1), ALL.into(), LEASE - 100)]);
    assert_eq!(found.token.map(FencingToken::get), Some(START * 1_000));
    assert_eq!(found.now_us, lock.now_us);
    let waiters = [(member('b', 1), START + PATIENCE_MS), (jvm(1), START + 300_000)];
    assert_eq!(found.waiters, waiters);
    assert_eq!(lock.state, before);
}

#[test]
fn a_minute_after_its_last_use_only_the_token_is_left_of_a_lock() {
    let (mut lock, a) = (Bench::new(), member('a', 1));
    lock.acquire(&a);
    lock.leave(&a, true);
    lock.pass(TOMBSTONE_MS - 1);
    lock.inspect();
    assert!(!lock.state.gone.is_empty());
    lock.pass(1);
    lock.inspect();
    assert!(lock.state.token.take().is_some());
    assert_eq!(lock.state, LockState::default());
    assert!(lock.state.is_empty());
}
