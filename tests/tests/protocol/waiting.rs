//! Staying in the queue: liveness deadlines, members set aside, and attempts that gave up.

use proto::queue::{Mark, QueueState};
use proto::{Acquired, Demand, Member, Mode, Presence, Renewed, SortedSet};

use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::state::State;

facts! {
    both: [
        asking_again_from_the_queue_renews_the_patience,
        a_queue_that_is_full_of_the_silent_takes_newcomers,
        a_tombstone_is_forgotten_after_a_minute,
    ],
    queue: [
        a_member_of_a_silent_node_that_asks_again_keeps_its_position,
        a_touch_of_a_waiter_of_a_silent_node_keeps_it,
        a_member_comes_back_to_a_lock_that_is_held_without_waiters_and_marks_its_lock_key,
        members_aside_count_neither_for_the_limit_nor_for_positions,
        a_late_acquire_of_one_that_was_skipped_does_not_cost_its_position,
        an_attempt_that_was_given_up_is_refused_for_a_minute_also_where_the_clock_is_set_back,
        a_tombstone_that_outlives_its_lock_key_counts_no_more_and_no_waiter_is_lost,
    ],
    redisson: [
        passing_over_never_lengthens_a_deadline,
        the_sweep_drops_the_lowest_deadlines_first,
        ours_are_forgotten_75_s_after_the_last_was_heard_of,
        a_touch_and_a_pass_over_move_the_end_of_the_keys_of_ours,
    ],
}

async fn asking_again_from_the_queue_renews_the_patience(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    for mode in [Mode::Wait, Mode::Try] {
        bench.set_patience(&waiting, 3_000).await;
        let outcome = b.acquire(&waiting, mode, 1).await.outcome;
        assert_eq!(outcome, Acquired::Queued { position: 0 });
        assert!(bench.patience(&waiting).await > Some(14_000), "{mode:?}");
    }
}

async fn a_queue_that_is_full_of_the_silent_takes_newcomers(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let silent = [b.queue(30_000).await, b.queue(30_000).await];
    let newcomer = a.member(30_000);
    let full = Acquired::Full { waiting: 2 };
    assert_eq!(a.acquire(&newcomer, Mode::Wait, 2).await.outcome, full);
    bench.pass(1_001).await;
    for member in &silent {
        bench.end_patience(member).await;
    }
    let outcome = a.acquire(&newcomer, Mode::Wait, 2).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 0 });
}

async fn a_tombstone_is_forgotten_after_a_minute(mut bench: Bench) {
    let a = bench.node().await;
    let zombie = a.member(30_000);
    a.leave_ambiguous(&zombie).await;
    bench.pass(59_000).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    bench.pass(1_001).await;
    a.touch(&[&zombie]).await;
    assert_eq!(bench.tombstones().await, []);
    assert!(bench.is_empty().await, "{:?}", bench.state().await);
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Granted);
}

async fn a_member_of_a_silent_node_that_asks_again_keeps_its_position(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = [b.queue(30_000).await, a.queue(30_000).await];
    bench.end_patience(&waiting[0]).await;
    let outcome = b.wait(&waiting[0]).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 0 });
    assert_eq!(bench.queue().await, waiting);
    assert!(bench.patience(&waiting[0]).await > Some(14_000));
}

async fn a_touch_of_a_waiter_of_a_silent_node_keeps_it(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (waiting, silent) = (b.queue(30_000).await, c.queue(30_000).await);
    bench.end_patience(&waiting).await;
    bench.end_patience(&silent).await;
    assert_eq!(b.touch(&[&waiting]).await.outcome.members, [Presence::Waiting]);
    a.release(&holder).await;
    assert_eq!((bench.holder().await, bench.queue().await), (Some(waiting), vec![silent]));
}

/// A member skipped while its node was not connected; now it is connected.
async fn skipped(bench: &mut Bench, a: &Node, b: &Node, others: usize) -> Vec<Member> {
    let holder = a.hold(30_000).await;
    let mut passed = vec![b.queue(30_000).await];
    for _ in 0..others {
        passed.push(b.queue(30_000).await);
    }
    b.connect(false).await;
    a.release(&holder).await;
    b.connect(true).await;
    assert_eq!(bench.aside(&b.id).await, passed);
    passed
}

async fn a_member_comes_back_to_a_lock_that_is_held_without_waiters_and_marks_its_lock_key(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let passed = skipped(&mut bench, &a, &b, 0).await;
    let holder = a.hold(30_000).await;
    assert_eq!(bench.mark().await, Some(Mark::None));
    assert_eq!(b.touch(&[&passed[0]]).await.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.mark().await, Some(Mark::Waited));
    a.release(&holder).await;
    assert_eq!(bench.holder().await, Some(passed[0].clone()));
}

async fn members_aside_count_neither_for_the_limit_nor_for_positions(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    skipped(&mut bench, &a, &b, 1).await;
    a.hold(30_000).await;
    let outcome = a.acquire(&a.member(30_000), Mode::Wait, 1).await.outcome;
    assert_eq!(outcome, Acquired::Queued { position: 0 });
}

async fn a_late_acquire_of_one_that_was_skipped_does_not_cost_its_position(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = skipped(&mut bench, &a, &b, 0).await.remove(0);
    let holder = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    b.wait(&first).await;
    b.connect(false).await;
    a.release(&holder).await;
    b.connect(true).await;
    a.hold(30_000).await;
    for member in [&second, &first] {
        assert_eq!(b.touch(&[member]).await.outcome.members, [Presence::Waiting]);
    }
    assert_eq!(bench.queue().await, [first, second]);
}

/// Moves the ends to a clock that was set back.
fn set_back(state: &mut QueueState, ms: u64) {
    let mut gone = SortedSet::default();
    for (ends_ms, member) in state.tombstones.iter() {
        gone.set(member, ends_ms + ms);
    }
    state.tombstones = gone;
    state.queue_ends_ms = state.queue_ends_ms.map(|at_ms| at_ms + ms);
    state.patience.values_mut().for_each(|at_ms| *at_ms += ms);
    let lock_key = state.lock_key.as_mut().expect("it is held");
    lock_key.ends_ms = lock_key.ends_ms.map(|at_ms| at_ms + ms);
}

/// A lock with a short lease and a waiter, after another attempt gave up. Then the clock is set
/// back, and the holder renews: its lock key ends before the tombstone.
async fn given_up_before_the_clock_was_set_back(
    bench: &mut Bench,
    a: &Node,
    b: &Node,
) -> [Member; 2] {
    let holder = a.hold(2_000).await;
    let waiting = b.queue(30_000).await;
    let zombie = a.member(30_000);
    a.leave_ambiguous(&zombie).await;
    bench.change(|state, _| set_back(state.of_queue(), 46_000)).await;
    assert_eq!(a.renew(&holder).await.outcome, [Renewed::Held]);
    [waiting, zombie]
}

async fn an_attempt_that_was_given_up_is_refused_for_a_minute_also_where_the_clock_is_set_back(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [_, zombie] = given_up_before_the_clock_was_set_back(&mut bench, &a, &b).await;
    bench.pass(59_000).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
}

async fn a_tombstone_that_outlives_its_lock_key_counts_no_more_and_no_waiter_is_lost(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [waiting, zombie] = given_up_before_the_clock_was_set_back(&mut bench, &a, &b).await;
    // The clock is set forward: more than a minute has passed since it gave up.
    bench.pass(64_000).await;
    b.touch(&[&waiting]).await;
    assert_eq!(bench.holder().await, Some(waiting.clone()));
    let (mut state, _) = bench.state().await;
    let mark = state.of_queue().lock_key.as_ref().map(|lock_key| lock_key.mark);
    assert_eq!(mark, Some(Mark::Waited));
    assert_eq!(bench.tombstones().await, std::slice::from_ref(&zombie));
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Queued { position: 0 });
    let last = a.queue_for(Demand::EXCLUSIVE, 30_000).await;
    b.release(&waiting).await;
    assert_eq!(bench.holder().await, Some(zombie.clone()));
    a.release(&zombie).await;
    assert_eq!(bench.holder().await, Some(last));
}

async fn passing_over_never_lengthens_a_deadline(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let dead = bench.plant_dead(1).await;
    bench.set_patience(&dead[0], 3_000).await;
    assert_eq!(a.release(&holder).await.skipped, 1);
    assert!(bench.patience(&dead[0]).await <= Some(3_000));
}

async fn the_sweep_drops_the_lowest_deadlines_first(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let ghosts = bench.plant_dead(20).await;
    bench
        .change(|state, now_ms| {
            for (ghost, since_ms) in ghosts.iter().zip(1..) {
                state.set_alive_until(&ghost.into(), now_ms - since_ms);
            }
        })
        .await;
    let newcomer = a.queue(30_000).await;
    let mut left = ghosts[..4].to_vec();
    left.push(newcomer.clone());
    assert_eq!(bench.queue().await, left);
    a.touch(&[&newcomer]).await;
    assert_eq!(bench.queue().await, [newcomer]);
}

/// How many ms our keys last.
async fn lasts(bench: &mut Bench) -> u64 {
    let (mut state, now_ms) = bench.state().await;
    state.of_redisson().alive_expires_ms.expect("it has an end") - now_ms
}

async fn ours_are_forgotten_75_s_after_the_last_was_heard_of(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    a.queue(30_000).await;
    assert!((74_000..=75_000).contains(&lasts(&mut bench).await));
    let known = async |bench: &mut Bench| {
        let (state, _) = bench.state().await;
        let State::Redisson(state) = state else { unreachable!() };
        (state.alive.len(), state.arrivals.len(), state.queue_expires_ms)
    };
    bench.pass(74_000).await;
    assert_eq!(known(&mut bench).await, (1, 1, None));
    bench.pass(1_001).await;
    assert_eq!(known(&mut bench).await, (0, 0, None));
}

async fn a_touch_and_a_pass_over_move_the_end_of_the_keys_of_ours(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.pass(2_000).await;
    assert!(lasts(&mut bench).await <= 73_000);
    b.touch(&[&waiting]).await;
    assert!(lasts(&mut bench).await > 74_000);
    bench.pass(2_000).await;
    b.connect(false).await;
    assert_eq!(a.release(&holder).await.skipped, 1);
    assert!(lasts(&mut bench).await > 74_000);
}
