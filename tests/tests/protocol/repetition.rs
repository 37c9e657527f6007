//! Commands that run twice, late, or for somebody who is no longer concerned.

use lock_tests::door_key;
use lockcore::internals::{Acquired, Demand, Left, Mode, Presence, Released, Renewed};
use redis::cmd;

use crate::asking::{grant, left_ms};
use crate::bench::{Bench, LOCK};

// Findings 1 and 3.
#[tokio::test]
async fn an_acquire_that_is_repeated_tells_the_same_hold_and_the_rest_of_its_lease() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.member(30_000);
    let first = a.wait(&member).await;
    let () = bench.redis.ask(cmd("PEXPIRE").arg(door_key(LOCK)).arg(20_000)).await;
    let again = a.wait(&member).await;
    assert_eq!((again.outcome, &grant(&again).member), (Acquired::Granted, &member));
    let left = grant(&again).left_ms;
    assert!((19_000..=20_000).contains(&left) && left == left_ms(&again), "{again:?}");
    assert!(grant(&again).token > grant(&first).token, "a lock is told a new token");
    let touched = a.touch(&[&member]).await;
    assert_eq!(touched.outcome.members, [Presence::Holding]);
    assert!(left_ms(&touched) <= left && grant(&touched).token > grant(&again).token);
}

#[tokio::test]
async fn an_acquire_of_a_part_that_is_repeated_tells_the_same_hold_and_the_same_token() {
    for demand in [Demand::READ, Demand::permits(2, 3).expect("two of three")] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        let member = a.member_for(demand, 30_000);
        let first = a.wait(&member).await;
        let again = a.wait(&member).await;
        let touched = a.touch(&[&member]).await;
        for told in [grant(&again), grant(&touched)] {
            assert_eq!((&told.member, told.token), (&member, grant(&first).token));
            assert!((29_000..=30_000).contains(&told.left_ms), "{told:?}");
        }
        assert_eq!(bench.parts().await.len(), 1);
        let door = bench.door().await.expect("it is held");
        assert_eq!(door, format!("*{}:{}", demand.weight(), grant(&first).token));
    }
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
    let waiting = bench.queue().await[0].clone();
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

#[tokio::test]
async fn a_renewal_of_a_part_after_the_lease_s_end_finds_nothing() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let (member, other) =
        (a.hold_for(Demand::READ, 30_000).await, a.hold_for(Demand::READ, 30_000).await);
    let past = bench.now_ms().await - 1;
    let () =
        bench.redis.ask(cmd("ZADD").arg(bench.key("holds")).arg(past).arg(member.as_str())).await;
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.confirm(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.reduce(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.touch(&[&member]).await.outcome.members, [Presence::Gone]);
    assert_eq!(a.renew(&other).await.outcome, [Renewed::Held]);
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
    assert_eq!(bench.holder().await, Some(other));
}

// The same behind a mark, where the door outlives the lease.
#[tokio::test]
async fn behind_a_mark_a_lease_ends_as_early() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(1_000).await;
    let waiting = b.queue(30_000).await;
    bench.until_free().await;
    assert!(bench.door().await.is_some_and(|door| door == format!("+{member}")));
    assert_eq!(a.renew(&member).await.outcome, [Renewed::NotHeld]);
    assert_eq!(a.release(&member).await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(waiting), "that release handed it on");
}

// Finding 9.
#[tokio::test]
async fn a_hold_without_an_end_gets_its_holder_s_lease_from_whoever_finds_it() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(8_000).await;
    let persist = cmd("PERSIST").arg(door_key(LOCK)).to_owned();
    let () = bench.redis.ask(&persist).await;
    let other = b.member(30_000);
    let reply = b.wait(&other).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Queued { position: 0 }, 8_000));
    let left = bench.left().await;
    assert!((7_000..=8_000).contains(&left), "{left}");

    // Its own holder's questions end it as well.
    for question in 0..4 {
        let () = bench.redis.ask(&persist).await;
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
