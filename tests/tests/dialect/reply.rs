//! The part that every reply has: the grant of a member of the calling node.

use lockcore::internals::{Acquired, Left, Presence, Released, Renewed};

use crate::asking::{grant, left_ms};
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
    assert_eq!(grant(&told).member, second);
    assert_eq!(grant(&again).member, second);
    assert_eq!(grant(&told).token, grant(&again).token);
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
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&first, 10_000));
    assert_eq!(left_ms(&reply), 10_000);
}

// Findings 3 and 17: wherever it is asked, the grant is told with the time left.
#[tokio::test]
async fn every_reply_tells_the_grant_of_the_calling_node_and_no_other() {
    let bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let member = a.member(30_000);
    let token = grant(&a.wait(&member).await).token;
    let queued = a.queue(30_000).await;
    let unknown = a.member(30_000);
    let renewed = a.renew(&unknown).await;
    let released = a.release(&unknown).await;
    let left = a.leave(&unknown).await;
    let touched = a.touch(&[&queued, &unknown, &member]).await;
    assert_eq!(
        (&renewed.outcome[..], released.outcome),
        (&[Renewed::NotHeld][..], Released::NotHeld)
    );
    assert_eq!(left.outcome, [Left::Absent]);
    let presence = [Presence::Waiting, Presence::Gone, Presence::Holding];
    assert_eq!(touched.outcome.members, presence);
    for (told, end_ms) in [
        (grant(&renewed), left_ms(&renewed)),
        (grant(&released), left_ms(&released)),
        (grant(&left), left_ms(&left)),
        (grant(&touched), left_ms(&touched)),
    ] {
        assert_eq!((&told.member, told.token, told.left_ms), (&member, token, end_ms));
        assert!((29_000..=30_000).contains(&end_ms), "{end_ms}");
    }
    let other = b.wait(&b.member(30_000)).await;
    assert_eq!(&other.grants[..], []);
    assert!(left_ms(&other) > 29_000);
}

#[tokio::test]
async fn a_free_lock_has_nothing_left_and_no_grant() {
    let bench = Bench::start().await;
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    let reply = a.release(&member).await;
    assert_eq!((left_ms(&reply), reply.passed_over), (0, 0));
    assert_eq!(reply.grants, []);
}
