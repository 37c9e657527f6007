//! Advance: who is handed a free lock.

use super::*;

/// Held by `a`, with these members waiting in order.
fn held_with_queue(members: &[Party]) -> Bench {
    let mut lock = Bench::new();
    lock.acquire(&member('a', 1));
    for member in members {
        lock.acquire(member);
    }
    lock
}

#[test]
fn a_release_hands_the_lock_to_the_head_for_its_own_claim_and_tells_its_node() {
    let b = member_with_lease('b', 1, 24_000);
    let mut lock = held_with_queue(&[b.clone(), member('c', 1)]);
    let reply = lock.release(&member('a', 1));
    assert_eq!((reply.outcome, left(&reply)), (Released::Released, 8_000));
    assert_eq!(reply.grants, []);
    let token = lock.state.token.as_ref().expect("it was granted").value;
    assert_eq!(token.get(), START * 1_000 + 1);
    let grant = Message::Grant { node: node('b'), member: ours(&b), token, left_ms: 8_000 };
    assert_eq!(lock.said(), [grant]);
    assert_eq!((lock.holder(), lock.waiting()), (Some(&b), vec![member('c', 1)]));
}

#[test]
fn a_member_of_the_calling_node_is_told_by_the_reply_alone_even_if_the_node_is_deaf() {
    let mut lock = held_with_queue(&[member('a', 2)]);
    lock.away = "a".into();
    let reply = lock.release(&member('a', 1));
    assert_eq!(member('a', 2), reply.grants[0].member);
    assert_eq!((left(&reply), lock.said()), (CLAIM, vec![]));
}

#[test]
fn members_whose_deadline_has_passed_are_dropped_on_the_way() {
    let mut lock = held_with_queue(&[member('b', 1)]);
    lock.pass(1);
    lock.acquire(&member('c', 1));
    lock.pass(PATIENCE_MS - 1);
    lock.release(&member('a', 1));
    assert_eq!((lock.holder(), lock.waiting()), (Some(&member('c', 1)), vec![]));
}

#[test]
fn a_foreign_head_is_dropped_once_its_deadline_has_passed() {
    let mut lock = held_with_queue(&[]);
    lock.queue_foreign(&jvm(1), lock.now() + 1_000);
    lock.acquire(&member('b', 1));
    lock.pass(1_000);
    lock.release(&member('a', 1));
    assert_eq!(lock.holder(), Some(&member('b', 1)));
}

#[test]
fn a_foreign_head_is_poked_and_stops_the_walk() {
    let mut lock = held_with_queue(&[]);
    lock.queue_foreign(&jvm(1), lock.now() + 300_000);
    lock.acquire(&member('b', 1));
    let reply = lock.release(&member('a', 1));
    assert_eq!(left(&reply), 0);
    assert_eq!(lock.said(), [Message::Poke { member: jvm(1) }]);
    assert_eq!((lock.holder(), lock.waiting()), (None, vec![jvm(1), member('b', 1)]));
}

#[test]
fn members_of_a_node_that_is_away_are_passed_over_keep_their_place_and_lose_patience() {
    let mut lock = held_with_queue(&[member('b', 1), member('b', 2), member('c', 1)]);
    lock.away = "b".into();
    lock.release(&member('a', 1));
    assert_eq!(lock.holder(), Some(&member('c', 1)));
    assert_eq!(lock.waiting(), [member('b', 1), member('b', 2)]);
    for number in [1, 2] {
        assert_eq!(lock.deadline(&member('b', number)), lock.now() + PASSED_OVER_MS);
    }
    lock.away.clear();
    lock.release(&member('c', 1));
    assert_eq!(lock.holder(), Some(&member('b', 1)));
}

#[test]
fn passing_over_never_lengthens_a_deadline() {
    let mut lock = held_with_queue(&[member('b', 1)]);
    let deadline = lock.deadline(&member('b', 1));
    lock.away = "b".into();
    lock.pass(PATIENCE_MS - 1_000);
    lock.release(&member('a', 1));
    assert_eq!(lock.deadline(&member('b', 1)), deadline);
}

#[test]
fn each_node_is_asked_at_most_once_in_a_walk() {
    let mut lock = held_with_queue(&[member('b', 1), member('c', 1), member('b', 2)]);
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
fn a_queue_found_empty_has_its_sorted_set_deleted() {
    let mut lock = held_with_queue(&[]);
    lock.state.deadlines.set(&member('b', 1), lock.now() + 1_000);
    lock.release(&member('a', 1));
    assert!(lock.state.deadlines.is_empty());
}

#[test]
fn a_list_entry_without_a_score_is_dropped_at_the_head() {
    let mut lock = held_with_queue(&[member('b', 1), member('c', 1)]);
    lock.state.deadlines.remove(&member('b', 1));
    lock.release(&member('a', 1));
    assert_eq!((lock.holder(), lock.waiting()), (Some(&member('c', 1)), vec![]));
}

#[test]
fn a_release_of_a_hold_that_has_ended_still_hands_over() {
    let mut lock = held_with_queue(&[]);
    lock.pass(LEASE - 1);
    lock.acquire(&member('b', 1));
    lock.pass(1);
    assert_eq!(lock.release(&member('a', 1)).outcome, Released::NotHeld);
    assert_eq!(lock.holder(), Some(&member('b', 1)));
}

#[test]
fn a_claim_that_nobody_renews_goes_to_the_next() {
    let mut lock = held_with_queue(&[member('b', 1), member('c', 1)]);
    lock.release(&member('a', 1));
    lock.pass(CLAIM);
    let reply = lock.touch(&[&member('c', 1)]);
    assert_eq!(reply.outcome.members, [Presence::Waiting]);
    assert_eq!(member('c', 1), reply.grants[0].member);
    assert_eq!(left(&reply), CLAIM);
}
