//! Tokens.

use super::*;

#[test]
fn tokens_rise_above_the_floor_when_the_counter_is_lost_or_set_back() {
    let mut bench = Bench::new();
    bench.counter = Some(START * 1_000 + 77);
    let token = |bench: &mut Bench| {
        let token = bench.acquire(&lock('a', 1)).grants[0].token.get();
        bench.release(&lock('a', 1));
        token
    };
    assert_eq!(token(&mut bench), START * 1_000 + 78);
    bench.floor_us = START * 1_000 + 5_000_000;
    for counter in [None, Some(5), Some(bench.floor_us - 1), Some((1 << 53) - 1), Some(1 << 53)] {
        bench.counter = counter;
        assert_eq!(token(&mut bench), bench.floor_us + 1, "{counter:?}");
    }
    bench.counter = Some(bench.floor_us);
    assert_eq!(token(&mut bench), bench.floor_us + 1);
}

#[test]
fn reads_that_are_held_together_share_a_token_and_later_ones_have_a_new_one() {
    let mut bench = Bench::new();
    let first = bench.acquire(&read('a', 1)).grants[0].token;
    assert_eq!(bench.acquire(&read('b', 1)).grants[0].token, first);
    bench.release(&read('a', 1));
    assert_eq!(bench.acquire(&read('a', 2)).grants[0].token, first);
    bench.release(&read('a', 2));
    bench.release(&read('b', 1));
    assert!(bench.acquire(&read('a', 3)).grants[0].token > first);
}

#[test]
fn a_read_does_not_share_a_token_from_before_a_failover() {
    let mut bench = Bench::new();
    let first = bench.acquire(&read('a', 1)).grants[0].token;
    bench.elsewhere_us = first.get();
    assert!(bench.acquire(&read('b', 1)).grants[0].token > first);
}

#[test]
fn a_lock_that_becomes_a_read_has_a_new_token_and_lets_readers_in() {
    let mut bench = Bench::new();
    let first = bench.acquire(&lock('a', 1)).grants[0].token;
    bench.acquire_all(&[&read('b', 1), &lock('c', 1)]);
    let reply = bench.reduce(&lock('a', 1), 1);
    assert_eq!(reply.outcome, [Renewed::Held]);
    assert!(reply.grants[0].token > first);
    assert_eq!(bench.holders(), [read('b', 1), lock('a', 1)]);
    assert_eq!(bench.reduce(&lock('a', 1), 1).grants[0].token, reply.grants[0].token);
    assert_eq!(bench.renew_one(&lock('a', 1)), Renewed::Held);
}

#[test]
fn readers_of_one_run_share_a_token_and_a_lock_has_one_above_all_before_it() {
    let mut bench = Bench::new();
    let reads = bench.acquire(&read('a', 1)).grants[0].token.get();
    bench.acquire_all(&[&read('b', 1), &lock('c', 1), &read('d', 1), &read('d', 2)]);
    bench.release(&read('a', 1));
    bench.release(&read('b', 1));
    let Message::Grants { token: locks, .. } = bench.said()[0] else { unreachable!() };
    assert!(locks.get() > reads);
    bench.release(&lock('c', 1));
    let later = bench.shared_token();
    assert!(later > locks.get());
    assert_eq!(bench.acquire(&read('e', 1)).grants[0].token.get(), later);
}

#[test]
fn a_token_rises_although_the_clock_goes_back() {
    let mut bench = Bench::new();
    let first = bench.acquire(&lock('a', 1)).grants[0].token.get();
    bench.release(&lock('a', 1));
    bench.now_us -= 5_000_000;
    assert_eq!(bench.acquire(&lock('a', 2)).grants[0].token.get(), first + 1);
}

#[test]
fn a_token_of_a_lost_counter_is_above_the_servers_time_and_the_floor() {
    for ahead_us in [0, 7_000_000] {
        let mut bench = Bench::new();
        bench.floor_us = bench.now_us + ahead_us;
        bench.pass(3_000);
        let token = bench.acquire(&lock('a', 1)).grants[0].token.get();
        assert_eq!(token, bench.floor_us.max(bench.now_us) + 1);
    }
}

#[test]
fn a_confirmation_tells_a_lock_a_new_token_and_a_part_the_one_it_shares() {
    for (one, is_new) in [(lock('a', 1), true), (read('a', 1), false)] {
        let mut bench = Bench::new();
        let first = bench.acquire(&one).grants[0].token;
        let told = bench.confirm(&one).grants;
        assert_eq!((told[0].left_ms, told[0].token > first), (LEASE, is_new));
    }
}

#[test]
fn a_place_is_drawn_from_the_counter_of_tokens() {
    let mut bench = Bench::new();
    let first = bench.acquire(&lock('a', 1)).grants[0].token.get();
    bench.acquire(&lock('b', 1));
    assert_eq!(bench.state.queue.get(&lock('b', 1)), Some(first + 1));
    bench.counter = Some(5);
    bench.acquire(&lock('c', 1));
    assert!(bench.state.queue.get(&lock('c', 1)) > Some(bench.floor_us));
}
