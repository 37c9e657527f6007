//! The queue: order, liveness deadline, limits, and the end.

use proto::queue::Mark;
use proto::{Acquired, Demand, Member, Mode, Presence};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::state::State;

facts! {
    both: [
        grants_follow_the_order_of_enqueue_across_nodes,
        a_free_lock_with_a_queue_goes_to_the_head_whoever_asks,
        positions_count_from_zero_for_the_next,
        a_queue_as_long_as_the_caller_allows_is_full,
        ghosts_behind_a_live_head_neither_fill_the_queue_nor_stay,
        members_whose_patience_has_ended_are_dropped_and_the_next_is_granted,
        the_last_to_leave_leaves_no_queue,
        an_inspection_changes_nothing_and_tells_all,
    ],
    queue: [
        an_enqueue_renews_its_node_s_patience_if_little_is_left_and_a_touch_always,
        a_queue_behind_a_lock_key_without_a_mark_is_found_by_the_next_that_waits,
        a_newcomer_stands_behind_all_even_if_the_counter_was_lost,
        the_queue_ends_a_minute_after_its_last_patience,
        a_queue_that_was_lost_counts_for_nothing,
        one_hand_over_grants_the_longest_run_from_the_head_that_fits,
        an_inspection_of_parts_tells_their_weights_and_the_token_that_they_share,
    ],
    redisson: [
        a_touch_gives_fifteen_seconds_and_never_shortens,
        a_touch_and_an_enqueue_each_drop_up_to_sixteen_ghosts,
        a_deadline_whose_position_is_gone_moves_nobody_forward,
        a_list_entry_without_a_score_is_dropped_at_the_head,
        a_list_entry_without_a_score_that_queues_again_is_granted_once,
    ],
}

// F1.
async fn grants_follow_the_order_of_enqueue_across_nodes(mut bench: Bench) {
    let nodes = [bench.node().await, bench.node().await, bench.node().await];
    let mut holder = (0, nodes[0].hold(30_000).await);
    let mut order = Vec::new();
    for at in [2, 0, 1, 1, 0, 2, 2, 1] {
        order.push((at, nodes[at].queue(30_000).await));
    }
    for next in order {
        nodes[holder.0].release(&holder.1).await;
        assert_eq!(bench.holder().await, Some(next.1.clone()));
        // No newcomer barges past waiters.
        let newcomer = nodes[0].member(30_000);
        assert_eq!(nodes[0].try_now(&newcomer).await.outcome, Acquired::Busy);
        holder = next;
    }
    bench.everything_expires().await;
}

async fn a_free_lock_with_a_queue_goes_to_the_head_whoever_asks(mut bench: Bench) {
    for mode in [Mode::Try, Mode::Wait] {
        bench.restart().await;
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

async fn positions_count_from_zero_for_the_next(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    for position in 0..5 {
        let reply = a.wait(&a.member(30_000)).await;
        assert_eq!(reply.outcome, Acquired::Queued { position });
    }
}

async fn a_queue_as_long_as_the_caller_allows_is_full(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let member = a.member(30_000);
    assert_eq!(a.acquire(&member, Mode::Wait, 1).await.outcome, Acquired::Queued { position: 0 });
    let full = Acquired::Full { waiting: 1 };
    // The first refusal records that silent waiters were looked for.
    assert_eq!(a.acquire(&a.member(30_000), Mode::Wait, 1).await.outcome, full);
    let before = bench.everything().await;
    assert_eq!(a.acquire(&a.member(30_000), Mode::Wait, 1).await.outcome, full);
    assert_eq!(bench.everything().await, before);
    let outcome = a.acquire(&a.member(30_000), Mode::Wait, 2).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 1 });
}

// F2.
async fn an_enqueue_renews_its_node_s_patience_if_little_is_left_and_a_touch_always(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let member = b.queue(30_000).await;
    assert!(bench.patience(&member).await > Some(14_000));
    bench.set_patience(&member, 12_000).await;
    b.queue(30_000).await;
    assert!(bench.patience(&member).await <= Some(12_000));
    bench.set_patience(&member, 9_000).await;
    b.queue_for(Demand::READ, 30_000).await;
    assert!(bench.patience(&member).await > Some(14_000));
    bench.set_patience(&member, 12_000).await;
    b.touch(&[&member]).await;
    assert!(bench.patience(&member).await > Some(14_000));
    // Nothing is kept of a node without waiting members.
    a.touch(&[]).await;
    assert_eq!(bench.patience(&holder).await, None);
}

// F2.
async fn a_touch_gives_fifteen_seconds_and_never_shortens(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let member = a.queue(30_000).await;
    let is_fresh = |left: Option<u64>| left.is_some_and(|ms| (14_000..=15_000).contains(&ms));
    assert!(is_fresh(bench.patience(&member).await));
    bench.set_patience(&member, 5_000).await;
    a.touch(&[&member]).await;
    assert!(is_fresh(bench.patience(&member).await));
    bench.set_patience(&member, 50_000).await;
    a.touch(&[&member]).await;
    assert!(bench.patience(&member).await > Some(49_000));
    a.wait(&member).await;
    assert!(bench.patience(&member).await > Some(49_000));
}

// Finding 11.
async fn ghosts_behind_a_live_head_neither_fill_the_queue_nor_stay(mut bench: Bench) {
    let demands = [Demand::EXCLUSIVE, Demand::READ];
    for demand in if bench.side.has_peers() { &demands[..1] } else { &demands } {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        let head = b.queue(30_000).await;
        let ghosts = bench.plant_dead(9).await;
        let newcomer = a.member_for(*demand, 30_000);
        let full = Acquired::Full { waiting: 10 };
        assert_eq!(a.acquire(&newcomer, Mode::Wait, 10).await.outcome, full);
        bench.pass(1_001).await;
        for ghost in &ghosts {
            bench.end_patience(ghost).await;
        }
        let reply = a.acquire(&newcomer, Mode::Wait, 10).await;
        assert_eq!(reply.outcome, Acquired::Queued { position: 1 });
        assert_eq!(bench.queue().await, [head, newcomer]);
    }
}

// Finding 11.
async fn a_touch_and_an_enqueue_each_drop_up_to_sixteen_ghosts(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    for ghost in bench.plant_dead(40).await {
        bench.end_patience(&ghost).await;
    }
    a.touch(&[&waiting]).await;
    assert_eq!(bench.queue().await.len(), 25);
    a.queue(30_000).await;
    assert_eq!(bench.queue().await.len(), 10);
    a.touch(&[&waiting]).await;
    assert_eq!(bench.queue().await.len(), 2);
}

// A damaged lock key: its flag, and with it the queue, is lost.
async fn a_queue_behind_a_lock_key_without_a_mark_is_found_by_the_next_that_waits(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    assert_eq!(bench.mark().await, Some(Mark::Waited));
    bench
        .change(|state, now_ms| {
            let lock_key = state.of_queue().lock_key.as_mut().expect("it is held");
            (lock_key.mark, lock_key.ends_ms) = (Mark::None, Some(now_ms + 9_000));
        })
        .await;
    let next = a.member(30_000);
    assert_eq!(a.wait(&next).await.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.mark().await, Some(Mark::Waited));
    assert_eq!(bench.holder().await, Some(holder.clone()));
    a.release(&holder).await;
    assert_eq!((bench.holder().await, bench.queue().await), (Some(waiting), vec![next]));
}

// Positions do not depend on a lost counter: the next position is above all existing ones.
async fn a_newcomer_stands_behind_all_even_if_the_counter_was_lost(mut bench: Bench) {
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        let mut waiting = vec![b.queue(30_000).await, b.queue(30_000).await];
        bench.set_counter(None).await;
        waiting.push(a.queue_for(demand, 30_000).await);
        waiting.push(b.queue_for(demand, 30_000).await);
        assert_eq!(bench.queue().await, waiting);
    }
}

// Finding 20.
async fn the_queue_ends_a_minute_after_its_last_patience(mut bench: Bench) {
    let lasts = async |bench: &mut Bench| {
        let (mut state, now_ms) = bench.state().await;
        state.of_queue().queue_ends_ms.expect("it has an end") - now_ms
    };
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let one = a.queue(30_000).await;
    let begun = lasts(&mut bench).await;
    assert!((74_000..=75_000).contains(&begun), "{begun}");
    for question in 0..2 {
        let shorten = |at_ms| Some(at_ms + 61_000);
        bench.change(|state, now_ms| state.of_queue().queue_ends_ms = shorten(now_ms)).await;
        match question {
            0 => drop(b.queue(30_000).await),
            _ => drop(a.touch(&[&one]).await),
        }
        assert!(lasts(&mut bench).await > 74_000, "{question}");
    }
    bench.everything_expires().await;
}

// Finding 20.
async fn a_queue_that_was_lost_counts_for_nothing(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let (lost, other) = (a.queue(30_000).await, a.queue(30_000).await);
    bench.change(|state, _| state.of_queue().queue.clear()).await;
    assert_eq!(a.touch(&[&lost]).await.outcome.members, [Presence::Gone]);
    assert_eq!(a.acquire(&lost, Mode::Wait, 1).await.outcome, Acquired::Queued { position: 0 });
    assert_eq!(bench.queue().await, std::slice::from_ref(&lost));
    bench.change(|state, _| state.of_queue().queue.clear()).await;
    a.release(&holder).await;
    assert_eq!(bench.state().await.0.of_queue().lock_key, None);
    assert_eq!(a.touch(&[&other]).await.outcome.members, [Presence::Gone]);
}

// F2, F3.
async fn members_whose_patience_has_ended_are_dropped_and_the_next_is_granted(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (silent, next, last) =
        (b.queue(30_000).await, a.queue(30_000).await, b.queue(30_000).await);
    bench.end_patience(&silent).await;
    assert_eq!(c.release(&silent).await.grants, []); // not its turn yet
    a.release(&holder).await; // straight to the next
    let left = vec![last.clone()];
    assert_eq!((bench.holder().await, bench.queue().await), (Some(next.clone()), left));
    bench.end_patience(&last).await;
    a.release(&next).await;
    assert_eq!((bench.holder().await, bench.queue().await), (None, vec![]));
    assert_eq!(b.touch(&[&silent, &last]).await.outcome.members, [Presence::Gone; 2]);
    assert_eq!(bench.holder().await, None);
}

// A damaged queue: purging a member without a position shortens no queue.
async fn a_deadline_whose_position_is_gone_moves_nobody_forward(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let head = a.queue(30_000).await;
    let (ghost, newcomer) = (a.member(30_000), a.member(30_000));
    bench.end_patience(&ghost).await; // has never been in the list
    let reply = a.acquire(&newcomer, Mode::Wait, 10).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [head, newcomer]);
    assert_eq!(bench.patience(&ghost).await, None);
}

async fn lose_score(bench: &mut Bench, member: &Member) {
    bench
        .change(|state, _| {
            state.of_redisson().deadlines.remove(&member.into());
        })
        .await;
}

async fn a_list_entry_without_a_score_is_dropped_at_the_head(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (lost, next) = (b.queue(30_000).await, b.queue(30_000).await);
    lose_score(&mut bench, &lost).await;
    a.release(&holder).await;
    assert_eq!((bench.holder().await, bench.queue().await), (Some(next), vec![]));
}

async fn a_list_entry_without_a_score_that_queues_again_is_granted_once(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (lost, next) = (b.queue(30_000).await, a.queue(30_000).await);
    lose_score(&mut bench, &lost).await;
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

// A head that does not fit keeps the free weight; the longest prefix of the queue that fits is
// granted.
async fn one_hand_over_grants_the_longest_run_from_the_head_that_fits(mut bench: Bench) {
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
    // A newcomer that would fit does not pass them either.
    assert_eq!(a.try_now(&a.member_for(of(1), 30_000)).await.outcome, Acquired::Busy);
    let reply = a.leave(&waiting[2]).await;
    assert_eq!(grant(&reply).member, waiting[3], "those behind a head that gave up may fit");
}

async fn the_last_to_leave_leaves_no_queue(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let member = a.queue(30_000).await;
    a.leave(&member).await;
    assert_eq!(bench.queue().await, []);
    a.release(&holder).await;
    bench
        .change(|state, _| match state {
            State::Queue(state) => state.patience.clear(),
            State::Redisson(state) => state.token = None,
        })
        .await;
    assert!(bench.is_empty().await, "{:?}", bench.state().await);
}

async fn an_inspection_changes_nothing_and_tells_all(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let token = grant(&a.wait(&holder).await).token;
    let (one, two) = (b.queue(30_000).await, a.queue(30_000).await);
    bench.plant_dead(1).await;
    let before = bench.everything().await;
    let seen = b.inspect().await;
    assert_eq!(bench.everything().await, before);
    let [hold] = &seen.holds[..] else { panic!("{:?}", seen.holds) };
    assert_eq!((hold.party.ours(), hold.weight), (Some(&holder), Demand::EXCLUSIVE.weight()));
    assert!((29_000..=30_000).contains(&hold.left_ms));
    let kept = bench.side.has_peers().then_some(token);
    assert_eq!((seen.waiters.len(), seen.token), (3, kept), "a lock's own token stands nowhere");
    assert!(seen.waiters[0].0 == one && seen.waiters[1].0 == two, "{:?}", seen.waiters);
    let (state, _) = bench.state().await;
    let until = state.alive_until(&one.into()).expect("it waits");
    // The script's time and the server's time, which decides when keys expire, are read one after
    // the other.
    assert!(seen.waiters[0].1.abs_diff(until) < 100, "{:?}, {until}", seen.waiters);
}

async fn an_inspection_of_parts_tells_their_weights_and_the_token_that_they_share(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    let token = a.reduce(&lock).await.grants[0].token;
    let permits = a.hold_for(Demand::permits(3, 10).expect("three of ten"), 20_000).await;
    let ghost = a.queue(30_000).await;
    bench.end_patience(&ghost).await;
    let seen = a.inspect().await;
    let holds: Vec<_> = seen.holds.iter().map(|hold| (hold.party.ours(), hold.weight)).collect();
    assert_eq!(holds, [(Some(&permits), 3), (Some(&lock), 1)], "the first to end comes first");
    assert_eq!((seen.token, seen.waiters[0].1), (Some(token), 0));
}
