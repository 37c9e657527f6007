//! The rules of the page as facts of the scripts, and above all where a short way may not be taken:
//! the outcome is that of the long one.

use lockcore::internals::{
    Acquired, Answer, Command, Demand, Grant, Label, Leaving, Member, Mode, Released, Renewed,
    Reply,
};
use redis::cmd;

use crate::snapshot::{self, COUNTER, Snapshot};
use crate::world::World;

async fn start() -> World {
    let mut world = World::start().await;
    world.begin().await;
    // Places below it are drawn the long way.
    let floor_us = world.redis.time_us().await;
    world.scripts[0].1.floors_us = [floor_us, 0];
    let () = world.redis.ask(cmd("SET").arg(COUNTER).arg(floor_us)).await;
    world
}

fn member(world: &World, node: usize, number: u64, demand: Demand) -> Member {
    Member::new(&world.nodes[node].id, number, 30_000, demand, &Label::new("a label"))
}

fn one_of(limit: u32) -> Demand {
    Demand::permits(1, limit).expect("a demand")
}

async fn run(world: &mut World, node: usize, command: Command) -> Answer {
    let World { redis, scripts, lock, nodes, .. } = world;
    scripts[0].1.run(redis, lock, &nodes[node].id, &command).await.expect("answered")
}

async fn acquire_as(
    world: &mut World,
    node: usize,
    member: &Member,
    mode: Mode,
) -> Reply<Acquired> {
    let command = Command::Acquire { member: member.clone(), mode, queue_limit: 1_000 };
    match run(world, node, command).await {
        Answer::Acquired(reply) => reply,
        other => panic!("{other:?}"),
    }
}

async fn acquire(world: &mut World, node: usize, member: &Member) -> Acquired {
    acquire_as(world, node, member, Mode::Wait).await.outcome
}

async fn confirm(world: &mut World, node: usize, member: &Member) -> (Renewed, Vec<Grant>) {
    match run(world, node, Command::Confirm { member: member.clone() }).await {
        Answer::Renewed(reply) => (reply.outcome[0], reply.grants),
        other => panic!("{other:?}"),
    }
}

async fn waiting(world: &mut World) -> Vec<u64> {
    let seen = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    seen.state.queue.iter().map(|(_, member)| member.number()).collect()
}

/// Two permits of one: the first holds, the second, of another node, waits.
async fn held_and_waited_for(world: &mut World) -> [Member; 2] {
    let members = [member(world, 0, 1, one_of(1)), member(world, 1, 2, one_of(1))];
    assert_eq!(acquire(world, 0, &members[0]).await, Acquired::Granted);
    assert_eq!(acquire(world, 1, &members[1]).await, Acquired::Queued { position: 0 });
    members
}

async fn end_lease_of(world: &mut World, member: &Member) {
    let [_, _, holds, ..] = snapshot::keys(world.lock.as_str());
    let mut lapse = cmd("ZADD");
    lapse.arg(holds).arg("XX").arg(1).arg(member.as_str());
    let () = world.redis.ask(&lapse).await;
}

async fn ttl_of_door(world: &mut World, left_ms: u64) {
    let [door, ..] = snapshot::keys(world.lock.as_str());
    let () = world.redis.ask(cmd("PEXPIRE").arg(door).arg(left_ms)).await;
}

#[tokio::test]
async fn a_permit_that_comes_when_a_lease_has_ended_does_not_just_wait() {
    let mut world = start().await;
    let [holder, first] = held_and_waited_for(&mut world).await;
    end_lease_of(&mut world, &holder).await;
    let third = member(&world, 2, 3, one_of(1));
    assert_eq!(acquire(&mut world, 2, &third).await, Acquired::Queued { position: 0 });
    assert_eq!(confirm(&mut world, 1, &first).await.0, Renewed::Held);
}

#[tokio::test]
async fn a_permit_that_comes_behind_a_dead_head_is_in_front_of_it() {
    for is_silent in [false, true] {
        let mut world = start().await;
        held_and_waited_for(&mut world).await;
        let heavy = Demand::permits(2, 2).expect("a demand");
        let [door, queue, ..] = snapshot::keys(world.lock.as_str());
        if is_silent {
            let patience = format!("{door}:patience:{}", world.nodes[1].id);
            let () = world.redis.ask(cmd("DEL").arg(patience)).await;
        } else {
            // It would have to be asked whether this one, for which something is free, hears.
            let () = world.redis.ask(cmd("DEL").arg(queue)).await;
            let head = member(&world, 1, 3, heavy);
            acquire(&mut world, 1, &head).await;
            world.connect(1, false).await;
        }
        let last = member(&world, 2, 4, heavy);
        let outcome = acquire(&mut world, 2, &last).await;
        assert_eq!(outcome, Acquired::Queued { position: 0 }, "silent: {is_silent}");
        assert_eq!(waiting(&mut world).await, [4]);
    }
}

#[tokio::test]
async fn a_permit_that_asks_again_is_told_its_hold_or_its_place() {
    let mut world = start().await;
    let [holder, first] = held_and_waited_for(&mut world).await;
    let third = member(&world, 2, 3, one_of(1));
    acquire(&mut world, 2, &third).await;
    let counter: Option<u64> = world.redis.ask(cmd("GET").arg(COUNTER)).await;
    for mode in [Mode::Wait, Mode::Try] {
        assert_eq!(acquire_as(&mut world, 0, &holder, mode).await.outcome, Acquired::Granted);
        let position = |reply: Reply<Acquired>| reply.outcome;
        let again = acquire_as(&mut world, 2, &third, mode).await;
        assert_eq!(position(again), Acquired::Queued { position: 1 });
        let again = acquire_as(&mut world, 1, &first, mode).await;
        assert_eq!(position(again), Acquired::Queued { position: 0 });
    }
    let after: Option<u64> = world.redis.ask(cmd("GET").arg(COUNTER)).await;
    assert_eq!(after, counter, "a place that was drawn in vain goes back");
}

#[tokio::test]
async fn a_permit_that_waits_makes_a_door_that_ends_soon_live_on() {
    let mut world = start().await;
    let holder = member(&world, 0, 1, one_of(1));
    acquire(&mut world, 0, &holder).await;
    ttl_of_door(&mut world, 74_000).await;
    let first = member(&world, 1, 2, one_of(1));
    acquire(&mut world, 1, &first).await;
    let [door, ..] = snapshot::keys(world.lock.as_str());
    assert!(world.redis.pttl(&door).await >= 74_900);
}

#[tokio::test]
async fn a_try_that_is_refused_writes_nothing() {
    let mut world = start().await;
    held_and_waited_for(&mut world).await;
    let before = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    let third = member(&world, 2, 3, one_of(1));
    assert_eq!(acquire_as(&mut world, 2, &third, Mode::Try).await.outcome, Acquired::Busy);
    let after = Snapshot::take(&mut world.redis, world.lock.as_str()).await;
    assert_eq!(after.content(), before.content());
}

#[tokio::test]
async fn a_read_that_comes_when_the_lease_of_the_lock_has_ended_is_granted() {
    let mut world = start().await;
    let lock = member(&world, 0, 1, Demand::ALONE);
    let waiting = member(&world, 0, 2, Demand::ALONE);
    let read = member(&world, 1, 3, Demand::READ);
    acquire(&mut world, 0, &lock).await;
    acquire(&mut world, 0, &waiting).await;
    run(
        &mut world,
        0,
        Command::Leave { leaving: vec![Leaving { member: waiting, ambiguous: false }] },
    )
    .await;
    ttl_of_door(&mut world, 60_000).await;
    assert_eq!(acquire(&mut world, 1, &read).await, Acquired::Granted);
    assert_eq!(confirm(&mut world, 0, &lock).await, (Renewed::NotHeld, vec![]));
}

#[tokio::test]
async fn a_confirmation_tells_a_lock_a_new_token_and_a_part_the_one_it_shares() {
    let mut world = start().await;
    for (number, demand) in [(1, Demand::ALONE), (2, Demand::READ)] {
        let member = member(&world, 0, number, demand);
        let before = acquire_as(&mut world, 0, &member, Mode::Wait).await.grants[0].token;
        let (outcome, grants) = confirm(&mut world, 0, &member).await;
        assert_eq!(
            (outcome, grants[0].left_ms, &grants[0].member),
            (Renewed::Held, 30_000, &member)
        );
        assert_eq!(grants[0].token > before, demand == Demand::ALONE);
        run(&mut world, 0, Command::Release { member }).await;
    }
}

#[tokio::test]
async fn a_confirmation_extends_a_claim_to_the_whole_lease() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let (lock, next) = (member(&world, 0, 1, Demand::ALONE), member(&world, 1, 2, demand));
        acquire(&mut world, 0, &lock).await;
        acquire(&mut world, 1, &next).await;
        run(&mut world, 0, Command::Release { member: lock }).await;
        assert_eq!(confirm(&mut world, 1, &next).await.0, Renewed::Held);
        let Answer::Inspected(found) = run(&mut world, 0, Command::Inspect).await else {
            panic!("an inspection")
        };
        let left_ms = found.holds[0].2;
        assert!((29_000..=30_000).contains(&left_ms), "{demand}: {left_ms}");
    }
}

#[tokio::test]
async fn a_confirmation_by_a_node_that_has_seen_a_later_time_has_a_token_above_it() {
    let mut world = start().await;
    let lock = member(&world, 0, 1, Demand::ALONE);
    let token = acquire_as(&mut world, 0, &lock, Mode::Wait).await.grants[0].token.get();
    let floor_us = token + 5_000_000;
    world.scripts[0].1.floors_us = [floor_us, 0];
    let (_, grants) = confirm(&mut world, 0, &lock).await;
    assert!(grants[0].token.get() > floor_us);
}

#[tokio::test]
async fn a_full_memory_keeps_no_hold_from_being_confirmed() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let member = member(&world, 0, 1, demand);
        acquire(&mut world, 0, &member).await;
        world.redis.configure("maxmemory-policy", "noeviction").await;
        world.redis.configure("maxmemory", "1").await;
        assert_eq!(confirm(&mut world, 0, &member).await.0, Renewed::Held, "{demand}");
    }
}

/// A lock whose lease has ended while another waited for it.
async fn ended_and_waited_for(world: &mut World) -> [Member; 2] {
    let members = [1, 2].map(|number| member(world, number as usize - 1, number, Demand::ALONE));
    assert_eq!(acquire(world, 0, &members[0]).await, Acquired::Granted);
    assert_eq!(acquire(world, 1, &members[1]).await, Acquired::Queued { position: 0 });
    ttl_of_door(world, 60_000).await;
    members
}

#[tokio::test]
async fn a_lease_of_a_lock_that_has_ended_is_neither_renewed_nor_confirmed_nor_released() {
    let mut world = start().await;
    let [lock, _] = ended_and_waited_for(&mut world).await;
    let renewal = Command::Renew { members: vec![lock.clone()] };
    let Answer::Renewed(reply) = run(&mut world, 0, renewal).await else { panic!("a renewal") };
    assert_eq!(reply.outcome, [Renewed::NotHeld]);
    assert_eq!(confirm(&mut world, 0, &lock).await, (Renewed::NotHeld, vec![]));
    let release = Command::Release { member: lock };
    let Answer::Released(reply) = run(&mut world, 0, release).await else { panic!("a release") };
    assert_eq!(reply.outcome, Released::NotHeld);
}

#[tokio::test]
async fn a_lock_that_comes_when_the_lease_has_ended_hands_on() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let [_, next] = ended_and_waited_for(&mut world).await;
        let third = member(&world, 2, 3, demand);
        assert_eq!(acquire(&mut world, 2, &third).await, Acquired::Queued { position: 0 });
        assert_eq!(confirm(&mut world, 1, &next).await.0, Renewed::Held);
    }
}

#[tokio::test]
async fn a_member_that_was_passed_over_comes_back_into_its_place() {
    let mut world = start().await;
    let members: Vec<Member> =
        (0..4).map(|node| member(&world, node, node as u64 + 1, Demand::ALONE)).collect();
    for (node, member) in members.iter().enumerate() {
        acquire(&mut world, node, member).await;
    }
    world.connect(1, false).await;
    run(&mut world, 0, Command::Release { member: members[0].clone() }).await;
    assert_eq!(waiting(&mut world).await, [4]);
    world.connect(1, true).await;
    run(&mut world, 1, Command::Touch { members: vec![members[1].clone()] }).await;
    assert_eq!(waiting(&mut world).await, [2, 4]);
}

#[tokio::test]
async fn a_floor_above_the_counter_and_a_counter_above_two_to_the_53_raise_the_token() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let floor_us = world.redis.time_us().await + 5_000_000;
        world.scripts[0].1.floors_us = [floor_us, 0];
        for counter in [5, floor_us - 1, (1 << 53) - 1] {
            let () = world.redis.ask(cmd("SET").arg(COUNTER).arg(counter)).await;
            let member = member(&world, 0, counter, demand);
            let reply = acquire_as(&mut world, 0, &member, Mode::Wait).await;
            assert_eq!(reply.grants[0].token.get(), floor_us + 1, "{demand} at {counter}");
            run(&mut world, 0, Command::Release { member }).await;
        }
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_left_alone() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let () = world.redis.ask(cmd("SET").arg(COUNTER).arg("text")).await;
        let member = member(&world, 0, 1, demand);
        let command = Command::Acquire { member, mode: Mode::Wait, queue_limit: 1_000 };
        let World { redis, scripts, lock, nodes, .. } = &mut world;
        let answer = scripts[0].1.run(redis, lock, &nodes[0].id, &command).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(redis.get(COUNTER).await.as_deref(), Some("text"));
        assert_eq!(redis.keys("*").await, [COUNTER]);
    }
}

#[tokio::test]
async fn an_attempt_that_was_given_up_is_refused() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let member = member(&world, 0, 1, demand);
        let leaving = vec![Leaving { member: member.clone(), ambiguous: true }];
        run(&mut world, 0, Command::Leave { leaving }).await;
        assert_eq!(acquire(&mut world, 0, &member).await, Acquired::Refused);
    }
}

#[tokio::test]
async fn a_lock_that_becomes_a_read_has_a_new_token() {
    let mut world = start().await;
    let lock = member(&world, 0, 1, Demand::ALONE);
    let token = acquire_as(&mut world, 0, &lock, Mode::Wait).await.grants[0].token;
    let command = Command::Reduce { member: lock, weight: std::num::NonZeroU32::MIN };
    let Answer::Renewed(reply) = run(&mut world, 0, command).await else { panic!("a reduction") };
    assert!(reply.grants[0].token > token);
}

#[tokio::test]
async fn a_full_memory_refuses_an_acquire_and_leaves_nothing_behind() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        world.redis.configure("maxmemory-policy", "noeviction").await;
        world.redis.configure("maxmemory", "1").await;
        let member = member(&world, 0, 1, demand);
        let command = Command::Acquire { member, mode: Mode::Wait, queue_limit: 1_000 };
        let World { redis, scripts, lock, nodes, .. } = &mut world;
        let answer = scripts[0].1.run(redis, lock, &nodes[0].id, &command).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(redis.keys("*").await, [COUNTER]);
    }
}

#[tokio::test]
async fn a_full_memory_keeps_no_lock_from_being_handed_over() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut world = start().await;
        let (lock, next) = (member(&world, 0, 1, Demand::ALONE), member(&world, 1, 2, demand));
        acquire(&mut world, 0, &lock).await;
        acquire(&mut world, 1, &next).await;
        world.redis.configure("maxmemory-policy", "noeviction").await;
        world.redis.configure("maxmemory", "1").await;
        run(&mut world, 0, Command::Release { member: lock }).await;
        assert_eq!(confirm(&mut world, 1, &next).await.0, Renewed::Held, "{demand}");
    }
}
