//! Requests refused early because they would hardly be served within their wait.

use std::time::Duration;

use futures_util::poll;
use lockcore::{Demand, LockErrorKind, LockRequest, Locks};

use crate::backend::{Backend, granted, ms, soon, until_nothing_is_left, wait_as};

on_every_store!(
    a_request_behind_too_long_a_queue_is_refused_at_once,
    a_queue_limit_below_the_prediction_is_a_full_queue,
);

const HOLD: Duration = Duration::from_millis(10);

/// Holds a lock of the class `count` times, each time for `HOLD` or a little longer.
async fn holds(locks: &Locks, count: usize) {
    for _ in 0..count {
        let guard = early(locks, "before", ms(10_000)).lock().await.expect("free");
        tokio::time::sleep(HOLD).await;
        guard.release().await.expect("held until now");
    }
}

fn early(locks: &Locks, key: &str, wait: Duration) -> LockRequest {
    locks.key(key).class("orders").wait(wait).refuse_early(true)
}

async fn a_request_behind_too_long_a_queue_is_refused_at_once(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    holds(&a, 100).await;
    let guard = b.lock("key").await.expect("free");
    let mut waiting = Vec::new();
    for length in 1..=8 {
        // From another process: the server knows the queue.
        waiting.push(wait_as(length, &b, "key").await);
    }
    let error = early(&a, "key", ms(50)).lock().await.expect_err("8 holds are ahead");
    assert_eq!(error.kind(), LockErrorKind::WaitTooLong);
    assert!(error.retry_after() >= Some(ms(1_000)) && error.is_retryable());
    // A request with enough time waits. Another class has no recorded holds.
    let patient = tokio::spawn(early(&a, "key", ms(60_000)).lock());
    let error = early(&a, "key", ms(50)).class("other").lock().await.expect_err("it is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    guard.release().await.expect("held until now");
    for guard in waiting {
        granted(guard).await.release().await.expect("held until now");
    }
    granted(patient).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_queue_limit_below_the_prediction_is_a_full_queue(backend: &Backend) {
    let locks = backend.node().await;
    holds(&locks, 100).await;
    let guard = locks.lock("key").await.expect("free");
    let waiting = wait_as(1, &locks, "key").await;
    let error = early(&locks, "key", ms(10_000)).queue_limit(1).lock().await.expect_err("full");
    assert_eq!(error.kind(), LockErrorKind::QueueFull);
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
}

/// The maximum number of queued requests for a held lock, each with this wait and demand.
async fn queued(locks: &Locks, wait: Duration, demand: Demand) -> usize {
    let guard = locks.lock("key").await.expect("free");
    let mut queued = Vec::new();
    loop {
        let mut acquire = Box::pin(early(locks, "key", wait).acquire(demand));
        match poll!(acquire.as_mut()) {
            std::task::Poll::Pending if queued.len() < 100 => queued.push(acquire),
            _ => break,
        }
        // In memory the response is there at the second poll.
        if poll!(queued.last_mut().expect("one").as_mut()).is_ready() {
            queued.pop();
            break;
        }
    }
    let count = queued.len();
    drop((queued, guard));
    until_nothing_is_left(locks, "key").await;
    count
}

#[tokio::test(start_paused = true)]
async fn none_is_refused_early_before_a_hundred_holds_are_known() {
    let locks = Locks::in_memory();
    holds(&locks, 99).await;
    assert_eq!(queued(&locks, ms(50), Demand::EXCLUSIVE).await, 100);
    holds(&locks, 1).await;
    assert!(queued(&locks, ms(50), Demand::EXCLUSIVE).await < 10);
}

// The low estimate of 10 ms is 8.192 ms.
#[tokio::test(start_paused = true)]
async fn as_many_may_wait_as_can_be_served_within_the_wait() {
    let locks = Locks::in_memory();
    holds(&locks, 100).await;
    assert_eq!(queued(&locks, ms(50), Demand::EXCLUSIVE).await, 7);
    assert_eq!(queued(&locks, ms(500), Demand::EXCLUSIVE).await, 62);
    let two = |limit| Demand::permits(2, limit).expect("in range");
    assert_eq!(queued(&locks, ms(50), two(8)).await, 25, "four at a time");
    assert_eq!(queued(&locks, ms(50), Demand::READ).await, 100, "all at once");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_how_long_the_queue_is_expected_to_take() {
    let locks = Locks::in_memory();
    holds(&locks, 100).await;
    let guard = locks.lock("key").await.expect("free");
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        let mut acquire = Box::pin(locks.lock("key"));
        assert!(poll!(acquire.as_mut()).is_pending());
        waiting.push(acquire);
    }
    let after = async |wait| {
        let error = soon(early(&locks, "key", wait).queue_limit(10_000).lock()).await;
        let error = error.expect_err("too many are ahead");
        (error.kind(), error.retry_after().expect("later").as_millis())
    };
    // A thousand are ahead, 10 ms each on average: however short its own wait is, and also for a
    // request that waited.
    for (wait, expected) in [
        (ms(100), LockErrorKind::WaitTooLong),
        (ms(2_000), LockErrorKind::WaitTooLong),
        (ms(9_000), LockErrorKind::Timeout),
    ] {
        let (kind, millis) = after(wait).await;
        assert_eq!(kind, expected, "{wait:?}");
        assert!((10_000..11_500).contains(&millis), "{wait:?}: {millis}");
    }
    drop((waiting, guard));
}

// A mean of a minute.
#[tokio::test(start_paused = true)]
async fn a_hint_is_30_s_at_most() {
    let locks = Locks::in_memory();
    for _ in 0..100 {
        let guard = early(&locks, "key", ms(1_000)).lock().await.expect("free");
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(guard);
        until_nothing_is_left(&locks, "key").await;
    }
    let guard = locks.lock("key").await.expect("free");
    let mut first = Box::pin(locks.lock("key"));
    assert!(poll!(first.as_mut()).is_pending());
    let error = early(&locks, "key", ms(1_000)).lock().await.expect_err("one is ahead");
    assert_eq!(error.kind(), LockErrorKind::WaitTooLong);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    drop((first, guard));
}
