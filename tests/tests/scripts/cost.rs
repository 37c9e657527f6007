//! How many commands each operation costs the server, by its own counters: one more is one more
//! that every user pays for.

use lock_tests::{CommandStats, Raw};
use lockcore::internals::Member;

use crate::bench::Bench;
use crate::node::Node;

/// How many commands scripts ran in `work`; reading the counters and the scripts themselves do not
/// count.
async fn cost(redis: &mut Raw, work: impl AsyncFnOnce()) -> u64 {
    let before = CommandStats::read(redis).await;
    work().await;
    let ran = CommandStats::read(redis).await.since(&before);
    let others = ["evalsha", "info", "ping"];
    ran.iter().filter(|(name, _)| !others.contains(name)).map(|(_, stat)| stat.calls).sum()
}

async fn hand_over(redis: &mut Raw, from: &Node, holder: &Member) -> u64 {
    cost(redis, async || drop(from.release(holder).await)).await
}

#[tokio::test]
async fn an_uncontended_pair_costs_six_commands_and_two() {
    let mut bench = Bench::start().await;
    let node = bench.node().await;
    let member = node.member(30_000);
    let acquire = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
    assert_eq!(acquire, 6, "an acquire of a free lock");
    let release = cost(&mut bench.redis, async || drop(node.release(&member).await)).await;
    assert_eq!(release, 2, "a release with none waiting");
}

#[tokio::test]
async fn an_enqueue_costs_nine_commands_and_one_more_if_the_holder_is_of_the_same_node() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    here.hold(30_000).await;
    for (node, expected) in [(&there, 9), (&there, 9), (&here, 10)] {
        let member = node.member(30_000);
        let enqueue = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
        assert_eq!(enqueue, expected);
    }
}

#[tokio::test]
async fn a_try_at_a_held_lock_costs_five_commands_and_seven_where_others_wait() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    here.hold(30_000).await;
    let (first, second) = (there.member(30_000), there.member(30_000));
    let alone = cost(&mut bench.redis, async || drop(there.try_now(&first).await)).await;
    there.queue(30_000).await;
    let behind = cost(&mut bench.redis, async || drop(there.try_now(&second).await)).await;
    assert_eq!((alone, behind), (5, 7));
}

#[tokio::test]
async fn a_hand_over_costs_thirteen_commands_and_eleven_within_a_node() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    let first = here.hold(30_000).await;
    let (second, third) = (there.queue(30_000).await, there.queue(30_000).await);
    there.queue(30_000).await;
    assert_eq!(hand_over(&mut bench.redis, &here, &first).await, 13, "to another node");
    assert_eq!(hand_over(&mut bench.redis, &there, &second).await, 11, "within a node");
    assert_eq!(bench.holder().await, Some(third));
}

#[tokio::test]
async fn a_renewal_costs_five_commands_and_a_touch_of_one_that_waits_ten() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    let holder = here.hold(30_000).await;
    let waiting = there.queue(30_000).await;
    let renewal = cost(&mut bench.redis, async || drop(here.renew(&holder).await)).await;
    let touch = cost(&mut bench.redis, async || drop(there.touch(&[&waiting]).await)).await;
    assert_eq!((renewal, touch), (5, 10));
}
