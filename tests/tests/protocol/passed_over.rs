//! Waiters whose node is not connected.

use lock_tests::{CommandStats, Watcher, passed_key};
use lockcore::internals::{Acquired, Demand, Mode, Presence};

use crate::asking::grant;
use crate::bench::{Bench, LOCK};

// Finding 13.
#[tokio::test]
async fn a_free_lock_is_neither_busy_nor_full_behind_the_dead() {
    for (mode, limit) in [(Mode::Try, 1_000), (Mode::Wait, 1)] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        a.hold(30_000).await;
        bench.plant_dead(40).await;
        bench.end_lease().await;
        let member = a.member(30_000);
        let reply = a.acquire(&member, mode, limit).await;
        assert_eq!((reply.outcome, reply.passed_over), (Acquired::Granted, 40));
        assert_eq!(bench.holder().await, Some(member));
        bench.everything_expires().await;
    }
}

// Finding 18, F3.
#[tokio::test]
async fn those_passed_over_go_aside_with_their_places_and_then_cost_nothing() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let dead = bench.plant_dead(130).await;
    let places = bench.redis.scores(&bench.key("queue")).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!(reply.passed_over, 130);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(bench.queue().await, []);
    let aside = passed_key(LOCK, dead[0].node());
    assert_eq!(bench.redis.scores(&aside).await, places);
    let lasts = bench.redis.pttl(&aside).await;
    assert!((14_000..=15_000).contains(&lasts), "{lasts}");

    // Behind them nobody waits any longer: the short way.
    let third = a.queue(30_000).await;
    let before = CommandStats::read(&mut bench.redis).await;
    assert_eq!(b.release(&second).await.passed_over, 0);
    let spent = CommandStats::read(&mut bench.redis).await.since(&before);
    assert_eq!(bench.holder().await, Some(third));
    assert_eq!((spent.calls("zrange"), spent.calls("zcard"), spent.calls("publish")), (1, 0, 1));
    bench.everything_expires().await;
}

// F6.
#[tokio::test]
async fn one_that_was_passed_over_is_back_in_its_place_with_its_node_s_next_touch() {
    let mut bench = Bench::start().await;
    let deaf = bench.deaf_node().await;
    let (a, b) = (bench.node().await, &deaf.node);
    let holder = a.hold(30_000).await;
    let (early, late) = (b.queue(30_000).await, b.queue(30_000).await);
    let next = a.queue(30_000).await;
    let behind = a.queue(30_000).await;
    assert_eq!(a.release(&holder).await.passed_over, 2);
    assert_eq!(bench.queue().await, std::slice::from_ref(&behind));
    assert_eq!(bench.passed(&b.id).await, [early.clone(), late.clone()]);

    // Only those that are asked for, each into its own place, before those that came later.
    let touched = b.touch(&[&late]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.queue().await, [late.clone(), behind.clone()]);
    assert_eq!(bench.passed(&b.id).await, std::slice::from_ref(&early));
    assert_eq!(b.touch(&[&early, &late]).await.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(bench.queue().await, [early.clone(), late.clone(), behind.clone()]);
    assert_eq!(bench.passed(&b.id).await, []);
    assert!(bench.patience(&b.id).await > 14_000);

    // A question is as good as a message for a node that does not hear.
    bench.end_lease().await;
    let touched = b.touch(&[&early]).await;
    assert_eq!((&grant(&touched).member, bench.holder().await), (&early, Some(early.clone())));
    assert_ne!(bench.holder().await, Some(next));
}

#[tokio::test]
async fn one_that_was_passed_over_for_longer_than_its_node_s_patience_is_forgotten() {
    let mut bench = Bench::start().await;
    let deaf = bench.deaf_node().await;
    let (a, b) = (bench.node().await, &deaf.node);
    let holder = a.hold(30_000).await;
    let passed = b.queue(30_000).await;
    a.queue(30_000).await;
    assert_eq!(a.release(&holder).await.passed_over, 1);
    // As after the 15 s that its key lives.
    let () = bench
        .redis
        .ask(redis::cmd("PEXPIRE").arg(bench.key("passed:") + b.id.as_str()).arg(0))
        .await;
    assert_eq!(b.touch(&[&passed]).await.outcome.members, [Presence::Gone]);
    assert_eq!(bench.queue().await, []);
    // It waits again behind all others.
    let last = a.queue(30_000).await;
    assert_eq!(b.wait(&passed).await.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [last, passed]);
}

#[tokio::test]
async fn the_dead_are_passed_over_whether_they_fit_or_not() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    let dead = bench.plant_dead(2).await; // locks, which do not fit beside a read
    let reader = a.member_for(Demand::READ, 30_000);
    let reply = a.wait(&reader).await;
    assert_eq!((reply.outcome, reply.passed_over), (Acquired::Granted, 2));
    let parts: Vec<_> = bench.parts().await.into_iter().map(|(member, _)| member).collect();
    assert!(parts.len() == 2 && parts.contains(&read) && parts.contains(&reader), "{parts:?}");
    assert!(bench.redis.exists(&passed_key(LOCK, dead[0].node())).await);
    bench.everything_expires().await;
}

// Members of a node that was passed over leave for good, too.
#[tokio::test]
async fn one_that_was_passed_over_leaves() {
    let mut bench = Bench::start().await;
    let deaf = bench.deaf_node().await;
    let (a, b) = (bench.node().await, &deaf.node);
    let holder = a.hold(30_000).await;
    let (one, other) = (b.queue(30_000).await, b.queue(30_000).await);
    a.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(b.leave(&one).await.outcome, [lockcore::internals::Left::Left]);
    assert_eq!(bench.passed(&b.id).await, std::slice::from_ref(&other));
    assert_eq!(b.touch(&[&one, &other]).await.outcome.members, [Presence::Gone, Presence::Waiting]);
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
    // One for each node; the head is looked for once more on the long way.
    assert!(spent.calls("pubsub|numsub") <= 4, "{}", spent.calls("pubsub|numsub"));
    assert_eq!(spent.calls("publish"), 1);
    assert_eq!(bench.holder().await, Some(second));
}

// F3: 200 in a step; the node that reads `more` goes on.
#[tokio::test]
async fn of_more_dead_than_one_command_looks_at_the_rest_is_left_to_a_touch() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    bench.plant_dead(450).await;
    let next = a.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((reply.passed_over, reply.more, bench.holder().await), (200, true, None));
    let reply = a.touch(&[]).await;
    assert_eq!((reply.passed_over, reply.more, bench.holder().await), (200, true, None));
    let reply = a.touch(&[]).await;
    assert_eq!((reply.passed_over, reply.more), (50, false));
    assert_eq!((&grant(&reply).member, bench.holder().await), (&next, Some(next.clone())));
}

#[tokio::test]
async fn a_tool_that_subscribes_to_everything_does_not_make_the_dead_look_alive() {
    let mut bench = Bench::start().await;
    let (_one, _another) =
        (Watcher::start(&bench.server.url()).await, Watcher::start(&bench.server.url()).await);
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    bench.plant_dead(1).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((reply.passed_over, bench.holder().await), (1, Some(second.clone())));
    let third = a.queue(30_000).await;
    b.release(&second).await;
    assert_eq!(bench.holder().await, Some(third));
}

// Finding 14.
#[tokio::test]
async fn a_touch_tells_whether_the_server_counts_the_node_s_subscription() {
    let mut bench = Bench::start().await;
    let deaf = bench.deaf_node().await;
    let (a, b) = (bench.node().await, &deaf.node);
    a.hold(30_000).await;
    let (heard, unheard) = (a.queue(30_000).await, b.queue(30_000).await);
    assert_eq!(a.touch(&[&heard]).await.outcome.listeners, 1);
    assert_eq!(b.touch(&[&unheard]).await.outcome.listeners, 0);
}
