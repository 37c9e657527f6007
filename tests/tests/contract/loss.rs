//! How a guard is notified that its hold is lost.

use futures_util::FutureExt as _;
use lockcore::{HoldState, LockErrorKind};

use crate::backend::{Backend, granted, ms, soon, until_nothing_is_left, wait_as};

on_every_store!(
    a_forced_off_guard_is_told_at_once_and_the_next_gets_the_lock,
    a_force_release_of_a_free_lock_releases_nothing,
    a_lost_guard_stays_lost_and_its_drop_takes_nothing_from_the_next,
    a_guard_that_says_it_is_lost_says_so_in_every_way,
);

// Finding 10.
async fn a_forced_off_guard_is_told_at_once_and_the_next_gets_the_lock(backend: &Backend) {
    let [a, b, operator] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    let stop = guard.cancellation_token();
    let mut lost = std::pin::pin!(guard.lost_owned());
    assert!(lost.as_mut().now_or_never().is_none());
    assert!(operator.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await; // its lease is far from its end
    soon(lost).await;
    soon(stop.cancelled()).await;
    assert_eq!((guard.is_lost(), guard.state()), (true, HoldState::Lost));
    let next = granted(waiting).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    assert!(!next.is_lost());
    next.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_force_release_of_a_free_lock_releases_nothing(backend: &Backend) {
    let locks = backend.node().await;
    assert!(!locks.force_release("key").await.expect("an answer"));
    until_nothing_is_left(&locks, "key").await;
}

// S4.
async fn a_lost_guard_stays_lost_and_its_drop_takes_nothing_from_the_next(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let lost = a.lock("key").await.expect("free");
    assert!(a.force_release("key").await.expect("an answer"));
    soon(lost.lost()).await;
    let next = b.lock("key").await.expect("free");
    drop(lost);
    let idle = async || a.status().releasing == 0;
    lock_tests::eventually("nothing is on its way", crate::backend::SOON, idle).await;
    assert!(a.try_lock("key").await.expect("an answer").is_none());
    next.release().await.expect("held until now");
}

async fn a_guard_that_says_it_is_lost_says_so_in_every_way(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.key("key").fixed_lease(ms(100)).lock().await.expect("free");
    // No task runs meanwhile, so that only the clock can show the loss.
    std::thread::sleep(ms(150));
    assert!(guard.is_lost());
    assert!(guard.lost().now_or_never().is_some());
    assert!(guard.cancellation_token().is_cancelled());
}
