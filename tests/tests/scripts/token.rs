//! Fencing tokens: they rise for every node that has seen those before, whatever becomes of the
//! counter.

use redis::cmd;

use crate::asking::grant;
use crate::bench::{Bench, COUNTER};

const GREATEST: u64 = 9_007_199_254_740_991;

#[tokio::test]
async fn tokens_rise_whatever_becomes_of_the_counter() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut last = 0;
    for damage in ["", "DEL", "0", "1", "-5", "9007199254740990", "9007199254740991", "FLUSHALL"] {
        match damage {
            "" => {}
            "DEL" => drop(bench.redis.ask::<i64>(cmd("DEL").arg(COUNTER)).await),
            "FLUSHALL" => bench.redis.flush_all().await,
            number => {
                let () = bench.redis.ask(cmd("SET").arg(COUNTER).arg(number)).await;
            }
        }
        for _ in 0..3 {
            let member = a.member(30_000);
            let token = grant(&a.wait(&member).await).token.get();
            assert!(token <= GREATEST, "{token} after {damage:?}");
            if damage != "9007199254740990" {
                assert!(token > last || last > GREATEST - 3, "{token} after {last}, {damage:?}");
            }
            last = token;
            a.release(&member).await;
        }
        if damage.starts_with("90071992547409") {
            // So far in advance no clock is: a node forgets it, as it would a forged message.
            last = 0;
        }
    }
}

#[tokio::test]
async fn no_token_is_below_a_time_that_the_node_has_seen() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let now_us = bench.redis.time_us().await;
    let ahead = |minutes: u64| now_us + minutes * 60_000_000;
    let holder = a.member(30_000);
    a.seen.set(ahead(1));
    assert_eq!(grant(&a.wait(&holder).await).token.get(), ahead(1) + 1);
    a.release(&holder).await;
    // To another process, and within one.
    for (minutes, next) in [(2, &b), (3, &a)] {
        let holder = a.hold(30_000).await;
        let waiting = next.queue(30_000).await;
        a.seen.set(ahead(minutes));
        a.release(&holder).await;
        assert_eq!(bench.holder().await, Some(waiting.clone()));
        let token = grant(&next.touch(&[&waiting]).await).token.get();
        assert!(token > ahead(minutes), "{token}");
        next.release(&waiting).await;
    }
    // By a node that has not seen it, the next token still rises.
    b.seen.set(0);
    assert!(grant(&b.wait(&b.member(30_000)).await).token.get() > ahead(3) + 1);
}

#[tokio::test]
async fn nothing_but_the_counter_stays_of_a_lock_that_was_released() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    a.release(&member).await;
    assert_eq!(bench.redis.keys("*").await, [COUNTER]);
}
