//! A killed server that restarts empty on the same port.

use std::sync::Arc;
use std::time::Duration;

use lock_tests::{COUNTER, Raw, RedisServer, eventually};
use lockcore::{HoldState, Locks};
use redis::cmd;
use tokio::time::Instant;

use crate::common::{LONG, SOON, Waiting, connect, connected, held, queued, release, setup, soon};
use crate::witness::Witness;

/// Starts an attempt that visits the witness once granted.
fn visiting(waiting: Waiting, witness: Arc<Witness>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let guard = waiting.await.expect("no panic").expect("the lock in the end");
        let visit = witness.enter(&guard);
        tokio::task::yield_now().await;
        drop(visit);
        release(guard).await;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_server_restarted_empty_all_get_the_lock_one_at_a_time_with_rising_tokens() {
    let mut server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let nodes = [connect(&server.url()).await, connect(&server.url()).await];
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k", LONG).await;
    let witness = Arc::new(Witness::default());
    let visit = witness.enter(&guard);
    let mut visits = Vec::new();
    for number in 0..6 {
        let waiting = queued(&nodes[number % 2], "k", LONG, &mut redis).await;
        visits.push(visiting(waiting, Arc::clone(&witness)));
    }
    server.kill();
    // No lock on a single server survives a restart without the last writes: the holder stops
    // first.
    drop(visit);
    drop(guard);
    server.restart();
    for visit in visits {
        soon("everybody's turn", visit).await.expect("no panic");
    }
    assert_eq!(witness.visits(), 7);
    for locks in nodes.iter().chain([&holder]) {
        eventually("nothing is open", SOON, async || locks.status().releasing == 0).await;
    }
    let mut redis = Raw::connect(&server.url()).await;
    crate::common::nothing_left(&mut redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_a_server_restarted_empty_learns_its_loss_before_its_deadline() {
    let mut server = RedisServer::start();
    let locks = connect(&server.url()).await;
    let guard = held(&locks, "k", Duration::from_secs(9)).await;
    server.kill();
    eventually("it is uncertain", SOON, async || guard.state() == HoldState::Uncertain).await;
    assert!(!guard.is_lost());
    server.restart();
    soon("the loss", guard.lost()).await;
    let deadline = guard.deadline();
    assert!(Instant::now() < deadline, "told only when its deadline had passed");
    assert_eq!(guard.state(), HoldState::Lost);
    let error = soon("the release", guard.release()).await.expect_err("it is lost");
    assert_eq!(error.kind(), lockcore::LockErrorKind::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_notices_that_its_server_went_and_came_back() {
    let mut server = RedisServer::start();
    let locks: Locks = connect(&server.url()).await;
    server.kill();
    let status = || locks.status();
    // Before the next PING of an idle connection would show it.
    let soon_enough = Duration::from_secs(4);
    eventually("the loss of the server", soon_enough, async || {
        let status = status();
        status.commands != lockcore::operate::Connection::Up
            && status.subscription != lockcore::operate::Connection::Up
    })
    .await;
    server.restart();
    connected(&locks).await;
    let guard = soon("an answer", locks.try_lock("k")).await.expect("it works").expect("free");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_a_restarted_server_forgot_are_lost_when_the_connection_is_new() {
    let mut server = RedisServer::start();
    let locks = connect(&server.url()).await;
    let mut guards = Vec::new();
    for number in 0..300 {
        guards.push(held(&locks, &format!("k{number}"), LONG).await);
    }
    server.kill();
    server.restart();
    // Otherwise no request is sent for a third of the lease.
    let all_lost = async || guards.iter().all(|guard| guard.is_lost());
    eventually("all are lost", Duration::from_secs(6), all_lost).await;
}

// A server's clock may be behind its tokens: set back, or the clock of a promoted primary.
#[tokio::test]
async fn a_token_ahead_of_the_clock_is_remembered_when_the_counter_is_lost() {
    const AHEAD_US: u64 = 60_000_000;
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let ahead = setup.redis.time_us().await + AHEAD_US;
    setup.redis.ask::<()>(cmd("SET").arg(COUNTER).arg(ahead)).await;
    let guard = held(&locks, "k", LONG).await;
    let first = guard.fencing_token();
    assert_eq!(first.get(), ahead + 1);
    release(guard).await;
    setup.redis.ask::<()>(cmd("DEL").arg(COUNTER)).await;
    let guard = held(&locks, "k", LONG).await;
    assert!(guard.fencing_token() > first, "{} after {first}", guard.fencing_token());
}
