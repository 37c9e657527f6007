//! Tokens, and what happens to a hold.

use super::*;

#[test]
fn readers_of_one_run_share_a_token_and_a_write_has_one_above_all_before_it() {
    let mut lock = Bench::new();
    let mut tokens = Vec::new();
    for member in [read('a', 1), read('b', 1)] {
        lock.pass(1);
        tokens.push(lock.acquire(&member).grants[0].token.get());
    }
    assert_eq!(tokens[0], tokens[1]);
    lock.acquire_all(&[&write('c', 1), &read('d', 1), &read('d', 2)]);
    lock.release(&read('a', 1));
    lock.pass(1);
    lock.release(&read('b', 1));
    let writes = lock.token();
    assert!(writes > tokens[1]);
    lock.pass(1);
    lock.release(&write('c', 1));
    let reads = lock.token();
    assert!(reads > writes);
    assert_eq!(lock.acquire(&read('e', 1)).grants[0].token.get(), reads);
}

#[test]
fn a_token_rises_although_the_clock_goes_back() {
    let mut lock = Bench::new();
    let first = lock.acquire(&write('a', 1)).grants[0].token.get();
    lock.release(&write('a', 1));
    lock.now_us -= 5_000_000;
    assert_eq!(lock.acquire(&write('a', 2)).grants[0].token.get(), first + 1);
}

#[test]
fn a_token_that_cannot_be_followed_counts_as_none() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    lock.state.token = FencingToken::try_from((1 << 53) - 1).ok();
    lock.release(&write('a', 1));
    assert_eq!(lock.acquire(&write('b', 1)).grants[0].token.get(), lock.now_us);
}

#[test]
fn a_release_gives_back_once() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    assert_eq!(lock.release(&permits('a', 1, 2, 3)).outcome, Released::Released);
    assert_eq!(lock.release(&permits('a', 1, 2, 3)).outcome, Released::NotHeld);
    assert_eq!(lock.state.used, Some(1));
}

#[test]
fn a_lapsed_hold_in_whose_place_nothing_was_granted_counts_as_released() {
    let mut lock = Bench::new();
    let a = with_lease('a', 1, 1_000, Demand::WRITE);
    lock.acquire(&a);
    lock.pass(1_000);
    assert_eq!(lock.release(&a).outcome, Released::Released);
    lock.acquire(&a);
    lock.pass(1_000);
    lock.acquire(&write('b', 1));
    assert_eq!(lock.release(&a).outcome, Released::NotHeld);
}

#[test]
fn a_renewal_extends_each_that_holds_and_revives_none() {
    let mut lock = Bench::new();
    let short = with_lease('a', 2, 1_000, Demand::READ);
    lock.acquire_all(&[&read('a', 1), &short]);
    lock.pass(1_000);
    let reply = lock.renew(&[&read('a', 1), &short, &read('a', 3)]);
    assert_eq!(reply.outcome, [Renewed::Held, Renewed::NotHeld, Renewed::NotHeld]);
    assert_eq!(lock.left(&read('a', 1)), LEASE);
    assert!(lock.holds(&short), "it is taken out by the next who needs its place");
}

#[test]
fn a_renewal_hands_nothing_over() {
    let mut lock = Bench::new();
    let short = with_lease('a', 2, 1_000, Demand::READ);
    lock.acquire_all(&[&short, &read('a', 1), &write('b', 1)]);
    lock.pass(1_000);
    lock.state.holds.remove(&read('a', 1));
    lock.state.used = Some(1);
    lock.renew(&[&short]);
    assert_eq!(lock.waiting(), [write('b', 1)]);
}

#[test]
fn a_write_that_is_reduced_lets_readers_in_under_a_new_token() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('b', 1), &write('c', 1)]);
    let before = lock.token();
    lock.pass(1);
    let reply = lock.reduce(&write('a', 1), 1);
    assert_eq!(reply.outcome, [Renewed::Held]);
    assert_eq!(lock.holders(), [write('a', 1), read('b', 1)]);
    assert!(lock.token() > before);
    assert_eq!(reply.grants[0].member, write('a', 1));
    assert_eq!((reply.grants[0].token.get(), lock.state.used), (lock.token(), Some(2)));
}

#[test]
fn a_reduction_that_is_asked_again_has_the_same_token() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    let first = lock.reduce(&write('a', 1), 1);
    lock.pass(1);
    let again = lock.reduce(&write('a', 1), 1);
    assert_eq!((again.outcome, again.grants), (first.outcome, first.grants));
}

#[test]
fn a_reduction_never_raises_and_needs_a_hold_that_has_not_lapsed() {
    let mut lock = Bench::new();
    let a = permits('a', 1, 2, 3);
    lock.acquire(&a);
    let token = lock.token();
    assert_eq!(lock.reduce(&a, 3).outcome, [Renewed::Held]);
    assert_eq!(lock.state.used, Some(2));
    assert_eq!(lock.reduce(&a, 1).outcome, [Renewed::Held]);
    assert_eq!((lock.state.used, lock.token()), (Some(1), token));
    assert_eq!(lock.reduce(&permits('b', 1, 2, 3), 1).outcome, [Renewed::NotHeld]);
    lock.pass(LEASE);
    assert_eq!(lock.reduce(&a, 1).outcome, [Renewed::NotHeld]);
}

#[test]
fn what_was_reduced_gives_back_what_it_weighs_now() {
    let mut lock = Bench::new();
    lock.acquire(&permits('a', 1, 3, 4));
    lock.acquire(&permits('b', 1, 1, 4));
    lock.reduce(&permits('a', 1, 3, 4), 1);
    lock.release(&permits('a', 1, 3, 4));
    assert_eq!((lock.state.used, lock.state.reduced.len()), (Some(1), 0));
}

#[test]
fn a_renewed_hold_keeps_its_reduced_weight() {
    let mut lock = Bench::new();
    lock.acquire(&write('a', 1));
    lock.reduce(&write('a', 1), 1);
    lock.renew(&[&write('a', 1)]);
    assert_eq!((lock.state.used, lock.state.weight(&write('a', 1))), (Some(1), 1));
}

#[test]
fn force_release_drops_one_or_all_tells_their_nodes_and_hands_on() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&read('a', 1), &read('a', 2), &read('b', 1), &write('c', 1)]);
    assert_eq!(lock.force_release('z', Some(&read('a', 1))).outcome, Released::Released);
    let revoked = |letter, numbers: &[u64]| Message::Revoked {
        node: node(letter),
        numbers: numbers.to_vec(),
    };
    assert_eq!(lock.said(), [revoked('a', &[1])]);
    lock.force_release('z', None);
    assert_eq!(lock.said()[..2], [revoked('a', &[2]), revoked('b', &[1])]);
    assert_eq!(lock.holders(), [write('c', 1)]);
    assert_eq!(lock.force_release('z', Some(&read('a', 1))).outcome, Released::NotHeld);
}

#[test]
fn inspect_tells_holds_queue_and_token_and_changes_nothing() {
    let mut lock = Bench::new();
    lock.acquire_all(&[&write('a', 1), &read('b', 1)]);
    lock.reduce(&write('a', 1), 1);
    lock.acquire(&write('c', 1));
    lock.pass(1_000);
    let before = lock.state.clone();
    let found = lock.inspect();
    let (first, second) = (read('b', 1).into(), write('a', 1).into());
    assert_eq!(found.holds, [(first, 1, CLAIM - 1_000), (second, 1, LEASE - 1_000)]);
    assert_eq!(found.waiters, [(write('c', 1).into(), START + PATIENCE_MS)]);
    assert_eq!(found.token, before.token);
    assert_eq!(lock.state, before);
}

#[test]
fn everything_expires_together_a_minute_after_the_last_thing_in_it() {
    let mut lock = Bench::new();
    lock.acquire(&read('a', 1));
    let ends_ms = lock.state.ends_ms.unwrap();
    assert!((START + LEASE + 60_000..START + LEASE + 90_001).contains(&ends_ms));
    assert_eq!(ends_ms % 30_000, 0);
    lock.pass(1);
    lock.acquire(&read('b', 1));
    assert_eq!(lock.state.ends_ms, Some(ends_ms), "not written with every command");
    lock.state.expire(ends_ms);
    assert_eq!(lock.state, PermitState::default());
}
