//! Fencing tokens.

use lock_tests::COUNTER;
use proto::{Acquired, Demand, FencingToken, LockErrorKind, LockName, Mode};
use redis::cmd;
use redisson::LastToken;

use crate::asking::{acquire, grant, now_us};
use crate::bench::{Bench, Everything};
use crate::facts;
use crate::node::Node;

facts! {
    both: [
        tokens_rise_with_every_grant_of_every_kind,
        no_token_is_below_what_the_node_has_seen,
    ],
    queue: [
        tokens_of_parts_are_shared_and_rise_with_every_grant,
        tokens_rise_over_all_locks_of_a_server,
        no_token_of_a_read_is_below_what_the_node_has_seen,
        tokens_rise_for_a_node_that_has_seen_them_whatever_becomes_of_the_counter,
        with_the_counter_deleted_a_holder_that_asks_is_told_a_greater_token,
        a_counter_ahead_of_the_clock_is_followed,
        a_counter_that_cannot_be_counted_up_is_replaced_by_the_clock,
        a_command_that_grants_and_queues_nothing_leaves_the_counter_as_it_was,
    ],
    redisson: [
        a_token_ahead_of_the_clock_is_followed_and_never_forgotten,
        a_hand_over_follows_a_token_ahead_of_the_clock,
        a_lost_token_is_replaced_by_the_clock,
        the_greatest_number_that_is_no_token_any_more_counts_as_none,
    ],
    queue_scripts: [a_counter_that_is_no_number_is_another_program_s],
}

const YEAR_US: u64 = 365 * 24 * 60 * 60 * 1_000_000;
/// The first number that is not a valid token.
const LIMIT: u64 = 1 << 53;

/// Acquires and releases a lock, and returns the token.
async fn turn(node: &Node) -> u64 {
    let member = node.member(30_000);
    let reply = node.wait(&member).await;
    node.release(&member).await;
    grant(&reply).token.get()
}

/// Acquires and releases a read, and returns the token.
async fn turn_of_a_read(node: &Node) -> u64 {
    let read = node.member_for(Demand::READ, 30_000);
    let reply = node.wait(&read).await;
    node.release(&read).await;
    grant(&reply).token.get()
}

// S3.
async fn tokens_rise_with_every_grant_of_every_kind(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut tokens = Vec::new();
    for _ in 0..20 {
        let first = a.member(30_000);
        tokens.push(grant(&a.wait(&first).await).token); // alone
        let (second, third) = (a.queue(30_000).await, b.queue(30_000).await);
        let fourth = a.queue(30_000).await;
        tokens.push(grant(&a.release(&first).await).token); // handed off within a node
        a.release(&second).await; // to another node
        tokens.push(grant(&b.touch(&[&third]).await).token);
        b.force_release().await;
        tokens.push(grant(&a.touch(&[&fourth]).await).token);
        a.release(&fourth).await;
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    bench.everything_expires().await;
}

// S3.
async fn tokens_of_parts_are_shared_and_rise_with_every_grant(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut tokens = Vec::new();
    for _ in 0..20 {
        let first = b.hold(30_000).await;
        tokens.push(grant(&b.confirm(&first).await).token);
        let second = b.queue_for(Demand::READ, 30_000).await;
        tokens.push(b.reduce(&first).await.grants[0].token); // and the read behind it is granted
        tokens.push(grant(&b.touch(&[&second]).await).token);
        a.force_release().await;
    }
    let rises: Vec<_> = tokens.windows(2).map(|pair| pair[0] < pair[1]).collect();
    // A downgraded lock and the read beside it share a token.
    let expected: Vec<_> = (0..rises.len()).map(|at| at % 3 != 1).collect();
    assert_eq!(rises, expected, "{tokens:?}");
    assert!(tokens.is_sorted());
    bench.everything_expires().await;
}

async fn tokens_rise_over_all_locks_of_a_server(mut bench: Bench) {
    let a = bench.node().await;
    let mut last = 0;
    for number in 0..10 {
        let other = LockName::from(&*format!("lock {number}"));
        let command = acquire(&a.member(30_000), Mode::Try, 1);
        let answer = a.run_on(&other, command).await.expect("answered");
        let token = answer.grants()[0].token.get();
        assert!(token > last);
        last = token;
    }
}

// The token floor: this server, which does not have the last token, replaced a server with a clock
// ahead.
async fn no_token_is_below_what_the_node_has_seen(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let now_ms = bench.now_ms().await;
    let ahead = |minutes: u64| (now_ms + minutes * 60_000) * 1_000;
    a.set_seen(ahead(1));
    assert_eq!(turn(&a).await, ahead(1) + 1);
    // To another process, and within the same process.
    for (minutes, next) in [(2, &b), (3, &a)] {
        let holder = a.hold(30_000).await;
        let waiting = next.queue(30_000).await;
        a.set_seen(ahead(minutes));
        let released = a.release(&holder).await;
        assert_eq!(bench.holder().await, Some(waiting.clone()));
        let expected = vec![ahead(minutes) + 1];
        let tokens: Vec<u64> = match minutes {
            2 => b.heard().await.iter().map(crate::asking::token_of).collect(),
            _ => released.grants.iter().map(|grant| grant.token.get()).collect(),
        };
        assert_eq!(tokens, expected);
        next.release(&waiting).await;
    }
    // By a node that has not seen it, the next token still increases.
    b.set_seen(0);
    assert!(turn(&b).await > ahead(3) + 1);
}

async fn no_token_of_a_read_is_below_what_the_node_has_seen(mut bench: Bench) {
    let a = bench.node().await;
    let ahead = bench.now_ms().await * 1_000 + 60_000_000;
    a.set_seen(ahead);
    assert_eq!(turn_of_a_read(&a).await, ahead + 1);
}

// The server loses everything, or only its counter, or has an old value.
async fn tokens_rise_for_a_node_that_has_seen_them_whatever_becomes_of_the_counter(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let mut last = turn(&a).await;
    for count in [None, Some(0), Some(7), Some(1_000_000_000_000_001)] {
        match count {
            None => bench.restart().await,
            Some(_) => bench.set_counter(count).await,
        }
        for turns in 0..2 {
            let token = turn(&a).await;
            assert!(token > last, "{turns} after {count:?}: {token} after {last}");
            last = token;
        }
        bench.set_counter(None).await;
        let token = turn_of_a_read(&a).await;
        assert!(token > last, "{count:?}: {token} after {last}");
        last = token;
    }
    if !bench.side.is_function() {
        let set = cmd("SET").arg(COUNTER).arg("-9007199254740993").clone();
        let () = bench.redis().ask(&set).await;
        assert!(turn(&a).await > last);
    }
}

// An operator deletes it while the lock is held.
async fn with_the_counter_deleted_a_holder_that_asks_is_told_a_greater_token(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.member(30_000);
    let mut last = grant(&a.wait(&member).await).token;
    for question in 0..3 {
        bench.set_counter(None).await;
        let token = match question {
            0 => grant(&a.touch(&[&member]).await).token,
            1 => grant(&a.wait(&member).await).token,
            _ => grant(&a.confirm(&member).await).token,
        };
        assert!(token > last, "{question}");
        last = token;
    }
}

async fn a_counter_ahead_of_the_clock_is_followed(mut bench: Bench) {
    let a = bench.node().await;
    let ahead = bench.now_ms().await * 1_000 + YEAR_US;
    bench.set_counter(Some(ahead)).await;
    assert_eq!(turn(&a).await, ahead + 1);
    assert_eq!(turn_of_a_read(&a).await, ahead + 2);
    let holder = a.hold(30_000).await;
    let waiting = a.queue(30_000).await; // its position is a counter value, too
    assert_eq!(grant(&a.release(&holder).await).token.get(), ahead + 5);
    a.release(&waiting).await;
}

// Numbers from 2^53 on are not exact in Lua.
async fn a_counter_that_cannot_be_counted_up_is_replaced_by_the_clock(mut bench: Bench) {
    for count in [LIMIT - 1, LIMIT, i64::MAX as u64] {
        for demand in [Demand::EXCLUSIVE, Demand::READ] {
            bench.restart().await;
            let a = bench.node().await;
            bench.set_counter(Some(count)).await;
            let before = bench.now_ms().await;
            let reply = a.wait(&a.member_for(demand, 30_000)).await;
            assert_eq!(reply.outcome, Acquired::Granted, "{count}");
            let token = grant(&reply).token.get();
            let after = bench.now_ms().await;
            assert!((before..=after).contains(&(token / 1_000)), "{count}: {token}");
            assert_eq!(bench.counter().await, token);
        }
    }
}

async fn a_counter_that_is_no_number_is_another_program_s(mut bench: Bench) {
    for text in ["nonsense", "", "1.5", "1e3", " 7", "9007199254740993x"] {
        bench.restart().await;
        let a = bench.node().await;
        let (holder, waiting) = (a.hold(30_000).await, a.queue(30_000).await);
        let () = bench.redis().ask(cmd("SET").arg(COUNTER).arg(text)).await;
        let before = bench.everything().await;
        for demand in [Demand::EXCLUSIVE, Demand::READ] {
            let command = acquire(&a.member_for(demand, 30_000), Mode::Wait, 10);
            let error = a.run(command).await.expect_err("no number");
            assert_eq!(error.kind, LockErrorKind::WrongType, "{text:?}");
            assert!(error.detail.contains("string"), "{error:?}");
        }
        assert_eq!(bench.everything().await, before, "{text:?}");
        // Commands that draw no value are unaffected.
        a.renew(&holder).await;
        a.leave(&waiting).await;
        a.release(&holder).await;
        assert_eq!(bench.holder().await, None);
    }
}

// A value drawn but not used is returned.
async fn a_command_that_grants_and_queues_nothing_leaves_the_counter_as_it_was(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    b.queue(30_000).await;
    let (before, count) = (bench.everything().await, bench.counter().await);
    b.try_now(&b.member(30_000)).await;
    b.try_now(&b.member_for(Demand::READ, 30_000)).await;
    b.acquire(&b.member(30_000), Mode::Wait, 1).await;
    b.renew(&holder).await;
    b.release(&b.member(30_000)).await;
    assert_eq!(bench.counter().await, count);
    if !bench.side.is_function() {
        let contents = |all: Everything| -> Vec<_> {
            let all = all.into_iter().filter(|(key, ..)| !key.ends_with(":swept"));
            all.map(|(key, content, _)| (key, content)).collect()
        };
        assert_eq!(contents(bench.everything().await), contents(before));
    }
}

async fn set_token(bench: &mut Bench, token: u64) {
    let value = FencingToken::try_from(token).expect("a token");
    bench
        .change(|state, now_ms| {
            let expires_ms = Some(now_ms + 60_000);
            state.of_redisson().token = Some(LastToken { value, expires_ms });
        })
        .await;
}

async fn keeps_its_token(bench: &mut Bench) -> bool {
    let token = bench.state().await.0.of_redisson().token.clone();
    token.expect("there was a grant").expires_ms.is_none()
}

/// Leaves a lock free behind a waiter that died.
async fn free_behind_the_dead(bench: &mut Bench, node: &Node) {
    node.hold(30_000).await;
    bench.plant_dead(1).await;
    bench
        .change(|state, _| {
            state.of_redisson().hold = None;
            state.of_redisson().token = None;
        })
        .await;
}

// Finding 8: S3 across the expiry of the key.
async fn a_token_ahead_of_the_clock_is_followed_and_never_forgotten(mut bench: Bench) {
    for with_queue in [false, true] {
        bench.restart().await;
        let a = bench.node().await;
        if with_queue {
            free_behind_the_dead(&mut bench, &a).await;
        }
        let ahead = bench.now_ms().await * 1_000 + YEAR_US + 7;
        set_token(&mut bench, ahead).await;
        let token = grant(&a.wait(&a.member(1_000)).await).token.get();
        assert_eq!(token, ahead + 1);
        assert!(keeps_its_token(&mut bench).await);
    }
}

// Finding 8: the same for a hand-off.
async fn a_hand_over_follows_a_token_ahead_of_the_clock(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let ahead = bench.now_ms().await * 1_000 + YEAR_US;
    set_token(&mut bench, ahead).await;
    a.release(&holder).await;
    assert_eq!(grant(&b.touch(&[&waiting]).await).token.get(), ahead + 1);
    assert!(keeps_its_token(&mut bench).await);
}

async fn a_lost_token_is_replaced_by_the_clock(mut bench: Bench) {
    for with_queue in [false, true] {
        bench.restart().await;
        let a = bench.node().await;
        if with_queue {
            free_behind_the_dead(&mut bench, &a).await;
        }
        let member = a.member(30_000);
        let reply = a.wait(&member).await;
        assert_eq!(reply.outcome, Acquired::Granted);
        assert_eq!(Some(grant(&reply).token.get()), reply.now_us);

        // An operator deletes it while the lock is held: the next request creates a new token.
        bench.change(|state, _| state.of_redisson().token = None).await;
        let asked = a.touch(&[&member]).await;
        let token = grant(&asked).token;
        assert!(token.get() > now_us(&reply));
        assert_eq!(grant(&a.wait(&member).await).token, token);
        bench.everything_expires().await;
    }
}

async fn the_greatest_number_that_is_no_token_any_more_counts_as_none(mut bench: Bench) {
    for (token, with_queue) in [(LIMIT - 1, false), (LIMIT - 1, true)] {
        bench.restart().await;
        let a = bench.node().await;
        if with_queue {
            free_behind_the_dead(&mut bench, &a).await;
        }
        set_token(&mut bench, token).await;
        let reply = a.wait(&a.member(30_000)).await;
        assert_eq!(Some(grant(&reply).token.get()), reply.now_us, "{token}");
    }
    if !bench.side.is_function() {
        bench.restart().await;
        let a = bench.node().await;
        free_behind_the_dead(&mut bench, &a).await;
        let key = format!("redisson_lock_token:{{{}}}", bench.lock.as_str());
        let set = cmd("SET").arg(key).arg(LIMIT).arg("PX").arg(60_000).clone();
        let () = bench.redis().ask(&set).await;
        let reply = a.wait(&a.member(30_000)).await;
        assert_eq!(Some(grant(&reply).token.get()), reply.now_us);
    }
}
