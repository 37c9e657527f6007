//! The life of a hold.

use super::*;

#[test]
fn a_release_gives_back_once() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permits('a', 1, 2, 3), &permits('b', 1, 1, 3)]);
    assert_eq!(bench.release(&permits('a', 1, 2, 3)).outcome, Released::Released);
    assert_eq!(bench.release(&permits('a', 1, 2, 3)).outcome, Released::NotHeld);
    assert_eq!(bench.used(), 1);
}

#[test]
fn a_lapsed_part_in_whose_place_nothing_was_granted_counts_as_released() {
    let mut bench = Bench::new();
    let a = with_lease('a', 1, 1_000, Demand::READ);
    bench.acquire(&a);
    bench.pass(1_000);
    assert_eq!(bench.release(&a).outcome, Released::Released);
    bench.acquire(&a);
    bench.pass(1_000);
    bench.acquire(&lock('b', 1));
    assert_eq!(bench.release(&a).outcome, Released::NotHeld);
}

#[test]
fn a_renewal_extends_each_that_holds_and_revives_none() {
    let mut bench = Bench::new();
    let short = with_lease('a', 2, 1_000, Demand::READ);
    bench.acquire_all(&[&read('a', 1), &short]);
    bench.pass(1_000);
    let outcome = bench.renew(&[&read('a', 1), &short, &read('a', 3)]);
    assert_eq!(outcome, [Renewed::Held, Renewed::NotHeld, Renewed::NotHeld]);
    assert_eq!(bench.left(&read('a', 1)), LEASE);
    assert!(bench.holds(&short), "it is taken out by the next that needs its place");
}

#[test]
fn neither_a_renewal_nor_a_confirmation_hands_anything_over_or_revives() {
    let mut bench = Bench::new();
    let short = with_lease('a', 2, 1_000, Demand::READ);
    bench.acquire_all(&[&short, &lock('b', 1)]);
    bench.pass(1_000);
    assert_eq!(bench.renew_one(&short), Renewed::NotHeld);
    let reply = bench.confirm(&short);
    assert_eq!((reply.outcome, reply.grants), (vec![Renewed::NotHeld], vec![]));
    assert_eq!(bench.waiting(), [lock('b', 1)]);
}

#[test]
fn a_confirmation_extends_a_claim_to_the_whole_lease() {
    for one in [lock('b', 1), read('b', 1)] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&lock('a', 1), &one]);
        bench.release(&lock('a', 1));
        assert_eq!(bench.left(&one), CLAIM);
        assert_eq!(bench.confirm(&one).outcome, [Renewed::Held]);
        assert_eq!(bench.left(&one), LEASE);
    }
}

#[test]
fn a_reduction_never_raises_and_needs_a_hold_that_has_not_lapsed() {
    let mut bench = Bench::new();
    let a = permits('a', 1, 2, 3);
    bench.acquire(&a);
    let token = bench.shared_token();
    assert_eq!(bench.reduce(&a, 3).outcome, [Renewed::Held]);
    assert_eq!(bench.used(), 2);
    assert_eq!(bench.reduce(&a, 1).outcome, [Renewed::Held]);
    assert_eq!((bench.used(), bench.shared_token()), (1, token));
    assert_eq!(bench.reduce(&permits('b', 1, 2, 3), 1).outcome, [Renewed::NotHeld]);
    bench.pass(LEASE);
    assert_eq!(bench.reduce(&a, 1).outcome, [Renewed::NotHeld]);
}

#[test]
fn what_was_reduced_gives_back_what_it_weighs_now() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&permits('a', 1, 3, 4), &permits('b', 1, 1, 4)]);
    bench.reduce(&permits('a', 1, 3, 4), 1);
    bench.release(&permits('a', 1, 3, 4));
    assert_eq!((bench.used(), bench.state.reduced.len()), (1, 0));
}

#[test]
fn a_renewed_hold_keeps_its_reduced_weight() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    bench.reduce(&lock('a', 1), 1);
    bench.pass(20_000);
    assert_eq!(bench.renew_one(&lock('a', 1)), Renewed::Held);
    assert_eq!((bench.used(), bench.state.weight(&lock('a', 1))), (1, 1));
    assert_eq!(bench.left(&lock('a', 1)), LEASE);
}

#[test]
fn force_release_drops_one_or_all_tells_their_nodes_and_hands_on() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&read('a', 1), &read('a', 2), &read('b', 1), &lock('c', 1)]);
    assert_eq!(bench.force_release(Some(&read('a', 1))), Released::Released);
    let revoked = |letter, numbers: &[u64]| Message::Revoked {
        node: node(letter),
        numbers: numbers.to_vec(),
    };
    assert_eq!(bench.said(), [revoked('a', &[1])]);
    bench.force_release(None);
    assert_eq!(bench.said()[..2], [revoked('a', &[2]), revoked('b', &[1])]);
    assert_eq!(bench.holders(), [lock('c', 1)]);
    assert_eq!(bench.force_release(Some(&read('a', 1))), Released::NotHeld);
    assert_eq!(bench.force_release(None), Released::Released);
    assert_eq!(bench.said(), [revoked('c', &[1])]);
}

#[test]
fn inspect_tells_holds_queue_and_the_token_of_parts_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &read('b', 1)]);
    assert_eq!(bench.inspect().token, None);
    bench.reduce(&lock('a', 1), 1);
    bench.acquire(&lock('c', 1));
    bench.pass(1_000);
    let before = bench.state.clone();
    let found = bench.inspect();
    let (first, second) = (read('b', 1).into(), lock('a', 1).into());
    assert_eq!(found.holds, [(first, 1, CLAIM - 1_000), (second, 1, LEASE - 1_000)]);
    assert_eq!(found.waiters, [(lock('c', 1).into(), START + PATIENCE_MS)]);
    assert_eq!(found.token, before.shared_token());
    assert_eq!(bench.state, before);
}

#[test]
fn parts_expire_together_a_minute_after_the_last_lease() {
    let mut bench = Bench::new();
    bench.acquire(&read('a', 1));
    let ends_ms = bench.state.door.as_ref().unwrap().ends_ms.unwrap();
    assert!((START + LEASE + 60_000..START + LEASE + 90_001).contains(&ends_ms));
    assert_eq!((ends_ms % 30_000, bench.state.holds_end_ms), (0, Some(ends_ms)));
    bench.pass(1);
    bench.acquire(&read('b', 1));
    let door = bench.state.door.as_ref().unwrap();
    assert_eq!(door.ends_ms, Some(ends_ms), "not written with every command");
    bench.state.expire(ends_ms);
    assert_eq!(bench.state, QueueState::default());
}

#[test]
fn an_inspection_shows_no_part_whose_lease_has_ended() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&with_lease('a', 1, 1_000, Demand::READ), &read('b', 1)]);
    bench.pass(1_000);
    assert_eq!(bench.inspect().holds, [(read('b', 1).into(), 1, LEASE - 1_000)]);
}
