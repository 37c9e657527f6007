//! The queue: order, patience, limits, and its end.

use lock_tests::{COUNTER, door_key, queue_key};
use lockcore::internals::{Acquired, Demand, Mode, Presence, node_of};
use redis::cmd;

use crate::bench::{Bench, LOCK};

// F1.
#[tokio::test]
async fn grants_follow_the_order_of_enqueue_across_nodes() {
    let mut bench = Bench::start().await;
    let nodes = [bench.node().await, bench.node().await, bench.node().await];
    let mut holder = (0, nodes[0].hold(30_000).await);
    let mut order = Vec::new();
    for at in [2, 0, 1, 1, 0, 2, 2, 1] {
        order.push((at, nodes[at].queue(30_000).await));
    }
    for next in order {
        nodes[holder.0].release(&holder.1).await;
        assert_eq!(bench.holder().await, Some(next.1.clone()));
        // None barges past those that wait.
        let newcomer = nodes[0].member(30_000);
        assert_eq!(nodes[0].try_now(&newcomer).await.outcome, Acquired::Busy);
        holder = next;
    }
    bench.everything_expires().await;
}

#[tokio::test]
async fn a_free_lock_with_a_queue_goes_to_the_head_whoever_asks() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut bench = Bench::start().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        let waiting = b.queue(30_000).await;
        bench.end_lease().await;
        let outcome = a.acquire(&a.member(30_000), mode, 10).await.outcome;
        let expected = match mode {
            Mode::Try => Acquired::Busy,
            Mode::Wait => Acquired::Queued { position: 0 },
        };
        assert_eq!(outcome, expected);
        assert_eq!(bench.holder().await, Some(waiting));
    }
}

#[tokio::test]
async fn positions_count_from_zero_for_the_next() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    for position in 0..5 {
        let reply = a.wait(&a.member(30_000)).await;
        assert_eq!(reply.outcome, Acquired::Queued { position });
    }
}

#[tokio::test]
async fn a_queue_as_long_as_the_caller_allows_is_full() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let member = a.member(30_000);
    assert_eq!(a.acquire(&member, Mode::Wait, 1).await.outcome, Acquired::Queued { position: 0 });
    let before = bench.everything().await;
    assert_eq!(a.acquire(&a.member(30_000), Mode::Wait, 1).await.outcome, Acquired::Full);
    assert_eq!(bench.everything().await, before);
    let outcome = a.acquire(&a.member(30_000), Mode::Wait, 2).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 1 });
}

// F2.
#[tokio::test]
async fn an_enqueue_renews_its_node_s_patience_if_little_is_left_and_a_touch_always() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let member = b.queue(30_000).await;
    assert!(bench.patience(&b.id).await > 14_000);
    bench.set_patience(&b.id, 12_000).await;
    b.queue(30_000).await;
    assert!(bench.patience(&b.id).await <= 12_000);
    bench.set_patience(&b.id, 9_000).await;
    b.queue_for(Demand::READ, 30_000).await;
    assert!(bench.patience(&b.id).await > 14_000);
    bench.set_patience(&b.id, 12_000).await;
    b.touch(&[&member]).await;
    assert!(bench.patience(&b.id).await > 14_000);
    // Of a node that has no waiting member, nothing is kept.
    a.touch(&[]).await;
    assert_eq!(bench.patience(&a.id).await, -2);
}

// Finding 11.
#[tokio::test]
async fn ghosts_behind_a_live_head_neither_fill_the_queue_nor_stay() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut bench = Bench::start().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        let head = b.queue(30_000).await;
        let ghosts = bench.plant_dead(9).await;
        let newcomer = a.member_for(demand, 30_000);
        assert_eq!(a.acquire(&newcomer, Mode::Wait, 10).await.outcome, Acquired::Full);
        bench.end_patience(&node_of(ghosts[0].node())).await;
        let reply = a.acquire(&newcomer, Mode::Wait, 10).await;
        assert_eq!(reply.outcome, Acquired::Queued { position: 1 });
        assert_eq!(bench.queue().await, [head, newcomer]);
    }
}

// A damaged door: its mark, and with it the queue, is lost.
#[tokio::test]
async fn a_queue_behind_a_door_without_a_mark_is_found_by_the_next_that_waits() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let mut unmark = cmd("SET");
    let () =
        bench.redis.ask(unmark.arg(door_key(LOCK)).arg(holder.as_str()).arg("PX").arg(9_000)).await;
    let next = a.member(30_000);
    assert_eq!(a.wait(&next).await.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.door().await, Some(format!("+{holder}")));
    a.release(&holder).await;
    assert_eq!((bench.holder().await, bench.queue().await), (Some(waiting), vec![next]));
}

// A counter that was lost is no measure of places: the next is above all that are there.
#[tokio::test]
async fn a_newcomer_stands_behind_all_even_if_the_counter_was_lost() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut bench = Bench::start().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        let mut waiting = vec![b.queue(30_000).await, b.queue(30_000).await];
        let () = bench.redis.ask(cmd("DEL").arg(COUNTER)).await;
        waiting.push(a.queue_for(demand, 30_000).await);
        waiting.push(b.queue_for(demand, 30_000).await);
        assert_eq!(bench.queue().await, waiting);
    }
}

// Finding 20.
#[tokio::test]
async fn the_queue_ends_a_minute_after_its_last_patience() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let one = a.queue(30_000).await;
    let lasts = bench.redis.pttl(&queue_key(LOCK)).await;
    assert!((74_000..=75_000).contains(&lasts), "{lasts}");
    let shorten = cmd("PEXPIRE").arg(queue_key(LOCK)).arg(61_000).to_owned();
    for question in 0..2 {
        let () = bench.redis.ask(&shorten).await;
        match question {
            0 => drop(b.queue(30_000).await),
            _ => drop(a.touch(&[&one]).await),
        }
        assert!(bench.redis.pttl(&queue_key(LOCK)).await > 74_000, "{question}");
    }
    bench.everything_expires().await;
}

// Finding 20.
#[tokio::test]
async fn a_queue_that_was_lost_counts_for_nothing() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let (lost, other) = (a.queue(30_000).await, a.queue(30_000).await);
    let () = bench.redis.ask(cmd("DEL").arg(queue_key(LOCK))).await;
    assert_eq!(a.touch(&[&lost]).await.outcome.members, [Presence::Gone]);
    assert_eq!(a.acquire(&lost, Mode::Wait, 1).await.outcome, Acquired::Queued { position: 0 });
    assert_eq!(bench.queue().await, std::slice::from_ref(&lost));
    let () = bench.redis.ask(cmd("DEL").arg(queue_key(LOCK))).await;
    a.release(&holder).await;
    assert_eq!((bench.door().await, bench.holder().await), (None, None));
    assert_eq!(a.touch(&[&other]).await.outcome.members, [Presence::Gone]);
}

// F2, F3.
#[tokio::test]
async fn members_whose_patience_has_ended_are_dropped_and_the_next_is_granted() {
    let mut bench = Bench::start().await;
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (silent, next, last) =
        (b.queue(30_000).await, a.queue(30_000).await, b.queue_for(Demand::READ, 30_000).await);
    bench.end_patience(&b.id).await;
    assert_eq!(c.release(&silent).await.grants, []); // it is not its turn yet
    a.release(&holder).await; // straight to the next
    assert_eq!(
        (bench.holder().await, bench.queue().await),
        (Some(next.clone()), vec![last.clone()])
    );
    a.release(&next).await;
    assert_eq!((bench.holder().await, bench.queue().await), (None, vec![]));
    assert_eq!(b.touch(&[&silent, &last]).await.outcome.members, [Presence::Gone; 2]);
    assert_eq!(bench.door().await, None);
}

// A head that does not fit keeps the free weight; the longest run from the head that fits is
// granted.
#[tokio::test]
async fn one_hand_over_grants_the_longest_run_from_the_head_that_fits() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let of = |count| Demand::permits(count, 10).expect("some of ten");
    let holders = [a.hold_for(of(6), 30_000).await, a.hold_for(of(3), 30_000).await];
    let mut waiting = Vec::new();
    for count in [3, 3, 5, 1] {
        waiting.push(a.queue_for(of(count), 30_000).await);
    }
    let reply = a.release(&holders[0]).await;
    let granted: Vec<_> = reply.grants.iter().map(|grant| &grant.member).collect();
    assert_eq!(granted, [&waiting[0], &waiting[1]]);
    assert_eq!(bench.queue().await, waiting[2..], "1 would fit, but 5 is before it");
    // Nor does a newcomer that would fit pass beside them.
    assert_eq!(a.try_now(&a.member_for(of(1), 30_000)).await.outcome, Acquired::Busy);
    let reply = a.leave(&waiting[2]).await;
    let granted: Vec<_> = reply.grants.iter().map(|grant| &grant.member).collect();
    assert_eq!(granted, [&waiting[3]], "those behind a head that gave up may fit");
}

#[tokio::test]
async fn the_last_to_leave_leaves_no_queue() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let member = a.queue(30_000).await;
    a.leave(&member).await;
    assert!(!bench.redis.exists(&queue_key(LOCK)).await);
    a.release(&holder).await;
    let patience = bench.key("patience:") + a.id.as_str();
    assert_eq!(bench.redis.keys("*").await, [COUNTER.to_owned(), patience]);
}

#[tokio::test]
async fn an_inspection_changes_nothing_and_tells_all() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (one, two) = (b.queue(30_000).await, a.queue_for(Demand::READ, 30_000).await);
    bench.plant_dead(1).await;
    bench.end_patience(&a.id).await;
    let before = bench.everything().await;
    let seen = b.inspect().await;
    assert_eq!(bench.everything().await, before);
    let [(held_by, weight, left_ms)] = &seen.holds[..] else { panic!("{:?}", seen.holds) };
    assert_eq!((held_by.ours(), *weight), (Some(&holder), Demand::ALONE.weight()));
    assert!((29_000..=30_000).contains(left_ms));
    assert_eq!((seen.waiters.len(), seen.token), (3, None), "a lock's own token stands nowhere");
    assert!(seen.waiters[0].0 == one && seen.waiters[1].0 == two, "{:?}", seen.waiters);
    let until = bench.expiry(&(bench.key("patience:") + b.id.as_str())).await;
    // The script's time and the server's, by which keys expire, are read one after the other.
    assert!(seen.waiters[0].1.abs_diff(until as u64) < 100, "{:?}, {until}", seen.waiters);
    assert_eq!(seen.waiters[1].1, 0);
}

#[tokio::test]
async fn an_inspection_of_parts_tells_their_weights_and_the_token_that_they_share() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    let token = a.reduce(&lock).await.grants[0].token;
    let permits = a.hold_for(Demand::permits(3, 10).expect("three of ten"), 20_000).await;
    let seen = a.inspect().await;
    let told: Vec<_> =
        seen.holds.iter().map(|(party, weight, _)| (party.ours(), *weight)).collect();
    assert_eq!(told, [(Some(&permits), 3), (Some(&lock), 1)], "the first to end comes first");
    assert_eq!(seen.token, Some(token));
}
