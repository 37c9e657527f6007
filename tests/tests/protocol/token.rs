//! Fencing tokens.

use lock_tests::COUNTER;
use lockcore::LockErrorKind;
use lockcore::internals::{Acquired, Demand, LockName, Mode, run};
use redis::cmd;

use crate::asking::{acquire, grant};
use crate::bench::Bench;
use crate::node::Node;

const YEAR_US: u64 = 365 * 24 * 60 * 60 * 1_000_000;
/// The first number that is no token.
const LIMIT: u64 = 1 << 53;

impl Bench {
    async fn set_counter(&mut self, text: &str) {
        self.redis.ask(cmd("SET").arg(COUNTER).arg(text)).await
    }
}

/// The token of a lock that is taken and given back.
async fn turn(node: &Node) -> u64 {
    let member = node.member(30_000);
    let reply = node.wait(&member).await;
    node.release(&member).await;
    grant(&reply).token.get()
}

// S3.
#[tokio::test]
async fn tokens_rise_with_every_grant_of_every_kind() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let mut tokens = Vec::new();
    for _ in 0..20 {
        let first = a.member(30_000);
        tokens.push(grant(&a.wait(&first).await).token); // alone
        let (second, third) = (a.queue(30_000).await, b.queue(30_000).await);
        let fourth = b.queue_for(Demand::READ, 30_000).await;
        tokens.push(grant(&a.release(&first).await).token); // handed over within a node
        a.release(&second).await; // to another node
        tokens.push(grant(&b.confirm(&third).await).token);
        tokens.push(b.reduce(&third).await.grants[0].token); // and the read behind it is granted
        tokens.push(grant(&b.touch(&[&fourth]).await).token);
        b.force_release().await;
    }
    let pairs: Vec<_> = tokens.windows(2).map(|pair| pair[0] < pair[1]).collect();
    // A lock that became a read and the read beside it share one.
    let expected: Vec<_> = (0..pairs.len()).map(|at| at % 5 != 3).collect();
    assert_eq!(pairs, expected, "{tokens:?}");
    assert!(tokens.is_sorted());
    bench.everything_expires().await;
}

#[tokio::test]
async fn tokens_rise_over_all_locks_of_a_server() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    let mut last = 0;
    for number in 0..10 {
        let other = LockName::from(&*format!("lock {number}"));
        let command = acquire(&a.member(30_000), Mode::Try, 1);
        let answer = run(&*a.store, &other, command).await.expect("answered");
        let token = answer.grants()[0].token.get();
        assert!(token > last);
        last = token;
    }
}

// The floor: a server whose clock is ahead was replaced by this one, which has not the last token.
#[tokio::test]
async fn no_token_is_below_what_the_node_has_seen() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let now_us = bench.redis.time_us().await;
    let ahead = |minutes: u64| now_us + minutes * 60_000_000;
    a.seen.set(ahead(1));
    assert_eq!(turn(&a).await, ahead(1) + 1);
    a.seen.set(ahead(2));
    let read = a.member_for(Demand::READ, 30_000);
    assert_eq!(grant(&a.wait(&read).await).token.get(), ahead(2) + 1);
    a.release(&read).await;
    // To another process, and within one.
    for (minutes, next) in [(3, &b), (4, &a)] {
        let holder = a.hold(30_000).await;
        let waiting = next.queue(30_000).await;
        a.seen.set(ahead(minutes));
        a.release(&holder).await;
        assert_eq!(bench.holder().await, Some(waiting.clone()));
        assert_eq!(bench.counter().await, (ahead(minutes) + 1).to_string());
        next.release(&waiting).await;
    }
    // By a node that has not seen it, the next token still rises.
    b.seen.set(0);
    assert!(turn(&b).await > ahead(4) + 1);
}

// The server forgets everything, or its counter alone, or has a number from long ago.
#[tokio::test]
async fn tokens_rise_for_a_node_that_has_seen_them_whatever_becomes_of_the_counter() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut last = turn(&a).await;
    let texts = ["", "0", "7", "-9007199254740993", "1000000000000001"];
    for text in texts {
        match text {
            "" => bench.redis.flush_all().await,
            text => bench.set_counter(text).await,
        }
        for turns in 0..2 {
            let token = turn(&a).await;
            assert!(token > last, "{turns} after {text:?}: {token} after {last}");
            last = token;
        }
        let () = bench.redis.ask(cmd("DEL").arg(COUNTER)).await;
        let read = a.member_for(Demand::READ, 30_000);
        let token = grant(&a.wait(&read).await).token.get();
        assert!(token > last, "{text:?}: {token} after {last}");
        last = token;
        a.release(&read).await;
    }
}

// An operator deletes it while it is held.
#[tokio::test]
async fn with_the_counter_deleted_a_holder_that_asks_is_told_a_greater_token() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.member(30_000);
    let mut last = grant(&a.wait(&member).await).token;
    for question in 0..3 {
        let () = bench.redis.ask(cmd("DEL").arg(COUNTER)).await;
        let token = match question {
            0 => grant(&a.touch(&[&member]).await).token,
            1 => grant(&a.wait(&member).await).token,
            _ => grant(&a.confirm(&member).await).token,
        };
        assert!(token > last, "{question}");
        last = token;
    }
}

#[tokio::test]
async fn a_counter_ahead_of_the_clock_is_followed() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let ahead = bench.redis.time_us().await + YEAR_US;
    bench.set_counter(&ahead.to_string()).await;
    assert_eq!(turn(&a).await, ahead + 1);
    let read = a.member_for(Demand::READ, 30_000);
    assert_eq!(grant(&a.wait(&read).await).token.get(), ahead + 2);
    a.release(&read).await;
    let holder = a.hold(30_000).await;
    let waiting = a.queue(30_000).await; // its place is a number, too
    assert_eq!(grant(&a.release(&holder).await).token.get(), ahead + 5);
    a.release(&waiting).await;
}

// Numbers from 2^53 on are not exact in Lua.
#[tokio::test]
async fn a_counter_that_cannot_be_counted_up_is_replaced_by_the_clock() {
    let texts = [(LIMIT - 1).to_string(), LIMIT.to_string(), i64::MAX.to_string()];
    for text in texts {
        for demand in [Demand::ALONE, Demand::READ] {
            let mut bench = Bench::start().await;
            let a = bench.node().await;
            bench.set_counter(&text).await;
            let before = bench.redis.time_us().await;
            let reply = a.wait(&a.member_for(demand, 30_000)).await;
            assert_eq!(reply.outcome, Acquired::Granted, "{text}");
            let token = grant(&reply).token.get();
            let after = bench.redis.time_us().await;
            assert!((before..=after).contains(&token), "{text}: {token}, not in {before}..{after}");
            assert_eq!(bench.counter().await, token.to_string());
        }
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_another_program_s() {
    for text in ["nonsense", "", "1.5", "1e3", " 7", "9007199254740993x"] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        let (holder, waiting) = (a.hold(30_000).await, a.queue(30_000).await);
        bench.set_counter(text).await;
        let before = bench.everything().await;
        for demand in [Demand::ALONE, Demand::READ] {
            let command = acquire(&a.member_for(demand, 30_000), Mode::Wait, 10);
            let error = a.run(command).await.expect_err("no number");
            assert_eq!(error.kind, LockErrorKind::WrongType, "{text:?}");
            assert!(error.detail.contains("string"), "{error:?}");
        }
        assert_eq!(bench.everything().await, before, "{text:?}");
        // Commands that draw no number go on.
        a.renew(&holder).await;
        a.leave(&waiting).await;
        a.release(&holder).await;
        assert_eq!(bench.holder().await, None);
    }
}

// A number that is drawn and not used goes back.
#[tokio::test]
async fn a_command_that_grants_and_queues_nothing_leaves_the_counter_as_it_was() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    b.queue(30_000).await;
    let before = bench.everything().await;
    b.try_now(&b.member(30_000)).await;
    b.try_now(&b.member_for(Demand::READ, 30_000)).await;
    b.acquire(&b.member(30_000), Mode::Wait, 1).await;
    b.renew(&holder).await;
    b.release(&b.member(30_000)).await;
    let after = bench.everything().await;
    let contents = |all: &[(String, Vec<u8>, i64)]| -> Vec<_> {
        all.iter().map(|(key, content, _)| (key.clone(), content.clone())).collect()
    };
    assert_eq!(contents(&after), contents(&before));
}
