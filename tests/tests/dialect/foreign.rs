//! Members that are not ours, such as those of a JVM.

use std::time::Duration;

use futures_util::StreamExt as _;
use lockcore::internals::{Acquired, LockName, Mode, Party, Released};
use redis::cmd;
use tokio::time::timeout;

use crate::asking::{grant, left_ms};
use crate::bench::{Bench, LOCK, SOON};

const JVM: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";
/// Redisson's own patience.
const PATIENCE_MS: u64 = 300_000;

async fn jvm_channel(bench: &Bench, member: &str) -> redis::aio::PubSub {
    let client = redis::Client::open(bench.server.url()).expect("a URL");
    let mut subscription = client.get_async_pubsub().await.expect("a subscription");
    let channel = format!("redisson_lock__channel:{{{LOCK}}}:{member}");
    subscription.subscribe(channel).await.expect("a channel");
    subscription
}

#[tokio::test]
async fn nobody_is_granted_past_a_foreign_waiter_and_it_is_poked() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.plant(JVM, PATIENCE_MS).await;
    let behind = b.queue(30_000).await;
    let mut subscription = jvm_channel(&bench, JVM).await;
    let mut pokes = subscription.on_message();

    let reply = a.release(&holder).await;
    assert_eq!(reply.outcome, Released::Released);
    assert_eq!(left_ms(&reply), 0);
    let poke = timeout(SOON, pokes.next()).await.expect("a poke in time").expect("a poke");
    assert_eq!(poke.get_payload_bytes(), b"0");
    let queue = vec![Party::from(JVM), Party::from(&behind)];
    assert_eq!((bench.holder().await, bench.queue().await), (None, queue));

    // Each that asks pokes it again, and stands behind it.
    let newcomer = a.member(30_000);
    assert_eq!(a.acquire(&newcomer, Mode::Try, 10).await.outcome, Acquired::Busy);
    let reply = a.wait(&newcomer).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 2 });
    let reply = b.touch(&[&behind]).await;
    assert_eq!(reply.grants, []);
    for _ in 0..3 {
        timeout(SOON, pokes.next()).await.expect("a poke in time").expect("a poke");
    }
    assert_eq!(bench.holder().await, None);
    assert_eq!(b.heard(&mut bench.redis).await, []);
}

#[tokio::test]
async fn a_foreign_holder_is_waited_for_until_its_lease_ends() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let () = bench.redis.ask(cmd("HSET").arg(LOCK).arg(JVM).arg(2)).await;
    let () = bench.redis.ask(cmd("PEXPIRE").arg(LOCK).arg(1_000)).await;
    let member = a.member(30_000);
    let reply = a.wait(&member).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 0 });
    assert_eq!(reply.grants, []);
    assert!((1..=1_000).contains(&left_ms(&reply)), "{reply:?}");
    bench.until_free().await;
    let reply = a.touch(&[&member]).await;
    assert_eq!(grant(&reply).member, member);
}

#[tokio::test]
async fn a_foreign_holder_can_be_forced_off() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let () = bench.redis.ask(cmd("HSET").arg(LOCK).arg(JVM).arg(1)).await;
    let () = bench.redis.ask(cmd("PEXPIRE").arg(LOCK).arg(30_000)).await;
    let member = a.queue(30_000).await;
    let reply = a.force_release().await;
    assert_eq!(reply.outcome, Released::Released);
    assert_eq!(grant(&reply).member, member);
    assert_eq!(a.heard(&mut bench.redis).await, []);
}

#[tokio::test]
async fn a_foreign_head_whose_time_is_up_is_dropped_and_one_further_back_is_not() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (head, back) = (JVM, "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:1");
    bench.plant(head, PATIENCE_MS).await;
    let ours = b.queue(30_000).await;
    bench.plant(back, PATIENCE_MS).await;
    bench.let_deadline_pass(head).await;
    bench.let_deadline_pass(back).await;
    b.touch(&[&ours]).await;
    let queue = [Party::from(head), Party::from(&ours), Party::from(back)];
    assert_eq!(bench.queue().await, queue, "the sweep leaves them");
    a.release(&holder).await;
    let left = vec![Party::from(back)];
    assert_eq!((bench.holder().await, bench.queue().await), (Some(ours), left));
}

#[tokio::test]
async fn a_foreign_waiter_behind_those_passed_over_still_stops_the_walk() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.plant_dead(3).await;
    bench.plant(JVM, PATIENCE_MS).await;
    b.queue(30_000).await;
    let reply = a.release(&holder).await;
    assert_eq!((reply.passed_over, bench.holder().await), (3, None));
}

#[tokio::test]
async fn a_lock_under_a_foreign_name_with_braces_pokes_redisson_s_own_channel() {
    let mut bench = Bench::start().await;
    bench.lock = LockName::from("{tenant}:x");
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let client = redis::Client::open(bench.server.url()).expect("a URL");
    let mut subscription = client.get_async_pubsub().await.expect("a subscription");
    subscription.subscribe(format!("redisson_lock__channel:{{tenant}}:x:{JVM}")).await.expect("ok");
    let mut pokes = subscription.on_message();
    let mut pipeline = redis::pipe();
    pipeline.cmd("RPUSH").arg("redisson_lock_queue:{tenant}:x").arg(JVM);
    let deadline = bench.now_ms().await + PATIENCE_MS;
    pipeline.cmd("ZADD").arg("redisson_lock_timeout:{tenant}:x").arg(deadline).arg(JVM);
    bench.redis.run(&pipeline).await;
    a.release(&holder).await;
    let poke = timeout(Duration::from_secs(20), pokes.next()).await;
    assert_eq!(poke.expect("in time").expect("a poke").get_payload_bytes(), b"0");
}
