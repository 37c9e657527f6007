//! The common part of every reply: holds of the calling node, and of no other.

use proto::{Acquired, Demand, Left, Presence, Released, Renewed};

use crate::asking::{grant, left_ms};
use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        a_grant_in_a_lost_answer_is_told_again_to_whoever_asks_for_the_member,
        a_reply_to_a_queued_acquire_tells_of_another_member_s_grant,
        each_reply_tells_the_end_of_the_hold_and_of_the_members_that_ask_their_grants,
        a_free_lock_has_nothing_left_and_no_grant,
    ],
    queue: [a_confirmation_tells_the_token_and_the_full_lease],
    redisson: [
        a_release_that_is_repeated_tells_the_grant_again,
        every_reply_tells_the_grant_of_the_calling_node,
    ],
}

// Finding 17 b: the reply to the release that granted it was lost.
async fn a_grant_in_a_lost_answer_is_told_again_to_whoever_asks_for_the_member(mut bench: Bench) {
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    let second = a.queue(30_000).await;
    let released = a.release(&first).await;
    assert_eq!((released.outcome, &grant(&released).member), (Released::Released, &second));
    assert_eq!(a.release(&first).await.outcome, Released::NotHeld);
    let touched = a.touch(&[&second]).await;
    assert_eq!(touched.outcome.members, [Presence::Holding]);
    assert_eq!(grant(&touched).member, second);
    assert!(grant(&touched).token >= grant(&released).token);
}

// Finding 17 b.
async fn a_release_that_is_repeated_tells_the_grant_again(mut bench: Bench) {
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    let second = a.queue(30_000).await;
    let released = a.release(&first).await;
    let again = a.release(&first).await;
    assert_eq!((grant(&again).member.clone(), again.outcome), (second, Released::NotHeld));
    assert_eq!(grant(&released).token, grant(&again).token);
}

// Finding 17 c.
async fn a_reply_to_a_queued_acquire_tells_of_another_member_s_grant(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let first = b.queue(30_000).await;
    bench.end_lease().await;
    let second = b.member(30_000);
    let reply = b.wait(&second).await; // finds the lock free, and somebody ahead
    assert_eq!(reply.outcome, Acquired::Queued { position: 0 });
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&first, 10_000));
    assert_eq!(left_ms(&reply), 10_000);
}

// Findings 3 and 17.
async fn each_reply_tells_the_end_of_the_hold_and_of_the_members_that_ask_their_grants(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.hold(30_000).await;
    let queued = a.queue(30_000).await;
    let unknown = a.member(30_000);
    let released = a.release(&unknown).await;
    let left = a.leave(&unknown).await;
    let touched = a.touch(&[&queued, &unknown, &member]).await;
    assert_eq!((released.outcome, &left.outcome[..]), (Released::NotHeld, &[Left::Absent][..]));
    let presence = [Presence::Waiting, Presence::Gone, Presence::Holding];
    assert_eq!(touched.outcome.members, presence);
    for end_ms in [left_ms(&released), left_ms(&left), left_ms(&touched)] {
        assert!((29_000..=30_000).contains(&end_ms), "{end_ms}");
    }
    if !bench.side.has_peers() {
        assert_eq!((&released.grants[..], &left.grants[..]), (&[][..], &[][..]));
    }
    assert_eq!((&grant(&touched).member, grant(&touched).left_ms), (&member, left_ms(&touched)));
    let other = b.wait(&b.member(30_000)).await;
    assert_eq!(other.grants, []);
    assert!(left_ms(&other) > 29_000);
}

// Findings 3 and 17.
async fn every_reply_tells_the_grant_of_the_calling_node(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.member(30_000);
    let token = grant(&a.wait(&member).await).token;
    let unknown = a.member(30_000);
    let renewed = a.renew(&unknown).await;
    let released = a.release(&unknown).await;
    let left = a.leave(&unknown).await;
    assert_eq!(renewed.outcome, [Renewed::NotHeld]);
    for (reported, end_ms) in [
        (grant(&renewed), left_ms(&renewed)),
        (grant(&released), left_ms(&released)),
        (grant(&left), left_ms(&left)),
    ] {
        assert_eq!((&reported.member, reported.token, reported.left_ms), (&member, token, end_ms));
        assert!((29_000..=30_000).contains(&end_ms), "{end_ms}");
    }
}

async fn a_confirmation_tells_the_token_and_the_full_lease(mut bench: Bench) {
    let a = bench.node().await;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        let member = a.member_for(demand, 30_000);
        let granted = a.wait(&member).await;
        let confirmed = a.confirm(&member).await;
        assert_eq!(confirmed.outcome, [Renewed::Held]);
        assert_eq!((&grant(&confirmed).member, grant(&confirmed).left_ms), (&member, 30_000));
        let (first, later) = (grant(&granted).token, grant(&confirmed).token);
        assert_eq!(first == later, demand == Demand::READ, "reads have one, a lock gets a new one");
        assert!(first <= later);
        a.release(&member).await;
        assert_eq!(a.confirm(&member).await.outcome, [Renewed::NotHeld]);
    }
    bench.everything_expires().await;
}

async fn a_free_lock_has_nothing_left_and_no_grant(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    a.release(&member).await;
    let reply = a.release(&member).await; // in full
    assert_eq!((left_ms(&reply), reply.skipped), (0, 0));
    assert_eq!(reply.grants, []);
}
