//! A connection that breaks while a lock is held.

use lock_tests::{Proxy, RedisServer, Request, eventually};
use lockcore::operate::Connection;
use lockcore::{HoldState, LockErrorKind, Locks};
use tokio::time::Instant;

use crate::backend::{SOON, granted, ms, soon};

// L4.
#[tokio::test]
async fn a_hold_without_a_connection_is_uncertain_and_lost_before_its_deadline_passes() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.expect("connected");
    let other = Locks::connect(server.url()).await.expect("connected");
    let guard = locks.key("key").lease(ms(3_000)).lock().await.expect("free");
    assert_eq!(guard.state(), HoldState::Held);
    proxy.refuse().await;
    proxy.cut_all().await;
    let uncertain = async || guard.state() == HoldState::Uncertain;
    eventually("the cut is noticed", SOON, uncertain).await;
    assert!(!guard.is_lost(), "still held for certain");
    assert!(!locks.status().is_connected());
    assert!(matches!(locks.status().commands, Connection::Down { .. }));
    let deadline = guard.deadline();
    let stop = guard.cancellation_token();
    soon(guard.lost()).await;
    assert!(Instant::now() <= deadline + ms(200), "told in time");
    assert!(stop.is_cancelled());
    assert_eq!(guard.state(), HoldState::Lost);
    let next = soon(other.lock("key")).await.expect("its lease ends");
    assert!(Instant::now() >= deadline, "S2: the guard was lost first");
    proxy.accept();
    let error = soon(guard.release()).await.expect_err("lost");
    assert!(matches!(error.kind(), LockErrorKind::Lost | LockErrorKind::Unavailable), "{error}");
    assert!(!next.is_lost());
    next.release().await.expect("held until now");
}

fn is_script_for(request: &Request, member: &str) -> bool {
    request.is_script() && request.mentions(member)
}

// L1, L5: a response wakes the waiting task, however long it was in flight.
#[tokio::test]
async fn a_slow_answer_wakes_any_caller_that_waits_for_it() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::builder().label("slow").connect(proxy.url()).await.expect("connected");
    let other = Locks::connect(server.url()).await.expect("connected");

    // The lock is granted.
    let held_back = proxy.hold_reply(|request| is_script_for(request, ":slow"));
    let waiting = tokio::spawn(locks.lock("key"));
    held_back.struck().await;
    tokio::time::sleep(ms(300)).await;
    held_back.release();
    let guard = granted(waiting).await;

    // The lock is released.
    let held_back = proxy.hold_reply(|request| is_script_for(request, ":slow"));
    let release = tokio::spawn(guard.release());
    held_back.struck().await;
    tokio::time::sleep(ms(300)).await;
    held_back.release();
    soon(release).await.expect("no panic").expect("held until now");

    // The attempt is queued, and granted by a message.
    let guard = other.lock("key").await.expect("free");
    let held_back = proxy.hold_reply(|request| is_script_for(request, ":slow"));
    let waiting = tokio::spawn(locks.lock("key"));
    held_back.struck().await;
    tokio::time::sleep(ms(300)).await;
    held_back.release();
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
}

// L4.
#[tokio::test]
async fn a_hold_whose_connection_comes_back_in_time_is_held_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.expect("connected");
    let guard = locks.key("key").lease(ms(60_000)).lock().await.expect("free");
    let token = guard.fencing_token();
    proxy.refuse().await;
    proxy.cut_all().await;
    let uncertain = async || guard.state() == HoldState::Uncertain;
    eventually("the cut is noticed", SOON, uncertain).await;
    proxy.accept();
    let held = async || guard.state() == HoldState::Held && locks.status().is_connected();
    eventually("the connection is back", SOON, held).await;
    assert_eq!(guard.fencing_token(), token);
    soon(guard.release()).await.expect("held all the time");
}
