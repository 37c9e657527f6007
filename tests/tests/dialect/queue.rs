//! The queue: order, deadlines, limits, and list and sorted set together.

use lockcore::internals::{Acquired, Demand, Mode, Party, Presence};
use redis::cmd;

use crate::asking::{grant, now_us};
use crate::bench::Bench;

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
        a.hold(100).await;
        let waiting = b.queue(30_000).await;
        bench.until_free().await;
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
async fn a_touch_gives_fifteen_seconds_and_never_shortens() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let member = a.member(30_000);
    let queued = a.wait(&member).await;
    assert_eq!(bench.deadline(&member).await, Some(now_us(&queued) / 1_000 + 15_000));
    let now = bench.now_ms().await;
    bench.set_deadline(&member, now + 5_000).await;
    let touched = a.touch(&[&member]).await;
    assert_eq!(bench.deadline(&member).await, Some(now_us(&touched) / 1_000 + 15_000));
    bench.set_deadline(&member, now + 50_000).await;
    a.touch(&[&member]).await;
    assert_eq!(bench.deadline(&member).await, Some(now + 50_000));
}

// Finding 11.
#[tokio::test]
async fn ghosts_behind_a_live_head_neither_fill_the_queue_nor_stay() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let head = b.queue(30_000).await;
    let ghosts = bench.plant_dead(9).await;
    for ghost in &ghosts {
        bench.let_deadline_pass(ghost).await;
    }
    let newcomer = a.member(30_000);
    let reply = a.acquire(&newcomer, Mode::Wait, 10).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [head, newcomer]);
}

// Finding 11.
#[tokio::test]
async fn a_touch_and_an_enqueue_each_drop_up_to_sixteen_ghosts() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    for ghost in bench.plant_dead(40).await {
        bench.let_deadline_pass(&ghost).await;
    }
    a.touch(&[&waiting]).await;
    assert_eq!(bench.queue().await.len(), 25);
    a.queue(30_000).await;
    assert_eq!(bench.queue().await.len(), 10);
    a.touch(&[&waiting]).await;
    assert_eq!(bench.queue().await.len(), 2);
}

// A damaged queue: a member that is swept without having a place shortens no line.
#[tokio::test]
async fn a_deadline_whose_place_is_gone_moves_nobody_forward() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let head = a.queue(30_000).await;
    let (ghost, newcomer) = (a.member(30_000), a.member(30_000));
    bench.let_deadline_pass(&ghost).await; // has never been in the list
    let reply = a.acquire(&newcomer, Mode::Wait, 10).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [head, newcomer]);
    assert_eq!(bench.deadline(&ghost).await, None);
}

// F2, F3.
#[tokio::test]
async fn a_head_whose_deadline_has_passed_is_dropped_and_the_next_is_granted() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (silent, next, last) =
        (b.queue(30_000).await, a.queue(30_000).await, b.queue(30_000).await);
    bench.let_deadline_pass(&silent).await;
    a.release(&holder).await; // straight to the next
    assert_eq!(
        (bench.holder().await, bench.queue().await),
        (Some(next.clone()), vec![last.clone().into()])
    );
    bench.let_deadline_pass(&last).await;
    a.release(&next).await;
    assert_eq!((bench.holder().await, bench.queue().await), (None, vec![]));
    assert_eq!(b.touch(&[&silent, &last]).await.outcome.members, [Presence::Gone; 2]);
}

#[tokio::test]
async fn a_list_entry_without_a_score_is_dropped_at_the_head() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (lost, next) = (b.queue(30_000).await, b.queue(30_000).await);
    let () = bench.redis.ask(cmd("ZREM").arg(bench.deadlines_key()).arg(lost.as_str())).await;
    a.release(&holder).await;
    assert_eq!((bench.holder().await, bench.queue().await), (Some(next), vec![]));
}

#[tokio::test]
async fn a_list_entry_without_a_score_that_queues_again_is_granted_once() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (lost, next) = (b.queue(30_000).await, a.queue(30_000).await);
    let () = bench.redis.ask(cmd("ZREM").arg(bench.deadlines_key()).arg(lost.as_str())).await;
    let outcome = b.wait(&lost).await.outcome;
    assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
    a.release(&holder).await;
    let mut grants = Vec::new();
    for _ in 0..2 {
        let granted = bench.holder().await.expect("somebody waits");
        let node = if granted == next { &a } else { &b };
        node.release(&granted).await;
        grants.push(granted);
    }
    assert!(grants.contains(&lost) && grants.contains(&next), "{grants:?}");
    assert_eq!((bench.holder().await, bench.queue().await), (None, vec![]));
    bench.everything_expires().await;
}

#[tokio::test]
async fn the_last_to_leave_leaves_no_queue() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let member = a.queue(30_000).await;
    a.leave(&member).await;
    let keys = bench.redis.keys("redisson_lock_[qt]*").await;
    assert_eq!(keys, [bench.token_key()]);
}

#[tokio::test]
async fn an_inspection_changes_nothing_and_tells_all() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let token = grant(&a.wait(&holder).await).token;
    let (one, two) = (b.queue(30_000).await, a.queue(30_000).await);
    bench.plant_dead(1).await;
    let before = bench.everything().await;
    let seen = b.inspect().await;
    assert_eq!(bench.everything().await, before);
    let [(held_by, weight, left_ms)] = &seen.holds[..] else { panic!("{:?}", seen.holds) };
    assert_eq!((held_by, seen.token), (&Party::from(holder), Some(token)));
    assert_eq!(*weight, Demand::ALONE.weight());
    assert!((29_000..=30_000).contains(left_ms));
    assert_eq!(seen.waiters.len(), 3);
    assert!(seen.waiters[0].0 == one && seen.waiters[1].0 == two, "{:?}", seen.waiters);
    assert_eq!(bench.deadline(&one).await, Some(seen.waiters[0].1));
}
