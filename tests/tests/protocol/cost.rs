//! How many commands each operation costs the server, by its own counters, and how many bytes its
//! answer has: one more is one more that every user pays for.

use lock_tests::{CommandStats, Raw};
use lockcore::internals::{Command, Demand, Member, Mode, wire};
use redis::Value;

use crate::asking::acquire;
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
async fn an_uncontended_pair_costs_three_commands_and_two() {
    let mut bench = Bench::start().await;
    let node = bench.node().await;
    // The first number of all is drawn the long way: the server's time is above it.
    let first = node.hold(30_000).await;
    node.release(&first).await;
    let member = node.member(30_000);
    let acquire = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
    assert_eq!(acquire, 3, "an acquire of a free lock");
    let release = cost(&mut bench.redis, async || drop(node.release(&member).await)).await;
    assert_eq!(release, 2, "a release with none waiting");
}

#[tokio::test]
async fn an_enqueue_costs_nine_commands_for_the_first_and_six_for_the_next_of_a_node() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    here.hold(30_000).await;
    for (node, expected) in [(&there, 9), (&there, 6), (&here, 8), (&here, 6)] {
        let member = node.member(30_000);
        let enqueue = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
        assert_eq!(enqueue, expected);
    }
}

#[tokio::test]
async fn a_hand_over_costs_nine_commands_and_six_within_a_node() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    let first = here.hold(30_000).await;
    let (second, third) = (there.queue(30_000).await, there.queue(30_000).await);
    there.queue(30_000).await;
    assert_eq!(hand_over(&mut bench.redis, &here, &first).await, 9, "to another node");
    assert_eq!(hand_over(&mut bench.redis, &there, &second).await, 6, "within a node");
    assert_eq!(bench.holder().await, Some(third));
}

#[tokio::test]
async fn a_renewal_costs_three_commands_and_one_more_where_others_wait() {
    let mut bench = Bench::start().await;
    let (here, there) = (bench.node().await, bench.node().await);
    let holder = here.hold(30_000).await;
    let alone = cost(&mut bench.redis, async || drop(here.renew(&holder).await)).await;
    there.queue(30_000).await;
    let waited = cost(&mut bench.redis, async || drop(here.renew(&holder).await)).await;
    assert_eq!((alone, waited), (3, 4));
}

#[tokio::test]
async fn a_second_read_and_its_renewal_cost_six_commands_and_its_release_five() {
    let mut bench = Bench::start().await;
    let node = bench.node().await;
    node.hold_for(Demand::READ, 60_000).await;
    let member = node.member_for(Demand::READ, 30_000);
    let acquire = cost(&mut bench.redis, async || drop(node.wait(&member).await)).await;
    let renewal = cost(&mut bench.redis, async || drop(node.renew(&member).await)).await;
    let release = cost(&mut bench.redis, async || drop(node.release(&member).await)).await;
    assert_eq!((acquire, renewal, release), (6, 6, 5));
}

// The dead cost one look each, and the living nothing, however many wait.
#[tokio::test]
async fn what_a_hand_over_and_a_leave_cost_does_not_depend_on_how_many_wait() {
    let mut costs = Vec::new();
    for waiting in [3, 300] {
        let mut bench = Bench::start().await;
        let (here, there) = (bench.node().await, bench.node().await);
        let first = here.hold(30_000).await;
        let mut members = Vec::new();
        for _ in 0..waiting {
            members.push(there.queue(30_000).await);
        }
        let leaver = members.last().expect("some wait").clone();
        costs.push([
            cost(&mut bench.redis, async || drop(there.leave(&leaver).await)).await,
            hand_over(&mut bench.redis, &here, &first).await,
        ]);
    }
    assert_eq!(costs[0], costs[1]);
}

/// The bytes of a command and of its answer, in the protocol of the server.
async fn bytes(bench: &mut Bench, node: &Node, command: &Command) -> (usize, usize) {
    let last: u64 = bench.counter().await.parse().expect("a number");
    let floors = [last - 7, 0];
    let call = wire::queue::command(&bench.lock, &node.id, "lockcore", command, floors);
    let answer = match bench.redis.ask::<Value>(&call).await {
        Value::BulkString(bytes) => bytes.len(),
        Value::Int(number) => number.to_string().len(),
        answer => panic!("{answer:?} is no short answer"),
    };
    (call.get_packed_command().len(), answer)
}

#[tokio::test]
async fn the_hot_commands_and_their_answers_are_short() {
    let mut bench = Bench::start().await;
    let node = bench.node().await;
    let first = node.hold(30_000).await;
    node.release(&first).await;
    let [one, member, next] = [(); 3].map(|()| node.member(30_000));
    let text = member.as_str().len();
    let commands = [
        (acquire(&one, Mode::Wait, 1_000), 180, text + 8),
        (Command::Release { member: one }, 170, 1),
        (acquire(&member, Mode::Wait, 1_000), 180, text + 8),
        (Command::Renew { members: vec![member.clone()] }, 130, 17),
        (acquire(&next, Mode::Wait, 1_000), 180, 14),
        (Command::Release { member }, 170, text + 8),
    ];
    for (command, most, most_answered) in commands {
        let (sent, answered) = bytes(&mut bench, &node, &command).await;
        assert!(
            sent <= most + text && answered <= most_answered,
            "{command:?}: {sent}, {answered}"
        );
    }
}
