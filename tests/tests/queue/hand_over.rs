//! Grants that a release makes at once, to the head and to the members behind it.

use lockcore::internals::protocol::queue::Held;
use lockcore::internals::{Command, Demand, Label, Member, Mode};
use redis::cmd;

use crate::snapshot::{self, Snapshot};
use crate::world::World;

async fn start() -> World {
    let mut world = World::start().await;
    world.begin().await;
    world
}

fn member(world: &World, number: u64, demand: Demand) -> Member {
    Member::new(&world.nodes[0].id, number, 30_000, demand, &Label::new("a label"))
}

fn permits(weight: u32, limit: u32) -> Demand {
    Demand::permits(weight, limit).expect("a demand")
}

async fn run(world: &mut World, command: Command) {
    let World { redis, scripts, lock, nodes, .. } = world;
    scripts[0].1.run(redis, lock, &nodes[0].id, &command).await.expect("answered");
}

async fn acquire(world: &mut World, member: &Member) {
    let (member, mode) = (member.clone(), Mode::Wait);
    run(world, Command::Acquire { member, mode, queue_limit: 1_000 }).await;
}

/// Releases the first, for which all others wait, and returns those that hold then.
async fn released(world: &mut World, demands: &[Demand]) -> Vec<Demand> {
    let members: Vec<_> =
        (1..).zip(demands).map(|(number, demand)| member(world, number, *demand)).collect();
    for member in &members {
        acquire(world, member).await;
    }
    run(world, Command::Release { member: members[0].clone() }).await;
    let after = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    let mut holds: Vec<_> = after.state.holds.iter().map(|(_, member)| member.clone()).collect();
    holds.sort_by_key(Member::number);
    holds.iter().map(Member::demand).collect()
}

#[tokio::test]
async fn a_release_grants_what_a_lapsed_neighbour_leaves_free_too() {
    let mut world = start().await;
    // Two of three and one of three hold; the first in line wants just what the former gives back.
    let [two, lapsed, head, next] =
        [(1, 2), (2, 1), (3, 2), (4, 1)].map(|(n, w)| member(&world, n, permits(w, 3)));
    for member in [&two, &lapsed, &head, &next] {
        acquire(&mut world, member).await;
    }
    let [_, _, holds, ..] = snapshot::keys(world.lock.as_str());
    let mut lapse = cmd("ZADD");
    lapse.arg(holds).arg("XX").arg(1).arg(lapsed.as_str());
    let () = world.redis.ask(&lapse).await;
    run(&mut world, Command::Release { member: two }).await;
    let after = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    assert_eq!(parts(&after).0, 3);
    let held: Vec<&Member> = after.state.holds.iter().map(|(_, member)| member).collect();
    assert_eq!(held, [&head, &next]);
}

#[tokio::test]
async fn a_read_behind_a_permit_that_took_its_last_is_granted_in_the_same_step() {
    let demands = [Demand::ALONE, permits(1, 1), Demand::READ];
    assert_eq!(released(&mut start().await, &demands).await, demands[1..]);
}

#[tokio::test]
async fn ten_permits_with_limits_one_to_ten_are_granted_in_one_step() {
    let mut demands = vec![Demand::ALONE];
    demands.extend((1..=10).map(|limit| permits(1, limit)));
    assert_eq!(released(&mut start().await, &demands).await, demands[1..]);
}

#[tokio::test]
async fn a_release_that_hands_over_to_the_head_alone_leaves_the_next_of_its_limit_waiting() {
    let demands = [permits(1, 1), permits(1, 1), permits(1, 1)];
    assert_eq!(released(&mut start().await, &demands).await, demands[1..2]);
}

#[tokio::test]
async fn the_head_gets_no_token_from_before_a_failover() {
    let mut world = start().await;
    let [holder, other, head, next] = [1, 2, 3, 4].map(|n| member(&world, n, permits(1, 2)));
    for member in [&holder, &other, &head, &next] {
        acquire(&mut world, member).await;
    }
    let shared = token(&mut world).await;
    run(&mut world, Command::Release { member: holder }).await;
    assert_eq!(token(&mut world).await, shared, "of the same server");
    world.scripts[0].1.floors_us = [shared, shared];
    run(&mut world, Command::Release { member: head }).await;
    let new = token(&mut world).await;
    assert!(new > shared, "{new} after {shared}, which was issued elsewhere");
}

/// How much is held in parts, and by which token.
fn parts(seen: &Snapshot) -> (u64, u64) {
    match &seen.state.door.as_ref().expect("it is held").held {
        Held::Parts { used, token: Some(token) } => (*used, token.get()),
        other => panic!("{other:?}"),
    }
}

async fn token(world: &mut World) -> u64 {
    parts(&Snapshot::take(&mut world.redis, world.lock.as_str()).await).1
}
