//! The fast paths of the scripts, and above all where they must not be taken: the outcome equals
//! the slow path's.

use lock_tests::{COUNTER, lock_key, queue_key};
use proto::{Acquired, Demand, Member, Mode, Renewed};
use redis::cmd;

use crate::asking::{acquire, grant, left_ms};
use crate::bench::{Bench, LOCK};
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    both: [
        a_confirmation_extends_a_claim_to_the_full_lease,
    ],
    queue: [
        a_permit_that_comes_when_a_lease_has_ended_does_not_just_wait,
        a_permit_that_comes_behind_a_dead_head_is_in_front_of_it,
        a_permit_that_asks_again_is_told_its_hold_or_its_position,
        a_permit_that_waits_makes_a_lock_key_that_ends_soon_live_on,
        a_renewal_of_a_part_makes_a_lock_key_that_ends_soon_live_on,
        a_read_that_comes_when_the_lease_of_the_lock_has_ended_is_granted,
        a_read_that_comes_when_the_lease_of_the_lock_has_ended_hands_on,
        a_confirmation_by_a_node_that_has_seen_a_later_time_has_a_token_above_it,
        a_touch_when_the_lease_of_the_lock_has_ended_hands_it_over,
        a_touch_behind_a_lock_makes_the_queue_live_on,
        an_ambiguous_leave_behind_a_lock_leaves_a_tombstone,
        the_last_release_drops_parts_whose_lock_key_was_lost,
        the_silent_in_a_full_queue_are_looked_for_once_a_second,
        a_full_queue_refuses_none_that_waits_holds_or_is_served_in_a_batch,
    ],
    queue_scripts: [
        a_counter_that_is_no_number_is_left_alone_and_locks_nothing,
        a_full_memory_keeps_no_part_from_being_renewed,
        a_full_memory_keeps_no_lock_from_being_handed_over,
        another_program_s_key_is_left_alone_by_a_refusal,
        a_position_beyond_a_million_is_told_exactly,
    ],
}

/// Two permits with a limit of one: the first holds, the second, of another node, waits.
async fn held_and_waited_for(a: &Node, b: &Node) -> [Member; 2] {
    [a.hold_for(permits(1, 1), 30_000).await, b.queue_for(permits(1, 1), 30_000).await]
}

async fn a_permit_that_comes_when_a_lease_has_ended_does_not_just_wait(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [holder, first] = held_and_waited_for(&a, &b).await;
    bench.lapse(&holder).await;
    let third = a.member_for(permits(1, 1), 30_000);
    assert_eq!(a.wait(&third).await.outcome, Acquired::Queued { position: 0 });
    assert_eq!(b.confirm(&first).await.outcome, [Renewed::Held]);
}

async fn a_permit_that_comes_behind_a_dead_head_is_in_front_of_it(mut bench: Bench) {
    for is_silent in [false, true] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let [_, first] = held_and_waited_for(&a, &b).await;
        if is_silent {
            bench.end_patience(&first).await;
        } else {
            // The script would have to check whether this waiter, which fits, is connected.
            b.leave(&first).await;
            b.queue_for(permits(2, 2), 30_000).await;
            b.connect(false).await;
        }
        let last = a.member_for(permits(2, 2), 30_000);
        let outcome = a.wait(&last).await.outcome;
        assert_eq!(outcome, Acquired::Queued { position: 0 }, "silent: {is_silent}");
        assert_eq!(bench.queue().await, [last]);
    }
}

async fn a_permit_that_asks_again_is_told_its_hold_or_its_position(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [holder, first] = held_and_waited_for(&a, &b).await;
    let third = a.queue_for(permits(1, 1), 30_000).await;
    let counter = bench.counter().await;
    for mode in [Mode::Wait, Mode::Try] {
        assert_eq!(a.acquire(&holder, mode, 10).await.outcome, Acquired::Granted);
        let again = a.acquire(&third, mode, 10).await;
        assert_eq!(again.outcome, Acquired::Queued { position: 1 });
        let again = b.acquire(&first, mode, 10).await;
        assert_eq!(again.outcome, Acquired::Queued { position: 0 });
    }
    assert_eq!(bench.counter().await, counter, "a place that was drawn in vain goes back");
}

/// How many ms are left until the lock key expires.
async fn lock_key_ttl_ms(bench: &mut Bench) -> u64 {
    let (mut state, now_ms) = bench.state().await;
    let lock_key = state.of_queue().lock_key.as_ref().expect("it is held");
    lock_key.ends_ms.expect("it has an end") - now_ms
}

async fn end_lock_key_in(bench: &mut Bench, ms: u64) {
    bench
        .change(|state, now_ms| {
            let lock_key = state.of_queue().lock_key.as_mut().expect("it is held");
            lock_key.ends_ms = Some(now_ms + ms);
        })
        .await;
}

async fn a_permit_that_waits_makes_a_lock_key_that_ends_soon_live_on(mut bench: Bench) {
    let a = bench.node().await;
    a.hold_for(permits(1, 1), 30_000).await;
    end_lock_key_in(&mut bench, 74_000).await;
    a.queue_for(permits(1, 1), 30_000).await;
    assert!(lock_key_ttl_ms(&mut bench).await > 74_500);
}

async fn a_renewal_of_a_part_makes_a_lock_key_that_ends_soon_live_on(mut bench: Bench) {
    let a = bench.node().await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    end_lock_key_in(&mut bench, 70_000).await;
    assert_eq!(a.renew(&read).await.outcome, [Renewed::Held]);
    assert!(lock_key_ttl_ms(&mut bench).await > 89_000);
}

async fn a_read_that_comes_when_the_lease_of_the_lock_has_ended_is_granted(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    // The flag of a queue that is gone again: the lock key outlives the lease.
    let waiting = a.queue(30_000).await;
    a.leave(&waiting).await;
    bench.end_lease().await;
    b.hold_for(Demand::READ, 30_000).await;
    let confirmed = a.confirm(&lock).await;
    assert_eq!((confirmed.outcome, confirmed.grants), (vec![Renewed::NotHeld], vec![]));
}

async fn a_read_that_comes_when_the_lease_of_the_lock_has_ended_hands_on(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let next = b.queue(30_000).await;
    bench.end_lease().await;
    let read = a.member_for(Demand::READ, 30_000);
    assert_eq!(a.wait(&read).await.outcome, Acquired::Queued { position: 0 });
    assert_eq!(b.confirm(&next).await.outcome, [Renewed::Held]);
}

async fn a_confirmation_extends_a_claim_to_the_full_lease(mut bench: Bench) {
    let demands = [Demand::EXCLUSIVE, Demand::READ];
    for demand in if bench.side.has_peers() { &demands[..1] } else { &demands } {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let lock = a.hold(30_000).await;
        let next = b.queue_for(*demand, 30_000).await;
        a.release(&lock).await;
        assert!(a.inspect().await.holds[0].left_ms <= 10_000, "{demand}");
        assert_eq!(b.confirm(&next).await.outcome, [Renewed::Held]);
        let left_ms = a.inspect().await.holds[0].left_ms;
        assert!((29_000..=30_000).contains(&left_ms), "{demand}: {left_ms}");
    }
}

async fn a_confirmation_by_a_node_that_has_seen_a_later_time_has_a_token_above_it(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.member(30_000);
    let token = grant(&a.wait(&lock).await).token.get();
    a.set_seen(token + 5_000_000);
    assert!(grant(&a.confirm(&lock).await).token.get() > token + 5_000_000);
}

async fn a_counter_that_is_no_number_is_left_alone_and_locks_nothing(mut bench: Bench) {
    let a = bench.node().await;
    let () = bench.redis().ask(redis::cmd("SET").arg(COUNTER).arg("text")).await;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        let member = a.member_for(demand, 30_000);
        a.run(acquire(&member, Mode::Wait, 10)).await.expect_err("no number");
        assert_eq!(bench.redis().get(COUNTER).await.as_deref(), Some("text"));
        assert_eq!(bench.redis().keys("*").await, [COUNTER]);
    }
}

async fn fill(bench: &mut Bench) {
    bench.redis().configure("maxmemory-policy", "noeviction").await;
    bench.redis().configure("maxmemory", "1").await;
}

async fn a_full_memory_keeps_no_part_from_being_renewed(mut bench: Bench) {
    let a = bench.node().await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    // The lease alone: nothing else must be written before it.
    bench.change(|state, now_ms| state.of_queue().holds.set(&read, now_ms + 5_000)).await;
    fill(&mut bench).await;
    assert_eq!(a.renew(&read).await.outcome, [Renewed::Held]);
    assert!(bench.left_of(&read).await > 29_000);
    assert_eq!(a.confirm(&read).await.outcome, [Renewed::Held]);
}

async fn a_full_memory_keeps_no_lock_from_being_handed_over(mut bench: Bench) {
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        let (a, b) = (bench.node().await, bench.node().await);
        let lock = a.hold(30_000).await;
        let next = b.queue_for(demand, 30_000).await;
        fill(&mut bench).await;
        a.release(&lock).await;
        assert_eq!(b.confirm(&next).await.outcome, [Renewed::Held], "{demand}");
        bench.redis().configure("maxmemory", "0").await;
        b.release(&next).await;
    }
}

async fn a_touch_when_the_lease_of_the_lock_has_ended_hands_it_over(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.end_lease().await;
    let reply = b.touch(&[&waiting]).await;
    assert_eq!(grant(&reply).member, waiting);
    assert_eq!(bench.holder().await, Some(waiting));
}

async fn a_touch_behind_a_lock_makes_the_queue_live_on(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.pass(2_000).await;
    b.touch(&[&waiting]).await;
    let (mut state, now_ms) = bench.state().await;
    let ends_ms = state.of_queue().queue_ends_ms.expect("it has an end");
    assert!(ends_ms > now_ms + 74_000, "{}", ends_ms - now_ms);
}

async fn an_ambiguous_leave_behind_a_lock_leaves_a_tombstone(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    b.leave_ambiguous(&waiting).await;
    assert_eq!(b.wait(&waiting).await.outcome, Acquired::Refused);
}

async fn the_last_release_drops_parts_whose_lock_key_was_lost(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold_for(Demand::READ, 30_000).await;
    bench.change(|state, _| state.of_queue().lock_key = None).await;
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    b.leave(&waiting).await;
    a.release(&holder).await;
    assert!(bench.state().await.0.of_queue().holds.is_empty());
}

/// Checks the demands of acquires with different scripts, in several commands, while `waiting`
/// members wait.
async fn refused(node: &Node, limit: u32, waiting: u64) {
    let full = Acquired::Full { waiting };
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        let asking = [(); 3].map(|()| node.member_for(demand, 30_000));
        let outcome = node.acquire(&asking[0], Mode::Wait, limit).await.outcome;
        assert_eq!(outcome, full, "{demand}");
        let all: Vec<_> = asking.iter().collect();
        let outcomes = node.acquire_all(&all, Mode::Wait, limit).await.outcome;
        assert_eq!(outcomes, [full; 3], "{demand}");
        let outcomes = node.acquire_all(&all, Mode::Try, limit).await.outcome;
        assert_eq!(outcomes, [Acquired::Busy; 3], "{demand}");
    }
}

async fn the_silent_in_a_full_queue_are_looked_for_once_a_second(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = [b.queue(30_000).await, a.queue(30_000).await];
    refused(&a, 2, 2).await;
    bench.end_patience(&waiting[0]).await;
    refused(&a, 2, 2).await;
    // Also if there is room for only one of several.
    let asking = [(); 2].map(|()| a.member_for(Demand::EXCLUSIVE, 30_000));
    let outcomes = a.acquire_all(&asking.each_ref(), Mode::Wait, 3).await.outcome;
    let full = Acquired::Full { waiting: 3 };
    assert_eq!(outcomes, [Acquired::Queued { position: 2 }, full]);
    a.leave(&asking[0]).await;
    assert_eq!(bench.queue().await, waiting);
    bench.pass(1_001).await;
    let newcomer = a.member_for(Demand::EXCLUSIVE, 30_000);
    let outcome = a.acquire(&newcomer, Mode::Wait, 2).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [waiting[1].clone(), newcomer]);
}

async fn a_full_queue_refuses_none_that_waits_holds_or_is_served_in_a_batch(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = b.hold(30_000).await;
    let batch = [(); 2].map(|()| a.in_batch(2, 30_000));
    a.wait_all(&batch.each_ref()).await;
    let waiting = [b.queue(30_000).await, b.queue_for(Demand::READ, 30_000).await];
    b.release(&holder).await;
    let full = Acquired::Full { waiting: 3 };
    refused(&a, 2, 3).await;
    // Behind the second member of the batch.
    for (at, member) in (1..).zip(&waiting) {
        for mode in [Mode::Wait, Mode::Try] {
            let outcome = b.acquire(member, mode, 2).await.outcome;
            assert_eq!(outcome, Acquired::Queued { position: at });
        }
    }
    for member in &batch {
        let outcome = a.acquire(member, Mode::Wait, 2).await.outcome;
        assert_eq!(outcome, Acquired::Granted);
    }
    let newcomer = a.member_for(Demand::EXCLUSIVE, 30_000);
    let outcomes = a.acquire_all(&[&newcomer, &batch[1]], Mode::Wait, 2).await.outcome;
    assert_eq!(outcomes, [full, Acquired::Granted]);
    let newcomer = b.member_for(Demand::EXCLUSIVE, 30_000);
    let outcomes = b.acquire_all(&[&newcomer, &waiting[1]], Mode::Wait, 2).await.outcome;
    assert_eq!(outcomes, [full, Acquired::Queued { position: 2 }]);
}

async fn another_program_s_key_is_left_alone_by_a_refusal(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    a.queue(30_000).await;
    let key = format!("{}:swept", lock_key(LOCK));
    let () = bench.redis().ask(cmd("RPUSH").arg(&key).arg("theirs")).await;
    refused(&a, 1, 1).await;
    let found: Vec<String> = bench.redis().ask(cmd("LRANGE").arg(&key).arg(0).arg(-1)).await;
    assert_eq!(found, ["theirs"]);
}

/// Adds waiters like a member to a queue: as many as are asked for, with the scores from a number
/// on.
const PLANT: &str = "
local from, count, before, behind = ARGV[1], ARGV[2], string.match(ARGV[3], '^(~2[^:]*:)%d+(:.*)$')
for first = from, from + count - 1, 1024 do
  local scored = {}
  for i = first, first + 1023 do
    scored[#scored + 1] = i
    scored[#scored + 1] = before .. i .. behind
  end
  redis.call('ZADD', KEYS[1], unpack(scored))
end
redis.call('PERSIST', KEYS[1])
";

async fn a_position_beyond_a_million_is_told_exactly(mut bench: Bench) {
    const COUNT: u64 = 1 << 20;
    const STEP: u64 = 1 << 15;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(600_000).await;
    let first = b.queue(30_000).await;
    for from in (0..COUNT).step_by(STEP as usize) {
        let mut plant = cmd("EVAL");
        plant.arg(PLANT).arg(1).arg(queue_key(LOCK));
        let () = bench.redis().ask(plant.arg(from + 10).arg(STEP).arg(first.as_str())).await;
    }
    let mut position = COUNT;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        let reply = b.acquire(&b.member_for(demand, 30_000), Mode::Wait, u32::MAX).await;
        position += 1;
        assert_eq!(reply.outcome, Acquired::Queued { position }, "{demand}");
        assert!(left_ms(&reply) <= 600_000, "{reply:?}");
    }
    let several = [b.member(30_000), b.member(30_000)];
    let reply = b.acquire_all(&several.each_ref(), Mode::Wait, u32::MAX).await;
    let positions = [1, 2].map(|more| Acquired::Queued { position: position + more });
    assert_eq!(reply.outcome, positions);
}
