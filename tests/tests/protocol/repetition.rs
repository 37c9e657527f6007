//! Commands that run twice, late, or for a member that is no longer concerned.

use proto::{Acquired, Demand, Left, Mode, Presence, Released, Renewed};

use crate::asking::{grant, left_ms};
use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        an_acquire_that_is_repeated_tells_the_same_hold_and_the_rest_of_its_lease,
        an_acquire_that_is_repeated_keeps_its_position,
        the_first_release_frees_and_every_later_one_does_nothing,
        nothing_that_an_old_member_sends_changes_anything_of_anybody_else_s,
        a_renewal_after_the_lease_s_end_finds_nothing,
        there_is_one_holder_until_its_lease_ends,
    ],
    queue: [
        an_acquire_of_a_part_that_is_repeated_tells_the_same_hold_and_the_same_token,
        a_renewal_of_a_part_after_the_lease_s_end_finds_nothing,
        behind_a_mark_a_lease_ends_as_early,
        a_hold_without_an_end_gets_its_holder_s_lease_from_whoever_finds_it,
    ],
    redisson: [a_hold_without_an_end_gets_the_lease_of_the_member_that_finds_it],
}

// Findings 1 and 3.
async fn an_acquire_that_is_repeated_tells_the_same_hold_and_the_rest_of_its_lease(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let member = a.member(30_000);
    let first = a.wait(&member).await;
    bench.pass(10_000).await;
    let again = a.wait(&member).await;
    assert_eq!((again.outcome, &grant(&again).member), (Acquired::Granted, &member));
    let left = grant(&again).left_ms;
    assert!((19_000..=20_000).contains(&left) && left == left_ms(&again), "{again:?}");
    let touched = a.touch(&[&member]).await;
    assert_eq!(touched.outcome.members, [Presence::Holding]);
    assert!(left_ms(&touched) <= left);
    let tokens = [&first.grants, &again.grants, &touched.grants].map(|grants| grants[0].token);
    match bench.side.has_peers() {
        false => assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "each is told a new one"),
        true => assert_eq!(tokens, [tokens[0]; 3]),
    }
}

async fn an_acquire_of_a_part_that_is_repeated_tells_the_same_hold_and_the_same_token(
    mut bench: Bench,
) {
    for demand in [Demand::READ, Demand::permits(2, 3).expect("two of three")] {
        bench.restart().await;
        let a = bench.node().await;
        let member = a.member_for(demand, 30_000);
        let first = a.wait(&member).await;
        let again = a.wait(&member).await;
        let touched = a.touch(&[&member]).await;
        for reported in [grant(&again), grant(&touched)] {
            assert_eq!((&reported.member, reported.token), (&member, grant(&first).token));
            assert!((29_000..=30_000).contains(&reported.left_ms), "{reported:?}");
        }
        assert_eq!(bench.parts().await.len(), 1);
        assert_eq!(bench.shared().await, (demand.weight(), grant(&first).token.get()));
    }
}

// S5.
async fn an_acquire_that_is_repeated_keeps_its_position(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let (one, two, three) = (b.queue(30_000).await, a.queue(30_000).await, b.queue(30_000).await);
    for (node, member, position) in [(&b, &one, 0), (&a, &two, 1), (&b, &three, 2)] {
        let place = Acquired::Queued { position };
        assert_eq!(node.wait(member).await.outcome, place);
        assert_eq!(node.try_now(member).await.outcome, place);
        assert_eq!(node.acquire(member, Mode::Wait, 1).await.outcome, place);
    }
    assert_eq!(bench.queue().await, [one, two, three]);
}

// S6.
async fn the_first_release_frees_and_every_later_one_does_nothing(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    assert_eq!(a.release(&first).await.outcome, Released::Released);
    let before = bench.everything().await;
    for _ in 0..3 {
        assert_eq!(a.release(&first).await.outcome, Released::NotHeld);
        assert_eq!(a.leave(&first).await.outcome, [Left::Absent]);
    }
    assert_eq!(bench.everything().await, before);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(b.release(&second).await.outcome, Released::Released);
    assert_eq!(b.release(&second).await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, None);
}

// S4.
async fn nothing_that_an_old_member_sends_changes_anything_of_anybody_else_s(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let old = a.hold(30_000).await;
    b.queue(30_000).await;
    c.queue(30_000).await;
    a.release(&old).await;
    let before = bench.everything().await;
    assert_eq!(a.renew(&old).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.release(&old).await.outcome, Released::NotHeld);
    assert_eq!(a.leave(&old).await.outcome, [Left::Absent]);
    assert_eq!(a.touch(&[&old]).await.outcome.members, [Presence::Gone]);
    // Not even for a member in the queue.
    let waiting = bench.queue().await[0].clone();
    assert_eq!(c.renew(&waiting).await.outcome, [Renewed::NotHeld]);
    assert_eq!(c.release(&waiting).await.outcome, Released::NotHeld);
    assert_eq!(bench.everything().await, before);
}

// A renewal never revives.
async fn a_renewal_after_the_lease_s_end_finds_nothing(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    bench.pass(30_000).await;
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(bench.holder().await, None);
}

async fn a_renewal_of_a_part_after_the_lease_s_end_finds_nothing(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.hold_for(Demand::READ, 20_000).await;
    let other = a.hold_for(Demand::READ, 30_000).await;
    bench.pass(20_000).await;
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.confirm(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.reduce(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.touch(&[&member]).await.outcome.members, [Presence::Gone]);
    assert_eq!(a.renew(&other).await.outcome, [Renewed::Held]);
}

// S1.
async fn there_is_one_holder_until_its_lease_ends(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(30_000).await;
    let other = b.member(30_000);
    bench.pass(29_000).await;
    assert_eq!(b.try_now(&other).await.outcome, Acquired::Busy);
    assert_eq!(bench.holder().await, Some(member));
    bench.pass(1_000).await;
    assert_eq!(b.try_now(&other).await.outcome, Acquired::Granted);
    assert_eq!(bench.holder().await, Some(other));
}

// The same with a flag, where the lock key outlives the lease.
async fn behind_a_mark_a_lease_ends_as_early(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(12_000).await;
    let waiting = b.queue(30_000).await;
    bench.pass(12_000).await;
    assert!(bench.state().await.0.of_queue().lock_key.is_some(), "it outlives the lease");
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.release(&member).await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(waiting), "that release handed it on");
}

async fn lose_end(bench: &mut Bench) {
    bench.change(|state, _| state.set_lease_end(None)).await;
}

// Finding 9.
async fn a_hold_without_an_end_gets_its_holder_s_lease_from_whoever_finds_it(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(8_000).await;
    lose_end(&mut bench).await;
    let other = b.member(30_000);
    let reply = b.wait(&other).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Queued { position: 0 }, 8_000));
    let left = bench.left().await;
    assert!((7_000..=8_000).contains(&left), "{left}");

    // The requests of its own holder end it as well.
    for question in 0..4 {
        lose_end(&mut bench).await;
        match question {
            0 => drop(b.touch(&[&other]).await),
            1 => drop(a.wait(&member).await),
            2 => drop(a.renew(&member).await),
            _ => drop(a.confirm(&member).await),
        }
        let left = bench.left().await;
        assert!((7_000..=8_000).contains(&left), "{question}: {left}");
    }
    bench.everything_expires().await;
}

// Finding 9.
async fn a_hold_without_an_end_gets_the_lease_of_the_member_that_finds_it(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(30_000).await;
    lose_end(&mut bench).await;
    let other = b.member(7_000);
    let reply = b.wait(&other).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Queued { position: 0 }, 7_000));
    let left = bench.left().await;
    assert!((6_000..=7_000).contains(&left), "{left}");

    lose_end(&mut bench).await;
    assert_eq!(left_ms(&b.touch(&[&other]).await), 7_000);
    lose_end(&mut bench).await;
    assert_eq!(left_ms(&b.try_now(&b.member(9_000)).await), 9_000);

    // The request of its own holder ends it as well.
    lose_end(&mut bench).await;
    assert_eq!(left_ms(&a.wait(&member).await), 30_000);
    bench.everything_expires().await;
}
