//! How many commands each script runs on its usual way, by the server's own counters: one more is
//! one more that every user pays for.

use lock_tests::CommandStats;
use lockcore::internals::{Command, Demand, Label, Leaving, Member, Mode};

use crate::world::World;

struct Bench {
    world: World,
    numbers: u64,
}

impl Bench {
    async fn start() -> Self {
        let mut world = World::start().await;
        world.begin().await;
        // Of the first token, the counter is at the server's time.
        world.scripts[0].1.floors_us = [world.redis.time_us().await, 0];
        let mut bench = Self { world, numbers: 0 };
        let first = bench.member(0, Demand::ALONE);
        bench.run(0, acquire(&first)).await;
        bench.run(0, Command::Release { member: first }).await;
        bench
    }

    fn member(&mut self, node: usize, demand: Demand) -> Member {
        self.numbers += 1;
        let id = &self.world.nodes[node].id;
        Member::new(id, self.numbers, 30_000, demand, &Label::new("a label"))
    }

    /// The number of commands that the script ran.
    async fn run(&mut self, node: usize, command: Command) -> u64 {
        let World { redis, scripts, lock, nodes, .. } = &mut self.world;
        let before = CommandStats::read(redis).await;
        scripts[0].1.run(redis, lock, &nodes[node].id, &command).await.expect("answered");
        let ran = CommandStats::read(redis).await.since(&before);
        ran.iter()
            .filter(|(name, _)| !["evalsha", "info"].contains(name))
            .map(|(_, s)| s.calls)
            .sum()
    }

    /// A new member that is granted, or waits, and the number of commands.
    async fn add(&mut self, node: usize, demand: Demand) -> (Member, u64) {
        let member = self.member(node, demand);
        let ran = self.run(node, acquire(&member)).await;
        (member, ran)
    }
}

fn acquire(member: &Member) -> Command {
    Command::Acquire { member: member.clone(), mode: Mode::Wait, queue_limit: 1_000 }
}

fn release(member: &Member) -> Command {
    Command::Release { member: member.clone() }
}

fn one_of(limit: u32) -> Demand {
    Demand::permits(1, limit).expect("a demand")
}

#[tokio::test]
async fn a_free_lock_costs_three_commands_and_its_release_two() {
    let mut bench = Bench::start().await;
    let (member, ran) = bench.add(0, Demand::ALONE).await;
    assert_eq!((ran, bench.run(0, release(&member)).await), (3, 2));
}

#[tokio::test]
async fn the_first_wait_for_a_lock_costs_nine_commands_and_the_next_of_its_node_six() {
    let mut bench = Bench::start().await;
    bench.add(0, Demand::ALONE).await;
    assert_eq!(bench.add(1, Demand::ALONE).await.1, 9);
    assert_eq!(bench.add(1, Demand::ALONE).await.1, 6);
}

#[tokio::test]
async fn a_hand_over_costs_nine_commands_and_six_within_a_node() {
    let mut bench = Bench::start().await;
    let (first, _) = bench.add(0, Demand::ALONE).await;
    let (second, _) = bench.add(1, Demand::ALONE).await;
    bench.add(1, Demand::ALONE).await;
    assert_eq!(bench.run(0, release(&first)).await, 9);
    assert_eq!(bench.run(1, release(&second)).await, 6);
}

#[tokio::test]
async fn a_confirmation_costs_four_commands_and_a_renewal_one_more_behind_a_mark() {
    let mut bench = Bench::start().await;
    let (member, _) = bench.add(0, Demand::ALONE).await;
    let renewal = || Command::Renew { members: vec![member.clone()] };
    let confirmation = || Command::Confirm { member: member.clone() };
    assert_eq!(bench.run(0, confirmation()).await, 4);
    assert_eq!(bench.run(0, renewal()).await, 3);
    bench.add(1, Demand::ALONE).await;
    assert_eq!(bench.run(0, confirmation()).await, 4);
    assert_eq!(bench.run(0, renewal()).await, 4);
}

#[tokio::test]
async fn a_read_that_waits_for_a_lock_costs_as_much_as_a_lock_and_a_look_at_the_head() {
    let mut bench = Bench::start().await;
    bench.add(0, Demand::ALONE).await;
    assert_eq!(bench.add(1, Demand::READ).await.1, 9);
    assert_eq!(bench.add(1, Demand::READ).await.1, 7);
}

#[tokio::test]
async fn a_permit_that_waits_costs_twelve_commands_and_ten_or_thirteen_behind_others() {
    let mut bench = Bench::start().await;
    bench.add(0, one_of(1)).await;
    let first = bench.add(1, one_of(1)).await.1;
    let next = bench.add(1, one_of(1)).await.1;
    let of_another_node = bench.add(2, one_of(1)).await.1;
    assert_eq!((first, next, of_another_node), (12, 10, 13));
}

#[tokio::test]
async fn a_try_where_no_permit_is_free_costs_six_commands_and_nine_where_others_wait() {
    let mut bench = Bench::start().await;
    bench.add(0, one_of(1)).await;
    let member = bench.member(1, one_of(1));
    let one = || Command::Acquire { member: member.clone(), mode: Mode::Try, queue_limit: 1_000 };
    let alone = bench.run(1, one()).await;
    bench.add(2, one_of(1)).await;
    let behind = bench.run(1, one()).await;
    assert_eq!((alone, behind), (6, 9));
}

#[tokio::test]
async fn a_part_costs_seven_commands_and_its_confirmation_and_renewal_six() {
    let mut bench = Bench::start().await;
    let (first, _) = bench.add(0, Demand::READ).await;
    assert_eq!(bench.add(0, Demand::READ).await.1, 6);
    assert_eq!(bench.run(0, Command::Confirm { member: first.clone() }).await, 6);
    assert_eq!(bench.run(0, Command::Renew { members: vec![first.clone()] }).await, 6);
    assert_eq!(bench.run(0, release(&first)).await, 5);
}

#[tokio::test]
async fn what_a_script_costs_does_not_depend_on_how_many_wait() {
    let mut bench = Bench::start().await;
    let (mut holder, _) = bench.add(0, Demand::ALONE).await;
    let mut costs = Vec::new();
    for waiting in [2, 100] {
        let mut line = Vec::new();
        for _ in 0..waiting {
            line.push(bench.add(1, Demand::ALONE).await.0);
        }
        let enqueue = bench.add(1, Demand::ALONE).await;
        let off = bench.run(0, release(&holder)).await;
        let leaving = vec![Leaving { member: enqueue.0, ambiguous: false }];
        let leave = bench.run(1, Command::Leave { leaving }).await;
        costs.push([enqueue.1, off, leave]);
        bench.world.begin().await;
        holder = bench.add(0, Demand::ALONE).await.0;
        bench.run(0, release(&holder)).await;
        holder = bench.add(0, Demand::ALONE).await.0;
    }
    assert_eq!(costs[0], costs[1]);
}
