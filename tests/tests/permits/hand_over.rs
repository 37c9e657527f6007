//! What a release sees that hands over to the head alone.

use lockcore::internals::Label;
use lockcore::internals::protocol::permits::{Command, Demand, Member, Mode};
use redis::cmd;

use crate::snapshot::{self, Snapshot};
use crate::world::World;

#[tokio::test]
async fn a_release_grants_what_a_lapsed_neighbour_leaves_free_too() {
    let mut world = World::start().await;
    world.begin().await;
    let node = world.nodes[0].id.clone();
    let member = |number, weight| {
        let demand = Demand::permits(weight, 3).expect("a demand");
        Member::new(&node, number, 30_000, demand, &Label::new("a label"))
    };
    // Two of three and one of three hold; the first in line wants just what the former gives back.
    let [two, lapsed, head, next] = [(1, 2), (2, 1), (3, 2), (4, 1)].map(|(n, w)| member(n, w));
    let run = async |world: &mut World, command: Command| {
        let World { redis, permits, lock, nodes, .. } = world;
        permits[0].1.run(redis, lock, &nodes[0].id, &command).await.expect("answered")
    };
    for member in [&two, &lapsed, &head, &next] {
        let (member, mode) = (member.clone(), Mode::Wait);
        run(&mut world, Command::Acquire { member, mode, queue_limit: 1_000 }).await;
    }
    let [_, holds, ..] = snapshot::keys(world.lock.as_str());
    let mut lapse = cmd("ZADD");
    lapse.arg(holds).arg("XX").arg(1).arg(lapsed.as_str());
    let () = world.redis.ask(&lapse).await;
    run(&mut world, Command::Release { member: two }).await;
    let after = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    assert_eq!(after.state.used, Some(3));
    let held: Vec<&Member> = after.state.holds.iter().map(|(_, member)| member).collect();
    assert_eq!(held, [&head, &next]);
}
