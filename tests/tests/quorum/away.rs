//! Primaries that are away, at the start and later.

use std::time::Duration;

use lock_tests::{Log, Raw, eventually};
use lockcore::operate::Connection;
use lockcore::{HoldState, LockErrorKind, Locks};
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};

use crate::marks::replica_of;
use crate::primaries::{MAX_LEASE, SOON, Three};

#[tokio::test]
async fn a_primary_that_is_away_at_the_start_is_connected_to_later() {
    let mut three = Three::begun().await;
    three.0[0].kill();
    let locks = three.locks().await;
    let guard = locks.lock("k").await.expect("two of three");
    let servers = locks.status().servers;
    let is_away: Vec<_> = servers.iter().map(|server| !server.is_connected()).collect();
    assert_eq!(is_away, [true, false, false]);
    assert_eq!(servers[0].address, three.0[0].address().to_string());
    three.0[0].restart();
    eventually("the third one is connected", SOON, async || {
        locks.status().servers.iter().all(|server| server.is_connected())
    })
    .await;
    guard.release().await.expect("held");
}

/// Why a primary refuses a starting process.
#[derive(Debug, Clone, Copy)]
enum Reason {
    Replica,
    Rights,
    Password,
    Mark,
}

#[tokio::test]
async fn a_primary_that_refuses_is_as_one_that_is_away_and_is_tried_again() {
    for reason in [Reason::Replica, Reason::Rights, Reason::Password, Reason::Mark] {
        let three = Three::begun().await;
        let mut redis = Raw::connect(&three.0[0].url()).await;
        let mut ask = async |words: &[&str]| -> redis::Value {
            redis.ask(redis::cmd(words[0]).arg(&words[1..])).await
        };
        let mut replica = None;
        let before = ask(&["GET", "lockcore:quorum"]).await;
        match reason {
            Reason::Replica => replica = Some(replica_of(&three.0[0]).await),
            Reason::Rights => drop(ask(&["ACL", "SETUSER", "default", "-info"]).await),
            Reason::Password => {
                ask(&["ACL", "SETUSER", "default", "resetpass", ">another"]).await;
            }
            Reason::Mark => drop(ask(&["SET", "lockcore:quorum", "1 - 0 1 theirs"]).await),
        }
        let locks = three.locks().await;
        let guard = locks.lock("k").await.unwrap_or_else(|error| panic!("{reason:?}: {error}"));
        let mut third = Raw::connect(&three.0[2].url()).await;
        assert!(third.exists("lock:{k}").await, "{reason:?}");
        match reason {
            Reason::Replica => drop(replica.take()),
            Reason::Rights => drop(ask(&["ACL", "SETUSER", "default", "+info"]).await),
            Reason::Password => drop(ask(&["ACL", "SETUSER", "default", "nopass"]).await),
            Reason::Mark => {
                let redis::Value::BulkString(mark) = &before else { panic!("a mark: {before:?}") };
                ask(&["SET", "lockcore:quorum", std::str::from_utf8(mark).expect("text")]).await;
            }
        }
        eventually("it is gained", SOON, async || {
            ask(&["EXISTS", "lock:{k}"]).await == redis::Value::Int(1)
        })
        .await;
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_primary_that_refuses_is_warned_of_once_a_minute() {
    let three = Three::begun().await;
    let _replica = replica_of(&three.0[0]).await;
    let (log, _here) = Log::listen();
    let _locks = three.locks().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let is_warning = |(_, text): &(_, String)| text.contains("does not count");
    let warnings: Vec<_> = log.lines().into_iter().filter(is_warning).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn a_primary_that_does_not_count_is_shown_as_down_with_the_reason() {
    for (has_replica, expected) in [(true, "replicas"), (false, "does not count yet")] {
        let mut three = Three::begun().await;
        let _replica = match has_replica {
            true => Some(replica_of(&three.0[0]).await),
            false => {
                three.0[0].restart();
                None
            }
        };
        let locks = three.locks().await;
        let is_shown = || {
            let servers = locks.status().servers;
            assert!(servers[1].is_connected() && servers[2].is_connected());
            match &servers[0].commands {
                Connection::Down { reason, .. } => reason.contains(expected),
                _ => false,
            }
        };
        assert!(is_shown(), "{:?}", locks.status());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(is_shown(), "{:?}", locks.status());
        if !has_replica {
            eventually("it counts", SOON, async || locks.status().servers[0].is_connected()).await;
        }
    }
}

#[tokio::test]
async fn an_error_without_a_majority_says_why_a_primary_refuses() {
    let mut three = Three::begun().await;
    let _replica = replica_of(&three.0[0]).await;
    let locks = three.locks().await;
    three.0[2].kill();
    let mut text = String::new();
    eventually("it is told", SOON, async || {
        text = locks.try_lock("k").await.err().map(|error| error.to_string()).unwrap_or_default();
        text.contains("1 of 3 primaries") && text.contains("Primary 1 refuses")
    })
    .await;
    assert!(text.contains("replicas") && !text.contains("do not count yet"), "{text}");
}

#[tokio::test]
async fn without_a_majority_at_the_start_there_is_no_locks() {
    let mut three = Three::begun().await;
    three.0[0].kill();
    three.0[2].kill();
    let locks = Locks::builder().lease(MAX_LEASE).connect(three.quorum()).await;
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
        // Longer than a lease: the other holds are renewed.
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
        eventually("no lock key is left", SOON, async || !redis.exists("lock:{k}").await).await;
    }
}

#[test]
fn a_runtime_that_ends_before_it_has_polled_a_task_ends_the_locks() {
    // A runtime that runs only the futures it is blocked on.
    let undriven = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (theirs, ours) = (undriven(), undriven());
    // No primary counts yet, so that locks wait for the tasks that watch the primaries. The last
    // step of connecting starts these tasks, and nothing polls them after that.
    let three = Three::start();
    let locks = theirs.block_on(three.locks());
    drop(theirs);
    let error = ours.block_on(async { timeout(SOON, locks.lock("k")).await }).expect("in time");
    assert_eq!(error.expect_err("it has ended").kind(), LockErrorKind::Closed);
}
