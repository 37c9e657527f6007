//! Requests that are dropped while they wait or run.

use std::future::Future as _;
use std::task::{Context, Waker};

use lock_tests::{free, queued};
use lockcore::Locks;
use tower::Service as _;

use crate::support::{job, layer, locked, next, nothing_reaches, send, settle};

#[tokio::test]
async fn dropped_while_it_queues_it_leaves_and_the_order_stays() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let guard = locks.lock("a").await.unwrap();
    let mut answers = Vec::new();
    for number in 0..3 {
        answers.push(send(&service, job("a", number)));
        queued(&locks, "a", number + 1).await;
    }
    answers[1].abort();
    queued(&locks, "a", 2).await;
    drop(guard);
    for number in [0, 2] {
        let (request, respond) = next(&mut handle).await;
        assert_eq!(request.number, number);
        respond.send_response(0);
    }
}

#[tokio::test]
async fn dropped_with_a_grant_it_has_not_seen_it_passes_the_lock_on() {
    let locks = Locks::in_memory();
    let (mut service, mut handle) = locked(layer(&locks));
    let guard = locks.lock("a").await.unwrap();
    let mut first = Box::pin(service.call(job("a", 1)));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    queued(&locks, "a", 1).await;
    let second = send(&service, job("a", 2));
    queued(&locks, "a", 2).await;
    guard.release().await.unwrap();
    settle().await; // it is granted, and was not polled
    nothing_reaches(&mut handle).await;
    drop(first);
    let (request, respond) = next(&mut handle).await;
    assert_eq!(request.number, 2);
    respond.send_response(2);
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn dropped_while_it_runs_it_releases_the_lock() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    let (_request, respond) = next(&mut handle).await;
    answer.abort();
    free(&locks, "a").await;
    drop(respond);
}

#[tokio::test]
async fn dropped_unpolled_it_has_asked_for_nothing() {
    let locks = Locks::in_memory();
    let (mut service, _handle) = locked(layer(&locks));
    let call = service.call(job("a", 1));
    assert!(locks.try_lock("a").await.unwrap().is_some());
    drop(call);
    free(&locks, "a").await;
}
