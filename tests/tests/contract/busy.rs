//! The strategies for a busy lock.

use futures_util::poll;
use lockcore::{Demand, LockErrorKind, LockRequest, Locks, WhenBusy};

use crate::backend::{Backend, granted, ms, soon, until_nothing_is_left, until_waiting, wait_as};

on_every_store!(
    one_that_refuses_ends_at_once_and_takes_a_free_lock;
    not_by_a_quorum:
    of_those_that_keep_the_newest_the_newest_waits_and_the_others_end_as_superseded,
    those_that_wait_for_their_turn_keep_it_among_those_that_keep_the_newest,
);

fn newest(locks: &Locks) -> LockRequest {
    locks.key("key").when_busy(WhenBusy::KeepNewest)
}

async fn of_those_that_keep_the_newest_the_newest_waits_and_the_others_end_as_superseded(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    let guard = newest(&a).lock().await.expect("free");
    let mut waiting = tokio::spawn(newest(&b).lock());
    until_waiting(1, &a, "key").await;
    // The next requests come from either process.
    for locks in [&a, &b, &b, &a] {
        let newer = tokio::spawn(newest(locks).lock());
        let older = std::mem::replace(&mut waiting, newer);
        let error = soon(older).await.expect("no panic").expect_err("a newer one waits");
        assert_eq!(error.kind(), LockErrorKind::Superseded);
        assert!(!error.is_retryable() && error.retry_after().is_none(), "the newer one is served");
        until_waiting(1, &a, "key").await;
    }
    assert!(!guard.is_lost());
    guard.release().await.expect("the holder is not touched");
    granted(waiting).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn those_that_wait_for_their_turn_keep_it_among_those_that_keep_the_newest(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let first = wait_as(1, &a, "key").await;
    let older = tokio::spawn(newest(&b).lock());
    until_waiting(2, &a, "key").await;
    let second = wait_as(3, &b, "key").await;
    let newer = tokio::spawn(newest(&a).lock());
    assert_eq!(
        soon(older).await.expect("no panic").expect_err("a newer one waits").kind(),
        LockErrorKind::Superseded
    );
    until_waiting(3, &a, "key").await;
    guard.release().await.expect("held until now");
    for waiting in [first, second, newer] {
        granted(waiting).await.release().await.expect("in their order");
    }
    until_nothing_is_left(&a, "key").await;
}

async fn one_that_refuses_ends_at_once_and_takes_a_free_lock(backend: &Backend) {
    let locks = backend.node().await;
    let refusing = || locks.key("key").wait(ms(60_000)).when_busy(WhenBusy::Refuse);
    let guard = refusing().lock().await.expect("free");
    let error = soon(refusing().lock()).await.expect_err("it is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(soon(refusing().try_lock()).await.expect("answered").is_none());
    guard.release().await.expect("held until now");
    until_nothing_is_left(&locks, "key").await;
}

#[tokio::test(start_paused = true)]
async fn the_default_of_a_locks_is_its_requests_unless_they_say_otherwise() {
    let locks = Locks::builder().when_busy(WhenBusy::Refuse).in_memory().expect("in range");
    let guard = locks.lock("key").await.expect("free");
    let error = locks.lock("key").await.expect_err("it is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let mut waiting = Box::pin(locks.key("key").when_busy(WhenBusy::Wait).lock());
    assert!(poll!(waiting.as_mut()).is_pending());
    drop(guard);
    waiting.await.expect("in its turn").release().await.expect("held until now");
}

// A turn missed by its caller is passed on, and the request enqueues again once it is polled.
#[tokio::test(start_paused = true)]
async fn an_older_one_that_has_missed_its_turn_ends_and_the_newer_one_goes_on_waiting() {
    let locks = Locks::in_memory();
    let guard = newest(&locks).lock().await.expect("free");
    let mut older = Box::pin(newest(&locks).lock());
    assert!(poll!(older.as_mut()).is_pending());
    guard.release().await.expect("held until now");
    let between = newest(&locks).lock().await.expect("the turn of the older one lapses");
    let newer = tokio::spawn(newest(&locks).lock());
    until_waiting(1, &locks, "key").await;
    let error = soon(older).await.expect_err("a newer one waits");
    assert_eq!(error.kind(), LockErrorKind::Superseded);
    between.release().await.expect("held until now");
    granted(newer).await.release().await.expect("held until now");
    until_nothing_is_left(&locks, "key").await;
}

#[tokio::test(start_paused = true)]
async fn a_superseded_set_holds_none_of_its_locks() {
    let locks = Locks::builder().when_busy(WhenBusy::KeepNewest).in_memory().expect("in range");
    let guard = locks.lock("b").await.expect("free");
    let older = tokio::spawn(locks.lock_all(["a", "b"]));
    until_waiting(1, &locks, "b").await;
    let newer = tokio::spawn(locks.lock("b"));
    let error = soon(older).await.expect("no panic").expect_err("a newer one waits");
    assert_eq!(error.kind(), LockErrorKind::Superseded);
    locks.key("a").lock().await.expect("free").release().await.expect("held until now");
    drop(guard);
    granted(newer).await.release().await.expect("held until now");
}

#[tokio::test(start_paused = true)]
async fn reads_permits_and_locks_beside_jvms_or_by_a_quorum_cannot_keep_the_newest() {
    let locks = Locks::in_memory();
    let permits = Demand::permits(1, 2).expect("in range");
    for demand in [Demand::READ, permits] {
        let error = newest(&locks).acquire(demand).await.expect_err("no lock");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains("when_busy is KeepNewest"), "{error}");
        // A request that does not wait supersedes no other.
        assert!(newest(&locks).try_acquire(demand).await.expect("free").is_some());
    }
    let peers = Locks::builder().redisson_peers(true).in_memory().expect("in range");
    for locks in [peers, Locks::builder().in_memory_quorum(3).expect("3 stores")] {
        let error = newest(&locks).lock().await.expect_err("no newest one is known");
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("KeepNewest"), "{error}");
        assert!(newest(&locks).try_lock().await.expect("free").is_some());
    }
}
