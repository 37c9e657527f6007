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

/// A bench whose counter of tokens is above the times that its nodes have seen.
async fn warm() -> (Bench, Node, Node) {
    let bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    for node in [&here, &there] {
        let member = node.hold(30_000).await;
        node.release(&member).await;
    }
    (bench, here, there)
}

#[tokio::test]
async fn an_uncontended_pair_costs_three_commands_and_two() {
    let (mut bench, node, _) = warm().await;
    let member = node.member(30_000);
    let acquire = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
    let release = cost(&mut bench.redis, async || drop(node.release(&member).await)).await;
    assert_eq!((acquire, release), (3, 2));
}

#[tokio::test]
async fn the_first_of_a_node_to_wait_costs_nine_commands_and_each_later_one_six() {
    let (mut bench, here, there) = warm().await;
    here.hold(30_000).await;
    let mut costs = Vec::new();
    for node in [&there, &there, &here, &here] {
        let member = node.member(30_000);
        costs.push(cost(&mut bench.redis, async || drop(node.wait(&member).await)).await);
    }
    assert_eq!(costs, [9, 6, 8, 6]);
}

#[tokio::test]
async fn a_hand_over_to_another_node_costs_nine_commands_and_one_within_a_node_six() {
    let (mut bench, here, there) = warm().await;
    let first = here.hold(30_000).await;
    let (second, third) = (there.queue(30_000).await, there.queue(30_000).await);
    there.queue(30_000).await;
    let to_another = hand_over(&mut bench.redis, &here, &first).await;
    let within = hand_over(&mut bench.redis, &there, &second).await;
    assert_eq!((to_another, within), (9, 6));
    assert_eq!(bench.holder().await, Some(third));
}

#[tokio::test]
async fn a_try_at_a_held_lock_costs_ten_commands_and_twelve_where_others_wait() {
    let (mut bench, here, there) = warm().await;
    here.hold(30_000).await;
    let (first, second) = (there.member(30_000), there.member(30_000));
    let alone = cost(&mut bench.redis, async || drop(there.try_now(&first).await)).await;
    there.queue(30_000).await;
    let behind = cost(&mut bench.redis, async || drop(there.try_now(&second).await)).await;
    assert_eq!((alone, behind), (10, 12));
}

#[tokio::test]
async fn a_renewal_costs_four_commands_and_a_touch_of_one_that_waits_fourteen() {
    let (mut bench, here, there) = warm().await;
    let holder = here.hold(30_000).await;
    let waiting = there.queue(30_000).await;
    let renewal = cost(&mut bench.redis, async || drop(here.renew(&holder).await)).await;
    let touch = cost(&mut bench.redis, async || drop(there.touch(&[&waiting]).await)).await;
    assert_eq!((renewal, touch), (4, 14));
}
