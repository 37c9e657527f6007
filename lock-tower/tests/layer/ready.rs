//! The inner service's `poll_ready`: when it is called, and its errors.

use lock_tests::{free, queued};
use lockcore::Locks;
use tower::BoxError;

use crate::support::{Job, job, layer, locked, next, nothing_reaches, send, settle};

#[tokio::test]
async fn who_waits_for_the_lock_occupies_nothing_of_the_inner_service() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    handle.allow(1);
    let guard = locks.lock("a").await.unwrap();
    let _waiting = send(&service, job("a", 1));
    queued(&locks, "a", 1).await;
    let _other = send(&service, job("b", 2)); // takes the only capacity
    let (request, _) = next(&mut handle).await;
    assert_eq!(request.number, 2);
    drop(guard);
}

#[tokio::test]
async fn a_request_waits_with_its_lock_until_the_inner_service_is_ready() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    handle.allow(0);
    let answer = send(&service, job("a", 1));
    nothing_reaches(&mut handle).await;
    assert!(!locks.inspect("a").await.unwrap().holders.is_empty());
    handle.allow(1);
    next(&mut handle).await.1.send_response(1);
    answer.await.unwrap().unwrap();

    handle.allow(0);
    let gone = send(&service, job("a", 2));
    settle().await;
    gone.abort();
    free(&locks, "a").await;
}

#[tokio::test]
async fn a_request_without_a_key_waits_for_the_inner_service_only() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let answer = send(&service, Job::default());
    let (request, respond) = next(&mut handle).await;
    assert!(request.lock.is_none());
    respond.send_response(1);
    answer.await.unwrap().unwrap();

    handle.allow(0);
    let answer = send(&service, Job::default());
    nothing_reaches(&mut handle).await;
    handle.allow(1);
    next(&mut handle).await.1.send_response(2);
    assert_eq!(answer.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_passed_on_and_the_lock_released() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    next(&mut handle).await.1.send_error("broken");
    let error: BoxError = answer.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "broken");
    assert!(locks.try_lock("a").await.unwrap().is_some());

    handle.send_error("closed"); // an error of `poll_ready`
    let error = send(&service, job("a", 2)).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "closed");
    free(&locks, "a").await;
}
