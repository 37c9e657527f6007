//! Fencing tokens, and how long the last one is remembered.

use lockcore::internals::{Acquired, Answer, Mode, Released};
use redis::cmd;

use crate::asking::{acquire, grant, now_us};
use crate::bench::Bench;

const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

// Finding 8: S3 across the expiry of the key.
#[tokio::test]
async fn a_token_ahead_of_the_clock_is_followed_and_never_forgotten() {
    for with_queue in [false, true] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        let ahead = (bench.now_ms().await + YEAR_MS) * 1_000 + 7;
        let mut set = cmd("SET");
        set.arg(bench.token_key()).arg(ahead).arg("PX").arg(60_000);
        let () = bench.redis.ask(&set).await;
        if with_queue {
            bench.plant_dead(1).await;
        }
        let token = grant(&a.wait(&a.member(1_000)).await).token.get();
        assert_eq!(token, ahead + 1);
        assert_eq!(bench.redis.pttl(&bench.token_key()).await, -1);
    }
}

// Finding 8: the same when it is handed over.
#[tokio::test]
async fn a_hand_over_follows_a_token_ahead_of_the_clock() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let ahead = (bench.now_ms().await + YEAR_MS) * 1_000;
    let mut set = cmd("SET");
    set.arg(bench.token_key()).arg(ahead).arg("PX").arg(60_000);
    let () = bench.redis.ask(&set).await;
    a.release(&holder).await;
    let token = grant(&b.touch(&[&waiting]).await).token.get();
    assert_eq!(token, ahead + 1);
    assert_eq!(bench.redis.pttl(&bench.token_key()).await, -1);
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
        let second = b.queue(30_000).await;
        let third = a.queue(30_000).await;
        a.release(&first).await;
        let told = b.touch(&[&second]).await; // handed over by another
        tokens.push(grant(&told).token);
        b.force_release().await;
        let told = a.touch(&[&third]).await;
        tokens.push(grant(&told).token);
        assert_eq!(a.release(&third).await.outcome, Released::Released);
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    bench.everything_expires().await;
}

// A server whose clock is ahead was replaced by this one, which has not got the last token.
#[tokio::test]
async fn no_token_is_below_a_time_that_the_node_has_seen() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let now_ms = bench.now_ms().await;
    let ahead = |minutes: u64| (now_ms + minutes * 60_000) * 1_000;
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
        let token = grant(&next.touch(&[&waiting]).await).token.get();
        assert_eq!(token, ahead(minutes) + 1);
        next.release(&waiting).await;
    }
    // By a node that has not seen it, the next token still rises.
    b.seen.set(0);
    assert_eq!(grant(&b.wait(&b.member(30_000)).await).token.get(), ahead(3) + 2);
}

#[tokio::test]
async fn a_lost_token_is_replaced_by_the_clock() {
    for with_queue in [false, true] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        if with_queue {
            bench.plant_dead(1).await;
        }
        let member = a.member(30_000);
        let reply = a.wait(&member).await;
        assert_eq!(reply.outcome, Acquired::Granted);
        assert_eq!(Some(grant(&reply).token.get()), reply.now_us);

        // An operator deletes it while it is held: the next question makes a new one.
        let () = bench.redis.ask(cmd("DEL").arg(bench.token_key())).await;
        let asked = a.touch(&[&member]).await;
        let token = grant(&asked).token;
        assert!(token.get() > now_us(&reply));
        assert_eq!(grant(&a.wait(&member).await).token, token);
        bench.everything_expires().await;
    }
}

#[tokio::test]
async fn the_greatest_number_that_is_no_token_any_more_counts_as_none() {
    for (text, with_queue) in
        [("9007199254740991", false), ("9007199254740991", true), ("9007199254740992", true)]
    {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        let mut set = cmd("SET");
        set.arg(bench.token_key()).arg(text).arg("PX").arg(60_000);
        let () = bench.redis.ask(&set).await;
        if with_queue {
            bench.plant_dead(1).await;
        }
        let member = a.member(30_000);
        let answer = a.run(acquire(&member, Mode::Wait, 10)).await;
        let Ok(Answer::Acquired(reply)) = answer else { panic!("{text}: {answer:?}") };
        assert_eq!(Some(grant(&reply).token.get()), reply.now_us, "{text}");
    }
}
