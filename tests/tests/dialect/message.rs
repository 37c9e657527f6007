//! Messages: the nodes that get one, and the nodes that need none.

use lockcore::internals::Event;

use crate::asking::{grant, left_ms};
use crate::bench::Bench;

#[tokio::test]
async fn a_grant_is_told_to_the_grantee_s_node_and_to_nobody_else() {
    let mut bench = Bench::start().await;
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    c.queue(30_000).await;
    a.release(&first).await;
    let token = grant(&b.touch(&[&second]).await).token;
    let granted = Event::Granted { token, grants: vec![(second.number(), 10_000)] };
    assert_eq!(b.heard(&mut bench.redis).await, [granted]);
    assert_eq!(a.heard(&mut bench.redis).await, []);
    assert_eq!(c.heard(&mut bench.redis).await, []);
}

#[tokio::test]
async fn a_grant_to_a_member_of_the_caller_is_told_by_the_reply_alone() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    let second = a.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&second, 10_000));
    assert_eq!(left_ms(&reply), 10_000);
    assert_eq!(a.heard(&mut bench.redis).await, []);
}

#[tokio::test]
async fn an_acquire_on_a_free_lock_without_a_queue_sends_no_message() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    a.renew(&member).await;
    a.release(&member).await;
    assert_eq!(a.heard(&mut bench.redis).await, []);
}
