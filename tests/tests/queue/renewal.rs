//! What a renewal does in one script for all holds of a node.

use lockcore::internals::{Answer, Command, Demand, Label, Member, Mode, Renewed};
use redis::cmd;

use crate::snapshot::{self, Snapshot};
use crate::world::World;

async fn run(world: &mut World, command: Command) -> Answer {
    let World { redis, scripts, lock, nodes, .. } = world;
    scripts[0].1.run(redis, lock, &nodes[0].id, &command).await.expect("answered")
}

async fn acquire(world: &mut World, member: &Member) {
    let (member, mode) = (member.clone(), Mode::Wait);
    run(world, Command::Acquire { member, mode, queue_limit: 1_000 }).await;
}

async fn renew(world: &mut World, members: &[&Member]) -> Vec<Renewed> {
    let members = members.iter().copied().cloned().collect();
    match run(world, Command::Renew { members }).await {
        Answer::Renewed(reply) => reply.outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_memory_keeps_no_hold_from_being_renewed() {
    let mut world = World::start().await;
    world.begin().await;
    let reader = Member::new(&world.nodes[0].id, 1, 30_000, Demand::READ, &Label::new("a label"));
    acquire(&mut world, &reader).await;
    let soon_ms = world.redis.time_us().await / 1_000 + 5_000;
    let [_, _, holds, ..] = snapshot::keys(world.lock.as_str());
    let mut shorten = cmd("ZADD");
    shorten.arg(holds).arg("XX").arg(soon_ms).arg(reader.as_str());
    let () = world.redis.ask(&shorten).await;
    world.redis.configure("maxmemory-policy", "noeviction").await;
    world.redis.configure("maxmemory", "1").await;
    assert_eq!(renew(&mut world, &[&reader]).await, [Renewed::Held]);
    let after = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    let ends_ms: Vec<u64> = after.state.holds.iter().map(|(ends_ms, _)| ends_ms).collect();
    assert!(matches!(ends_ms[..], [ends_ms] if ends_ms >= soon_ms + 20_000), "{ends_ms:?}");
}

#[tokio::test]
async fn one_that_was_released_does_not_keep_the_others_from_being_renewed() {
    let mut world = World::start().await;
    world.begin().await;
    let [first, gone, last] = [1, 2, 3].map(|number| {
        Member::new(&world.nodes[0].id, number, 30_000, Demand::READ, &Label::new("a label"))
    });
    for member in [&first, &gone, &last] {
        acquire(&mut world, member).await;
    }
    run(&mut world, Command::Release { member: gone.clone() }).await;
    let outcomes = renew(&mut world, &[&first, &gone, &last]).await;
    assert_eq!(outcomes, [Renewed::Held, Renewed::NotHeld, Renewed::Held]);
}
