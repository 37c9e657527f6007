//! Locks that are lost while the handler runs.

use std::time::Duration;

use lock_tests::{Connections, Flow, LIMIT, Proxy, RedisServer, free, queued};
use lock_tower::{Cause, LockError, OnLost};
use lockcore::Locks;
use tower::BoxError;

use crate::support::{job, layer, locked, next, nothing_reaches, send, settle};

fn cause(error: &BoxError) -> Cause {
    error.downcast_ref::<LockError>().expect("an error of the lock").cause()
}

#[tokio::test]
async fn a_handler_is_stopped_when_its_hold_is_lost() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    let (request, respond) = next(&mut handle).await;
    let lock = request.lock.unwrap();
    assert!(!lock.is_lost());
    locks.force_release("a").await.unwrap();
    assert_eq!(cause(&answer.await.unwrap().unwrap_err()), Cause::Lost);
    assert!(lock.is_lost());
    assert!(lock.reenter().is_err());
    respond.send_response(1); // nobody receives it
}

#[tokio::test]
async fn a_handler_that_may_continue_sees_the_loss_and_answers() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks).on_lost(OnLost::Continue));
    let answer = send(&service, job("a", 1));
    let (request, respond) = next(&mut handle).await;
    let lock = request.lock.unwrap();
    let token = lock.cancellation_token();
    locks.force_release("a").await.unwrap();
    tokio::time::timeout(LIMIT, lock.lost()).await.expect("the handle tells of it");
    assert!(token.is_cancelled());
    respond.send_response(7);
    assert_eq!(answer.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn an_answer_is_replaced_when_the_release_finds_the_hold_lost() {
    let server = RedisServer::start();
    let operator = Locks::connect(server.url()).await.unwrap();
    for (on_lost, in_background) in
        [(OnLost::Stop, false), (OnLost::Continue, false), (OnLost::Stop, true)]
    {
        let proxy = Proxy::start(server.address());
        let locks = Locks::connect(proxy.url()).await.unwrap();
        let layer = layer(&locks).on_lost(on_lost);
        let layer = layer.release_in_background(in_background);
        let (service, mut handle) = locked(layer);
        let answer = send(&service, job("a", 1));
        let (request, respond) = next(&mut handle).await;
        proxy.freeze(Connections::Subscriptions, Flow::Replies).await; // the holder is not notified
        operator.force_release("a").await.unwrap();
        assert!(!request.lock.unwrap().is_lost());
        respond.send_response(7);
        let answer = answer.await.unwrap();
        if on_lost == OnLost::Stop && !in_background {
            assert_eq!(cause(&answer.unwrap_err()), Cause::Lost);
        } else {
            assert_eq!(answer.unwrap(), 7, "{on_lost:?}, in background: {in_background}");
        }
    }
}

#[tokio::test]
async fn a_hold_lost_before_the_inner_service_is_ready_never_calls_it() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    handle.allow(0);
    let answer = send(&service, job("a", 1));
    nothing_reaches(&mut handle).await;
    locks.force_release("a").await.unwrap();
    handle.allow(1);
    assert_eq!(cause(&answer.await.unwrap().unwrap_err()), Cause::Lost);
    nothing_reaches(&mut handle).await;
}

#[tokio::test]
async fn a_hold_lost_while_the_inner_service_is_not_ready_is_noticed_at_once() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    handle.allow(0);
    let answer = send(&service, job("a", 1));
    nothing_reaches(&mut handle).await;
    locks.force_release("a").await.unwrap();
    let answer = tokio::time::timeout(LIMIT, answer).await.expect("though it never gets ready");
    assert_eq!(cause(&answer.unwrap().unwrap_err()), Cause::Lost);
}

#[tokio::test]
async fn a_hold_lost_before_the_inner_service_is_ready_does_not_keep_work_that_may_continue() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks).on_lost(OnLost::Continue));
    handle.allow(0);
    let answer = send(&service, job("a", 1));
    nothing_reaches(&mut handle).await;
    locks.force_release("a").await.unwrap();
    nothing_reaches(&mut handle).await;
    handle.allow(1);
    let (request, respond) = next(&mut handle).await;
    assert!(request.lock.unwrap().is_lost());
    respond.send_response(7);
    assert_eq!(answer.await.unwrap().unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_stops_the_handler_and_the_next_has_the_lock_at_once() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks).max_hold(Duration::from_secs(3)));
    let start = tokio::time::Instant::now();
    let first = send(&service, job("a", 1));
    let (_request, _respond) = next(&mut handle).await;
    let second = send(&service, job("a", 2));
    queued(&locks, "a", 1).await;
    assert_eq!(cause(&first.await.unwrap().unwrap_err()), Cause::Lost);
    next(&mut handle).await.1.send_response(2);
    assert!(start.elapsed() < Duration::from_millis(3_100), "{:?}", start.elapsed());
    second.await.unwrap().unwrap();
    free(&locks, "a").await;
}

#[tokio::test]
async fn what_is_lost_after_an_early_release_is_not_the_requests() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    let (request, respond) = next(&mut handle).await;
    settle().await; // the layer watches by now
    let lock = request.lock.unwrap();
    let kept = lock.reenter().unwrap();
    lock.release().await.unwrap();
    locks.force_release("a").await.unwrap();
    tokio::time::timeout(LIMIT, kept.lost()).await.unwrap();
    settle().await; // it may not be stopped meanwhile
    respond.send_response(7);
    assert_eq!(answer.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn a_release_after_a_loss_does_not_hide_the_loss_if_another_guard_shares_the_lock() {
    let locks = Locks::in_memory();
    let lease = Duration::from_millis(300);
    let (service, mut handle) = locked(layer(&locks).fixed_lease(lease));
    let answer = send(&service, job("a", 1));
    let (request, respond) = next(&mut handle).await;
    let lock = request.lock.unwrap();
    let kept = lock.reenter().unwrap();
    // A handler that blocks its thread, so that the layer does not learn of the loss meanwhile.
    std::thread::sleep(lease + Duration::from_millis(100));
    assert_eq!(lock.release().await.unwrap_err().cause(), Cause::Lost);
    respond.send_response(7);
    assert_eq!(cause(&answer.await.unwrap().unwrap_err()), Cause::Lost);
    drop(kept);
}

#[tokio::test]
async fn a_loss_that_the_handler_s_release_finds_stops_work_though_the_handler_ignores_it() {
    let server = RedisServer::start();
    let operator = Locks::connect(server.url()).await.unwrap();
    for on_lost in [OnLost::Stop, OnLost::Continue] {
        let proxy = Proxy::start(server.address());
        let locks = Locks::connect(proxy.url()).await.unwrap();
        let (service, mut handle) = locked(layer(&locks).on_lost(on_lost));
        let answer = send(&service, job("a", 1));
        let (request, respond) = next(&mut handle).await;
        proxy.freeze(Connections::Subscriptions, Flow::Replies).await; // the holder is not notified
        operator.force_release("a").await.unwrap();
        let lock = request.lock.unwrap();
        assert!(!lock.is_lost());
        assert_eq!(lock.release().await.unwrap_err().cause(), Cause::Lost);
        respond.send_response(7);
        let answer = answer.await.unwrap();
        match on_lost {
            OnLost::Stop => assert_eq!(cause(&answer.unwrap_err()), Cause::Lost),
            _ => assert_eq!(answer.unwrap(), 7),
        }
    }
}
