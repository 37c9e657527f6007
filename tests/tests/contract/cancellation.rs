//! Dropped futures leave nothing behind.

use std::pin::pin;

use futures_util::poll;
use lockcore::Locks;

use crate::backend::{Backend, granted, ms, soon, until_nothing_is_left, until_waiting, wait_as};

on_every_store!(
    an_acquisition_of_a_free_lock_dropped_after_any_poll_leaves_nothing,
    an_acquisition_of_a_held_lock_dropped_after_any_poll_leaves_the_others_in_order,
    a_try_dropped_after_any_poll_leaves_nothing,
    an_acquisition_dropped_in_the_moment_of_its_grant_passes_the_lock_on;
    not_by_a_quorum:
    // Nothing is held before the quorum acquisition is polled.
    an_acquisition_dropped_unread_after_its_grant_passes_the_lock_on,
);

/// The number of polls, more than an acquisition needs.
const POLLS: usize = 8;

/// Polls up to `polls` times, with time for the store in between, then drops.
async fn poll_and_drop<F: Future>(acquire: F, polls: usize) {
    let mut acquire = pin!(acquire);
    for number in 0..polls {
        if poll!(acquire.as_mut()).is_ready() {
            return;
        }
        // Every other round does not wait, so that the drop meets each state in between as well.
        if number % 2 == 0 {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(ms(3)).await;
        }
    }
}

// L3.
async fn an_acquisition_of_a_free_lock_dropped_after_any_poll_leaves_nothing(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    for polls in 0..POLLS {
        poll_and_drop(a.lock("key"), polls).await;
        let guard = soon(b.lock("key")).await.expect("given back");
        guard.release().await.expect("held until now");
        until_nothing_is_left(&a, "key").await;
    }
}

// L3.
async fn a_try_dropped_after_any_poll_leaves_nothing(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    for polls in 0..POLLS {
        poll_and_drop(a.try_lock("key"), polls).await;
        until_nothing_is_left(&a, "key").await;
        let guard = b.lock("key").await.expect("free");
        poll_and_drop(a.try_lock("key"), polls).await;
        guard.release().await.expect("held until now");
        until_nothing_is_left(&a, "key").await;
    }
}

// L3, F1.
async fn an_acquisition_of_a_held_lock_dropped_after_any_poll_leaves_the_others_in_order(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    for polls in 0..POLLS {
        let guard = a.lock("key").await.expect("free");
        let first = wait_as(1, &b, "key").await;
        poll_and_drop(a.lock("key"), polls).await;
        until_waiting(1, &a, "key").await;
        let second = wait_as(2, &a, "key").await;
        poll_and_drop(b.lock("key"), polls).await;
        guard.release().await.expect("held until now");
        let first = granted(first).await;
        assert!(!second.is_finished());
        first.release().await.expect("held until now");
        granted(second).await.release().await.expect("held until now");
        until_nothing_is_left(&a, "key").await;
        until_nothing_is_left(&b, "key").await;
    }
}

// L3.
async fn an_acquisition_dropped_in_the_moment_of_its_grant_passes_the_lock_on(backend: &Backend) {
    let nodes = backend.nodes::<3>().await;
    for round in 0..40 {
        let guard = nodes[0].lock("key").await.expect("free");
        let leaver = wait_as(1, &nodes[1], "key").await;
        let next = wait_as(2, &nodes[2], "key").await;
        let release = tokio::spawn(guard.release());
        for _ in 0..round % 10 {
            tokio::task::yield_now().await;
        }
        leaver.abort(); // before, in or after the moment
        soon(release).await.expect("no panic").expect("held until now");
        drop(leaver.await); // with its guard, if it got one
        granted(next).await.release().await.expect("held until now");
        until_nothing_is_left(&nodes[1], "key").await;
    }
}

// L3: the grant has arrived, but no task has polled.
async fn an_acquisition_dropped_unread_after_its_grant_passes_the_lock_on(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let mut unread = Box::pin(b.lock("key"));
    assert!(poll!(unread.as_mut()).is_pending());
    until_waiting(1, &a, "key").await;
    let next = wait_as(2, &a, "key").await;
    guard.release().await.expect("held until now");
    let has_arrived = async || b.status().holding == 1;
    lock_tests::eventually("the grant has arrived", crate::backend::SOON, has_arrived).await;
    drop(unread);
    granted(next).await.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}

#[tokio::test]
async fn a_future_that_was_never_polled_asks_for_nothing() {
    let locks = Locks::in_memory();
    drop(locks.lock("key"));
    let unpolled = locks.lock("key");
    let guard = locks.try_lock("key").await.expect("an answer").expect("free");
    drop(unpolled);
    guard.release().await.expect("held until now");
}
