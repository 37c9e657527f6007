//! The part that every reply has: the grant of a member of the calling node.

use lockcore::internals::{Acquired, Left, Presence, Released, Renewed};

use crate::bench::Bench;

// Finding 17 b.
#[tokio::test]
async fn a_release_that_is_repeated_tells_the_grant_again() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    let second = a.queue(30_000).await;
    let told = a.release(&first).await;
    let again = a.release(&first).await;
    assert_eq!((told.outcome, again.outcome), (Released::Released, Released::NotHeld));
    assert_eq!(told.grant.as_ref().map(|grant| &grant.member), Some(&second));
    assert_eq!(told.grant, again.grant);
}

// Finding 17 c.
#[tokio::test]
async fn a_reply_to_a_queued_acquire_tells_of_another_member_s_grant() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(100).await;
    let first = b.queue(30_000).await;
    bench.until_free().await;
    let second = b.member(30_000);
    let reply = b.wait(&second).await; // finds the lock free, and somebody ahead
    assert_eq!(reply.outcome, Acquired::Queued { position: 0 });
    assert_eq!(reply.grant.map(|grant| grant.member), Some(first));
    assert_eq!(reply.left_ms, 10_000);
}

// Findings 3 and 17: wherever it is asked, the grant is told with what is left.
#[tokio::test]
async fn every_reply_tells_the_grant_of_the_calling_node_and_no_other() {
    let bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.member(30_000);
    let grant = a.wait(&member).await.grant;
    assert!(grant.is_some());
    let queued = a.queue(30_000).await;
    let unknown = a.member(30_000);
    let renewed = a.renew(&unknown).await;
    let released = a.release(&unknown).await;
    let left = a.leave(&unknown).await;
    let touched = a.touch(&[&queued, &unknown, &member]).await;
    assert_eq!((renewed.outcome, released.outcome), (Renewed::NotHeld, Released::NotHeld));
    assert_eq!(left.outcome, [Left::Absent]);
    let presence = [Presence::Waiting, Presence::Gone, Presence::Holding];
    assert_eq!(touched.outcome.members, presence);
    for (told, left_ms) in [
        (renewed.grant, renewed.left_ms),
        (released.grant, released.left_ms),
        (left.grant, left.left_ms),
        (touched.grant, touched.left_ms),
    ] {
        assert_eq!(told, grant);
        assert!((29_000..=30_000).contains(&left_ms), "{left_ms}");
    }
    let other = b.wait(&b.member(30_000)).await;
    assert_eq!((other.grant, other.foreign), (None, false));
    assert!(other.left_ms > 29_000);
}

#[tokio::test]
async fn a_free_lock_has_nothing_left_and_no_grant() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    let reply = a.release(&member).await;
    assert_eq!((reply.left_ms, reply.grant, reply.foreign, reply.passed_over), (0, None, false, 0));
}
