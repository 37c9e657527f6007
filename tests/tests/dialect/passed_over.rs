//! Waiters whose node is not connected.

use lock_tests::{CommandStats, Watcher};
use lockcore::internals::{Acquired, Mode, Presence};

use crate::asking::{grant, now_us};
use crate::bench::Bench;

// Finding 13.
#[tokio::test]
async fn a_free_lock_is_neither_busy_nor_full_behind_the_dead() {
    for (mode, limit) in [(Mode::Try, 1_000), (Mode::Wait, 1)] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        let dead = bench.plant_dead(40).await;
        let member = a.member(30_000);
        let reply = a.acquire(&member, mode, limit).await;
        assert_eq!((reply.outcome, reply.passed_over), (Acquired::Granted, 40));
        assert_eq!(bench.holder().await, Some(member));
        assert_eq!(bench.queue().await, dead, "passed over, not removed");
        bench.everything_expires().await;
    }
}

// Finding 18, F3.
#[tokio::test]
async fn those_passed_over_keep_their_place_for_five_seconds() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let dead = bench.plant_dead(130).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!(reply.passed_over, 130);
    assert_eq!(bench.holder().await, Some(second.clone()));
    let latest = now_us(&reply) / 1_000 + 5_000;
    for member in &dead {
        assert_eq!(bench.deadline(member).await, Some(latest));
    }

    // Never raised by a second look.
    bench.set_deadline(&dead[3], latest - 1_000).await;
    let third = a.queue(30_000).await;
    b.release(&second).await;
    assert_eq!(bench.holder().await, Some(third.clone()));
    assert_eq!(bench.deadline(&dead[3]).await, Some(latest - 1_000));

    for member in &dead {
        bench.let_deadline_pass(member).await;
    }
    let fourth = b.queue(30_000).await;
    assert_eq!(a.release(&third).await.passed_over, 0);
    assert_eq!(bench.holder().await, Some(fourth.clone()));
    assert!(bench.queue().await.is_empty());
}

// F3: any number, in one call.
#[tokio::test]
async fn a_node_that_is_not_connected_is_not_tried_for_each_of_its_waiters() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    bench.plant_dead(50).await;
    bench.plant_dead(50).await;
    let second = b.queue(30_000).await;
    let before = CommandStats::read(&mut bench.redis).await;
    assert_eq!(a.release(&first).await.passed_over, 100);
    let spent = CommandStats::read(&mut bench.redis).await.since(&before);
    // One for each node; the head may be looked for once more on the long way.
    assert!(spent.calls("pubsub|numsub") <= 4, "{}", spent.calls("pubsub|numsub"));
    assert_eq!(spent.calls("publish"), 1);
    assert_eq!(bench.holder().await, Some(second));
}

#[tokio::test]
async fn a_tool_that_subscribes_to_everything_does_not_make_the_dead_look_alive() {
    let mut bench = Bench::start().await;
    let (_one, _another) =
        (Watcher::start(&bench.server.url()).await, Watcher::start(&bench.server.url()).await);
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let dead = bench.deaf_node().await;
    dead.node.queue(30_000).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((reply.passed_over, bench.holder().await), (1, Some(second.clone())));

    // The long way too: a dead one behind a dead one.
    dead.node.queue(30_000).await;
    let third = a.queue(30_000).await;
    let reply = b.release(&second).await;
    assert_eq!((reply.passed_over, bench.holder().await), (2, Some(third)));
}

// Finding 14.
#[tokio::test]
async fn a_touch_tells_whether_the_server_counts_the_node_s_subscription() {
    let mut bench = Bench::start().await;
    let deaf = bench.deaf_node().await;
    let (a, b) = (bench.node().await, &deaf.node);
    let holder = a.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    let passed = b.queue(30_000).await;
    assert_eq!(a.touch(&[&waiting]).await.outcome.listeners, 1);
    assert_eq!(b.touch(&[&passed]).await.outcome.listeners, 0);
    let last = a.queue(30_000).await;
    a.release(&holder).await;
    a.release(&waiting).await;
    assert_eq!(bench.holder().await, Some(last.clone()), "the deaf one is passed over");
    // Touched again it has its place and its patience, and takes a free lock by itself.
    let touched = b.touch(&[&passed]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.deadline(&passed).await, Some(now_us(&touched) / 1_000 + 15_000));
    a.release(&last).await;
    let touched = b.touch(&[&passed]).await;
    assert_eq!(grant(&touched).member, passed);
}
