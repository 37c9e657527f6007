//! Members that gave up, and late commands for them.

use proto::queue::Mark;
use proto::{Acquired, Demand, Left, Mode, Presence, SortedSet};

use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        an_acquire_that_arrives_after_its_ambiguous_leave_is_refused,
        a_second_copy_of_an_acquire_finds_its_member_given_up,
        only_ambiguous_members_leave_a_tombstone_in_a_batch,
        a_touch_that_runs_after_its_leave_revives_nothing,
        a_leave_of_a_member_that_was_granted_meanwhile_hands_the_lock_on,
        a_tombstone_is_found_behind_each_holder_that_comes_after_it,
    ],
    queue: [
        an_attempt_for_a_part_that_was_given_up_is_refused_too,
        of_several_that_wait_only_the_one_that_was_given_up_is_refused,
        the_mark_of_a_lock_goes_with_the_first_hand_over_after_the_last_tombstone,
    ],
}

// Findings 7 and 9: a leave overtakes the acquire.
async fn an_acquire_that_arrives_after_its_ambiguous_leave_is_refused(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let zombie = a.member(30_000);
    assert_eq!(a.leave_ambiguous(&zombie).await.outcome, [Left::Absent]);
    let (state, now_ms) = bench.state().await;
    let [(gone, ends_ms)] = &state.tombstones()[..] else { panic!("{state:?}") };
    assert_eq!(*gone, zombie);
    let lasts = ends_ms - now_ms;
    assert!((59_000..=60_000).contains(&lasts), "{lasts}");
    if let Some(mark_ends_ms) = state.mark_ends_ms() {
        assert!(mark_ends_ms > *ends_ms, "the mark outlives it");
    }
    for mode in [Mode::Try, Mode::Wait] {
        assert_eq!(a.acquire(&zombie, mode, 10).await.outcome, Acquired::Refused);
        assert_eq!(bench.holder().await, None);
    }
    let holder = b.hold(30_000).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    assert!(bench.queue().await.is_empty());
    // Nor after a hold granted and released.
    b.release(&holder).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    bench.everything_expires().await;
}

// Findings 7 and 9: a copy of the acquire runs after grant and release.
async fn a_second_copy_of_an_acquire_finds_its_member_given_up(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    assert_eq!(a.leave_ambiguous(&held).await.outcome, [Left::Left]);
    assert_eq!(a.wait(&held).await.outcome, Acquired::Refused);
    assert_eq!(bench.holder().await, None);

    let holder = a.hold(30_000).await;
    let queued = a.queue(30_000).await;
    assert_eq!(a.leave_ambiguous(&queued).await.outcome, [Left::Left]);
    assert_eq!(a.wait(&queued).await.outcome, Acquired::Refused);
    assert_eq!(
        a.touch(&[&queued, &holder]).await.outcome.members,
        [Presence::Gone, Presence::Holding]
    );
    assert!(bench.queue().await.is_empty());
}

async fn only_ambiguous_members_leave_a_tombstone_in_a_batch(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    let queued = [a.queue(30_000).await, a.queue(30_000).await, a.queue(30_000).await];
    let unknown = a.member(30_000);
    let leaving = [
        (&queued[1], true),
        (&unknown, true),
        (&queued[0], false),
        (&held, false),
        (&queued[2], true),
    ];
    let outcome = a.leave_all(&leaving).await.outcome;
    assert_eq!(outcome, [Left::Left, Left::Absent, Left::Left, Left::Left, Left::Left]);
    let mut expected = [&queued[1], &unknown, &queued[2]].map(Clone::clone);
    expected.sort();
    assert_eq!(bench.tombstones().await, expected);
    assert_eq!((bench.holder().await, bench.queue().await), (None, vec![]));
    bench.everything_expires().await;
}

async fn a_touch_that_runs_after_its_leave_revives_nothing(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let (leaver, stayer) = (a.queue(30_000).await, a.queue(30_000).await);
    a.leave(&leaver).await;
    let touched = a.touch(&[&leaver, &stayer]).await;
    assert_eq!(touched.outcome.members, [Presence::Gone, Presence::Waiting]);
    assert_eq!(bench.queue().await, [stayer]);
    if bench.side.has_peers() {
        assert_eq!(bench.patience(&leaver).await, None);
    }
}

// Finding 7: the holder leaves before it is notified of its grant.
async fn a_leave_of_a_member_that_was_granted_meanwhile_hands_the_lock_on(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    let third = c.queue(30_000).await;
    a.release(&first).await;
    assert_eq!(b.leave(&second).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(third));
}

async fn an_attempt_for_a_part_that_was_given_up_is_refused_too(mut bench: Bench) {
    let a = bench.node().await;
    let two = Demand::permits(2, 10).expect("two of ten");
    for demand in [Demand::READ, two] {
        let other = a.hold_for(demand, 30_000).await;
        let held = a.hold_for(demand, 30_000).await;
        assert_eq!(a.leave_ambiguous(&held).await.outcome, [Left::Left]);
        assert_eq!(a.wait(&held).await.outcome, Acquired::Refused);
        assert_eq!(bench.parts().await.len(), 1);
        a.release(&other).await;
        assert_eq!(a.wait(&held).await.outcome, Acquired::Refused);
    }
    bench.everything_expires().await;
}

// Invariant L2: an exclusive hold granted meanwhile keeps the flag.
async fn a_tombstone_is_found_behind_each_holder_that_comes_after_it(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let zombie = a.member(30_000);
    let first = b.hold(30_000).await;
    a.leave_ambiguous(&zombie).await;
    let second = b.queue(30_000).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    b.release(&first).await; // handed off
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    b.release(&second).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
    b.hold(30_000).await;
    assert_eq!(a.wait(&zombie).await.outcome, Acquired::Refused);
}

async fn of_several_that_wait_only_the_one_that_was_given_up_is_refused(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    b.hold(30_000).await;
    let [first, zombie, second] = [(); 3].map(|()| a.member(30_000));
    a.leave_ambiguous(&zombie).await;
    let outcome = a.acquire_all(&[&first, &zombie, &second], Mode::Wait, 10).await.outcome;
    let [at_0, at_1] = [0, 1].map(|position| Acquired::Queued { position });
    assert_eq!(outcome, [at_0, Acquired::Refused, at_1]);
    assert_eq!(bench.queue().await, [first, second]);
}

async fn the_mark_of_a_lock_goes_with_the_first_hand_over_after_the_last_tombstone(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = b.hold(30_000).await;
    a.leave_ambiguous(&a.member(30_000)).await;
    let second = b.queue(30_000).await;
    let third = a.queue(30_000).await;
    b.release(&first).await;
    assert_eq!(bench.mark().await, Some(Mark::Tombstones));
    bench.change(|state, _| state.of_queue().tombstones = SortedSet::default()).await;
    b.release(&second).await;
    assert_eq!((bench.holder().await, bench.mark().await), (Some(third), Some(Mark::Waited)));
}
