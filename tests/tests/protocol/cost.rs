//! How many commands each script usually runs, by the server's own counters, and the size of its
//! reply: every user pays for each additional command.

use lock_tests::protocol::{PREFIX, Script, error_of};
use lock_tests::{COUNTER, CommandStats, Raw};
use proto::layout::QUEUE;
use proto::wire::{TokenFloors, Wire, scripts};
use proto::{Command, Demand, Member, Mode, Topology};
use redis::{Value, cmd};

use crate::asking::{acquire, acquire_all, leave};
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    queue_scripts: [
        a_free_lock_costs_three_commands_and_its_release_two,
        a_wait_for_a_lock_costs_nine_commands_for_the_first_and_six_for_the_next_of_a_node,
        a_wait_of_several_for_a_lock_costs_nine_commands_and_seven_behind_others_however_many_ask,
        a_hand_over_costs_nine_commands_and_six_within_a_node,
        tombstones_cost_each_wait_and_each_hand_over_one_command,
        a_confirmation_costs_four_commands_and_a_renewal_three_and_one_more_behind_a_mark,
        a_read_that_waits_for_a_lock_costs_as_much_as_a_lock_and_a_look_at_the_head,
        a_permit_that_waits_costs_twelve_commands_and_ten_or_fourteen_behind_others,
        a_try_where_no_permit_is_free_costs_six_commands_and_ten_where_others_wait,
        a_second_read_its_confirmation_and_its_renewal_cost_six_commands_and_its_release_five,
        no_script_costs_more_where_more_wait,
        the_hot_commands_and_their_answers_are_short,
    ],
}

impl Bench {
    /// A node after the first value of all was drawn by the slow path: the server's time was above
    /// it.
    async fn drawing_node(&mut self) -> Node {
        let node = self.node().await;
        let first = node.hold(30_000).await;
        node.release(&first).await;
        node
    }
}

/// The number of commands that scripts ran for this command; reading the counters and the scripts
/// themselves do not count. The node has seen the last value, and no later time.
async fn cost(redis: &mut Raw, node: &Node, command: Command) -> u64 {
    load(redis).await;
    node.set_seen(redis.ask(cmd("GET").arg(COUNTER)).await);
    let before = CommandStats::read(redis).await;
    node.run(command).await.expect("answered");
    let ran = CommandStats::read(redis).await.since(&before);
    let others = ["evalsha", "info"];
    ran.iter().filter(|(name, _)| !others.contains(name)).map(|(_, stat)| stat.calls).sum()
}

async fn load(redis: &mut Raw) {
    for script in scripts::of_queue(Topology::Single).all() {
        let _: String = redis.ask(cmd("SCRIPT").arg("LOAD").arg(&*script.source)).await;
    }
}

/// A new member, granted or waiting, and the number of commands.
async fn add(bench: &mut Bench, node: &Node, demand: Demand) -> (Member, u64) {
    let member = node.member_for(demand, 30_000);
    let ran = cost(bench.redis(), node, acquire(&member, Mode::Wait, 1_000)).await;
    (member, ran)
}

async fn release(bench: &mut Bench, node: &Node, member: &Member) -> u64 {
    cost(bench.redis(), node, Command::Release { member: member.clone() }).await
}

async fn confirm(bench: &mut Bench, node: &Node, member: &Member) -> u64 {
    cost(bench.redis(), node, Command::Confirm { member: member.clone() }).await
}

async fn renew(bench: &mut Bench, node: &Node, member: &Member) -> u64 {
    cost(bench.redis(), node, Command::Renew { members: vec![member.clone()] }).await
}

async fn a_free_lock_costs_three_commands_and_its_release_two(mut bench: Bench) {
    let a = bench.drawing_node().await;
    let (member, ran) = add(&mut bench, &a, Demand::EXCLUSIVE).await;
    assert_eq!((ran, release(&mut bench, &a, &member).await), (3, 2));
}

async fn a_wait_for_a_lock_costs_nine_commands_for_the_first_and_six_for_the_next_of_a_node(
    mut bench: Bench,
) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    a.hold(30_000).await;
    for (node, expected) in [(&b, 9), (&b, 6), (&a, 8), (&a, 6)] {
        assert_eq!(add(&mut bench, node, Demand::EXCLUSIVE).await.1, expected);
    }
}

async fn a_wait_of_several_for_a_lock_costs_nine_commands_and_seven_behind_others_however_many_ask(
    mut bench: Bench,
) {
    for count in [2, 64] {
        bench.restart().await;
        let (a, b) = (bench.drawing_node().await, bench.node().await);
        a.hold(30_000).await;
        for expected in [9, 7] {
            let asking: Vec<_> = (0..count).map(|_| b.member(30_000)).collect();
            let asking: Vec<_> = asking.iter().collect();
            let command = acquire_all(&asking, Mode::Wait, 1_000);
            assert_eq!(cost(bench.redis(), &b, command).await, expected, "{count}");
        }
        assert_eq!(bench.queue().await.len(), 2 * count);
    }
}

async fn a_hand_over_costs_nine_commands_and_six_within_a_node(mut bench: Bench) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    let third = b.queue(30_000).await;
    b.queue(30_000).await;
    assert_eq!(release(&mut bench, &a, &first).await, 9, "to another node");
    assert_eq!(release(&mut bench, &b, &second).await, 6, "within a node");
    assert_eq!(bench.holder().await, Some(third));
}

// A grant that overtakes the reply to its acquire leaves a tombstone: the busiest locks have them.
async fn tombstones_cost_each_wait_and_each_hand_over_one_command(mut bench: Bench) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    let first = a.hold(30_000).await;
    b.leave_ambiguous(&b.member(30_000)).await;
    let mut waiting = Vec::new();
    // The lock key is flagged already, so the first waiter sets no flag.
    for (node, expected) in [(&b, 9), (&b, 7), (&a, 9), (&a, 7)] {
        let (member, ran) = add(&mut bench, node, Demand::EXCLUSIVE).await;
        assert_eq!(ran, expected);
        waiting.push(member);
    }
    let several = [b.member(30_000), b.member(30_000)];
    let several: Vec<_> = several.iter().collect();
    assert_eq!(cost(bench.redis(), &b, acquire_all(&several, Mode::Wait, 1_000)).await, 8);
    assert_eq!(release(&mut bench, &a, &first).await, 10, "to another node");
    assert_eq!(release(&mut bench, &b, &waiting[0]).await, 7, "within a node");
    let last = waiting.pop().expect("four wait");
    assert_eq!(cost(bench.redis(), &a, leave(&[(&last, false)])).await, 5);
}

async fn a_confirmation_costs_four_commands_and_a_renewal_three_and_one_more_behind_a_mark(
    mut bench: Bench,
) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    let member = a.hold(30_000).await;
    for renewal in [3, 4] {
        assert_eq!(confirm(&mut bench, &a, &member).await, 4);
        assert_eq!(renew(&mut bench, &a, &member).await, renewal);
        b.queue(30_000).await;
    }
}

async fn a_read_that_waits_for_a_lock_costs_as_much_as_a_lock_and_a_look_at_the_head(
    mut bench: Bench,
) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    a.hold(30_000).await;
    assert_eq!(add(&mut bench, &b, Demand::READ).await.1, 9);
    assert_eq!(add(&mut bench, &b, Demand::READ).await.1, 7);
}

async fn a_permit_that_waits_costs_twelve_commands_and_ten_or_fourteen_behind_others(
    mut bench: Bench,
) {
    let a = bench.drawing_node().await;
    let (b, c) = (bench.node().await, bench.node().await);
    a.hold_for(permits(1, 1), 30_000).await;
    for (node, expected) in [(&b, 12), (&b, 10), (&c, 14)] {
        assert_eq!(add(&mut bench, node, permits(1, 1)).await.1, expected);
    }
}

async fn a_try_where_no_permit_is_free_costs_six_commands_and_ten_where_others_wait(
    mut bench: Bench,
) {
    let (a, b) = (bench.drawing_node().await, bench.node().await);
    a.hold_for(permits(1, 1), 30_000).await;
    let member = b.member_for(permits(1, 1), 30_000);
    for expected in [6, 10] {
        let ran = cost(bench.redis(), &b, acquire(&member, Mode::Try, 1_000)).await;
        assert_eq!(ran, expected);
        a.queue_for(permits(1, 1), 30_000).await;
    }
}

async fn a_second_read_its_confirmation_and_its_renewal_cost_six_commands_and_its_release_five(
    mut bench: Bench,
) {
    let a = bench.drawing_node().await;
    a.hold_for(Demand::READ, 60_000).await;
    let (member, ran) = add(&mut bench, &a, Demand::READ).await;
    assert_eq!(ran, 6);
    assert_eq!(confirm(&mut bench, &a, &member).await, 6);
    assert_eq!(renew(&mut bench, &a, &member).await, 6);
    assert_eq!(release(&mut bench, &a, &member).await, 5);
}

async fn no_script_costs_more_where_more_wait(mut bench: Bench) {
    let mut costs = Vec::new();
    for waiting in [3, 300] {
        bench.restart().await;
        let (a, b) = (bench.drawing_node().await, bench.node().await);
        let holder = a.hold(30_000).await;
        for _ in 0..waiting {
            b.queue(30_000).await;
        }
        let (leaver, enqueue) = add(&mut bench, &b, Demand::EXCLUSIVE).await;
        let left = cost(bench.redis(), &b, leave(&[(&leaver, false)])).await;
        costs.push([enqueue, left, release(&mut bench, &a, &holder).await]);
    }
    assert_eq!(costs[0], costs[1]);
}

/// The size of a command and of its reply in bytes, in the server's protocol.
async fn bytes(bench: &mut Bench, node: &Node, command: &Command) -> (usize, usize) {
    let floor_us = bench.counter().await - 7;
    let floors = TokenFloors { floor_us, latest_us: floor_us, ..TokenFloors::default() };
    let node = node.id.clone();
    let wire = Wire {
        node,
        prefix: PREFIX.into(),
        layout: QUEUE,
        topology: Topology::Single,
        of_error: error_of,
    };
    let call: Script = wire.write(&[(&bench.lock, command)], floors).expect("a script");
    let answer = match bench.redis().ask::<Value>(&call.command).await {
        Value::BulkString(bytes) => bytes.len(),
        Value::Int(number) => number.to_string().len(),
        answer => panic!("{answer:?} is no short answer"),
    };
    (call.command.get_packed_command().len(), answer)
}

async fn the_hot_commands_and_their_answers_are_short(mut bench: Bench) {
    let a = bench.drawing_node().await;
    load(bench.redis()).await;
    let [one, member, next] = [(); 3].map(|()| a.member(30_000));
    let text = member.as_str().len();
    let commands = [
        (acquire(&one, Mode::Wait, 1_000), 180, text + 16),
        (Command::Release { member: one }, 170, 1),
        (acquire(&member, Mode::Wait, 1_000), 180, text + 16),
        (Command::Renew { members: vec![member.clone()] }, 130, text + 17),
        (acquire(&next, Mode::Wait, 1_000), 180, 14),
        (Command::Release { member }, 170, text + 16),
    ];
    for (command, most, most_answered) in commands {
        let (sent, answered) = bytes(&mut bench, &a, &command).await;
        assert!(
            sent <= most + text && answered <= most_answered,
            "{command:?}: {sent}, {answered}"
        );
    }
}
