//! Commands that run twice, late, or for a member that is no longer concerned.

use lockcore::internals::{Acquired, Grant, Left, Mode, Presence, Released, Renewed};
use redis::cmd;

use crate::asking::{grant, left_ms};
use crate::bench::Bench;

// Findings 1 and 3.
#[tokio::test]
async fn an_acquire_that_is_repeated_tells_the_same_grant_and_what_is_left_of_it() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.member(1_000);
    let first = a.wait(&member).await;
    let pttl = bench.until_at_most_left(600).await as u64;
    let again = a.wait(&member).await;
    let told = |grant: &Grant| (grant.member.clone(), grant.token);
    assert_eq!(again.outcome, Acquired::Granted);
    assert_eq!(told(grant(&again)), told(grant(&first)));
    let left = grant(&again).left_ms;
    assert!(left <= pttl && left == left_ms(&again), "{again:?}, {pttl} before that");
    let touched = a.touch(&[&member]).await;
    assert_eq!(touched.outcome.members, [Presence::Holding]);
    assert!(left_ms(&touched) <= left);
    assert_eq!(told(grant(&touched)), told(grant(&first)));
}

// S5.
#[tokio::test]
async fn an_acquire_that_is_repeated_keeps_its_place() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let (one, two, three) = (b.queue(30_000).await, a.queue(30_000).await, b.queue(30_000).await);
    for (node, member, position) in [(&b, &one, 0), (&a, &two, 1), (&b, &three, 2)] {
        assert_eq!(node.wait(member).await.outcome, Acquired::Queued { position });
        assert_eq!(node.try_now(member).await.outcome, Acquired::Queued { position });
        assert_eq!(
            node.acquire(member, Mode::Wait, 1).await.outcome,
            Acquired::Queued { position }
        );
    }
    assert_eq!(bench.queue().await, [one, two, three]);
}

// S6.
#[tokio::test]
async fn the_first_release_frees_and_every_later_one_does_nothing() {
    let mut bench = Bench::start().await;
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
#[tokio::test]
async fn nothing_that_an_old_member_sends_changes_anything_of_anybody_else_s() {
    let mut bench = Bench::start().await;
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
    // Not even for a member that stands in the queue.
    let waiting = bench.queue().await[0].ours().expect("of one of us").clone();
    assert_eq!(c.renew(&waiting).await.outcome, [Renewed::NotHeld]);
    assert_eq!(c.release(&waiting).await.outcome, Released::NotHeld);
    assert_eq!(bench.everything().await, before);
}

// A renewal never revives.
#[tokio::test]
async fn a_renewal_after_the_lease_s_end_finds_nothing() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.hold(100).await;
    bench.until_free().await;
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(bench.holder().await, None);
}

// S1.
#[tokio::test]
async fn there_is_one_holder_until_its_lease_ends() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(1_000).await;
    let other = b.member(30_000);
    assert_eq!(b.try_now(&other).await.outcome, Acquired::Busy);
    assert_eq!(bench.holder().await, Some(member));
    bench.until_free().await;
    assert_eq!(b.try_now(&other).await.outcome, Acquired::Granted);
    assert_eq!(bench.redis.hash(&bench.hold_key()).await.len(), 1);
}

// Finding 9.
#[tokio::test]
async fn a_hold_without_an_end_gets_the_lease_of_who_finds_it() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(30_000).await;
    let () = bench.redis.ask(cmd("PERSIST").arg(bench.hold_key())).await;
    let other = b.member(7_000);
    let reply = b.wait(&other).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Queued { position: 0 }, 7_000));
    let left = bench.redis.pttl(&bench.hold_key()).await;
    assert!((6_000..=7_000).contains(&left), "{left}");

    let () = bench.redis.ask(cmd("PERSIST").arg(bench.hold_key())).await;
    assert_eq!(left_ms(&b.touch(&[&other]).await), 7_000);
    let () = bench.redis.ask(cmd("PERSIST").arg(bench.hold_key())).await;
    assert_eq!(left_ms(&b.try_now(&b.member(9_000)).await), 9_000);

    // Its own holder's question ends it as well.
    let () = bench.redis.ask(cmd("PERSIST").arg(bench.hold_key())).await;
    assert_eq!(left_ms(&a.wait(&member).await), 30_000);
    bench.everything_expires().await;
}
