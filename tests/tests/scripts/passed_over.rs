//! Waiters whose node is not connected.

use lock_tests::{CommandStats, Watcher};
use lockcore::internals::{Acquired, Mode, Presence};

use crate::asking::grant;
use crate::bench::Bench;

#[tokio::test]
async fn a_free_lock_is_neither_busy_nor_full_behind_the_dead_and_they_are_put_aside() {
    for (mode, limit) in [(Mode::Try, 1_000), (Mode::Wait, 1)] {
        let mut bench = Bench::start().await;
        let (a, dead) = (bench.node().await, bench.deaf_node().await);
        a.hold(200).await;
        for _ in 0..40 {
            dead.node.queue(30_000).await;
        }
        bench.until_free().await;
        let member = a.member(30_000);
        let reply = a.acquire(&member, mode, limit).await;
        assert_eq!((reply.outcome, reply.passed_over), (Acquired::Granted, 40));
        assert_eq!((bench.holder().await, bench.queue().await), (Some(member), vec![]));
        let aside = bench.key(&format!("passed:{}", dead.node.id));
        assert_eq!(bench.redis.scores(&aside).await.len(), 40);
        let left = bench.redis.pttl(&aside).await;
        assert!((14_000..=15_000).contains(&left), "{left}");
        bench.everything_expires().await;
    }
}

#[tokio::test]
async fn who_was_passed_over_is_back_in_its_place_by_its_next_touch() {
    let mut bench = Bench::start().await;
    let (a, b, dead) = (bench.node().await, bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let (first, second) = (dead.node.queue(30_000).await, dead.node.queue(30_000).await);
    let (third, fourth) = (b.queue(30_000).await, b.queue(30_000).await);
    assert_eq!(a.release(&holder).await.passed_over, 2);
    assert_eq!(bench.queue().await, [fourth.clone()]);
    let touched = dead.node.touch(&[&first, &second]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(touched.outcome.listeners, 0);
    assert_eq!(bench.queue().await, [first, second, fourth]);
    assert_eq!(bench.holder().await, Some(third));
}

#[tokio::test]
async fn who_was_passed_over_is_gone_once_nothing_was_put_aside_for_fifteen_seconds() {
    let mut bench = Bench::start().await;
    let (a, dead) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let waiting = dead.node.queue(30_000).await;
    a.release(&holder).await;
    let aside = bench.key(&format!("passed:{}", dead.node.id));
    let () = bench.redis.ask(redis::cmd("DEL").arg(aside)).await;
    assert_eq!(dead.node.touch(&[&waiting]).await.outcome.members, [Presence::Gone]);
}

#[tokio::test]
async fn a_node_that_is_not_connected_is_asked_for_once_and_each_of_the_dead_walked_over_once() {
    let mut bench = Bench::start().await;
    let (a, b, dead) = (bench.node().await, bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    for _ in 0..50 {
        dead.node.queue(30_000).await;
    }
    let (second, third) = (b.queue(30_000).await, a.queue(30_000).await);
    let before = CommandStats::read(&mut bench.redis).await;
    assert_eq!(a.release(&holder).await.passed_over, 50);
    let spent = CommandStats::read(&mut bench.redis).await.since(&before);
    // The head may be looked for once more on the long way.
    assert!(spent.calls("pubsub|numsub") <= 3, "{}", spent.calls("pubsub|numsub"));
    assert_eq!(spent.calls("publish"), 1);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(b.release(&second).await.passed_over, 0);
    assert_eq!(bench.holder().await, Some(third));
}

#[tokio::test]
async fn a_tool_that_subscribes_to_everything_does_not_make_the_dead_look_alive() {
    let mut bench = Bench::start().await;
    let _tool = Watcher::start(&bench.server.url()).await;
    let (a, b, dead) = (bench.node().await, bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    dead.node.queue(30_000).await;
    let waiting = b.queue(30_000).await;
    assert_eq!(a.release(&holder).await.passed_over, 1);
    assert_eq!(bench.holder().await, Some(waiting));
}

#[tokio::test]
async fn a_node_that_is_not_connected_takes_a_free_lock_by_its_touch() {
    let mut bench = Bench::start().await;
    let (a, dead) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let waiting = dead.node.queue(30_000).await;
    a.release(&holder).await;
    let touched = dead.node.touch(&[&waiting]).await;
    assert_eq!(grant(&touched).member, waiting);
    assert_eq!(bench.holder().await, Some(waiting));
}
