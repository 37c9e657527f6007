//! Primaries that are away, at the start and later.

use std::time::Duration;

use lock_tests::{Raw, eventually};
use lockcore::{HoldState, LockErrorKind, Locks};
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};

use crate::primaries::{MAX_LEASE, SOON, Three};

#[tokio::test]
async fn a_primary_that_is_away_at_the_start_is_connected_to_later() {
    let mut three = Three::begun().await;
    three.0[0].kill();
    let locks = three.locks().await;
    let guard = locks.lock("k").await.expect("two of three");
    assert_eq!(locks.status().servers.len(), 2);
    three.0[0].restart();
    eventually("the third one is connected", SOON, async || locks.status().servers.len() == 3)
        .await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn without_a_majority_at_the_start_there_is_no_locks() {
    let mut three = Three::begun().await;
    three.0[0].kill();
    three.0[2].kill();
    let locks = Locks::builder().lease(MAX_LEASE).from_quorum(three.quorum()).await;
    assert_eq!(locks.expect_err("one of three").kind(), LockErrorKind::Unavailable);
}

#[tokio::test]
async fn a_primary_that_dies_costs_holders_nothing_and_waiters_a_second() {
    for primary in 0..3 {
        let mut three = Three::begun().await;
        let (one, other) = (three.locks().await, three.locks().await);
        let guard = one.lock("k").await.expect("free");
        let mut redis = Raw::connect(&three.0[2].url()).await;
        eventually("all are held", SOON, async || redis.exists("lock:{k}").await).await;
        let waiting = tokio::spawn(other.lock("k"));
        eventually("one waits", SOON, async || {
            one.inspect("k").await.is_ok_and(|seen| seen.waiters.len() == 1)
        })
        .await;
        three.0[primary].kill();
        let died = Instant::now();
        // Longer than a lease: the others renew theirs.
        tokio::time::sleep(MAX_LEASE + Duration::from_secs(1)).await;
        assert_eq!(guard.state(), HoldState::Held, "primary {primary}");
        let token = guard.fencing_token();
        guard.release().await.expect("held by the others");
        let next = timeout(SOON, waiting).await.expect("in time").expect("no panic");
        let next = next.expect("granted");
        assert!(next.fencing_token() > token);
        drop(next);
        assert!(died.elapsed() < SOON);
    }
}

#[tokio::test]
async fn a_release_leaves_nothing_at_any_primary() {
    let three = Three::begun().await;
    let locks = three.locks().await;
    for _ in 0..20 {
        let guard = locks.lock("k").await.expect("free");
        drop(guard);
        locks.lock("k").await.expect("free").release().await.expect("held");
    }
    drop(locks);
    for server in &three.0 {
        let mut redis = Raw::connect(&server.url()).await;
        eventually("no door is left", SOON, async || !redis.exists("lock:{k}").await).await;
    }
}

#[test]
fn a_runtime_that_ends_before_it_has_polled_a_task_ends_the_locks() {
    // It runs only the futures that it is blocked on.
    let undriven = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (theirs, ours) = (undriven(), undriven());
    // None counts yet, so that locks wait for the tasks that follow the primaries. The last step of
    // connecting starts these tasks, and nothing polls them after that.
    let three = Three::start();
    let locks = theirs.block_on(three.locks());
    drop(theirs);
    let error = ours.block_on(async { timeout(SOON, locks.lock("k")).await }).expect("in time");
    assert_eq!(error.expect_err("it has ended").kind(), LockErrorKind::Closed);
}
