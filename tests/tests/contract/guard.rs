//! What a guard can do, and how a hold is released.

use lockcore::{HoldState, LockErrorKind};
use tokio::time::Instant;

use crate::backend::{Backend, LONG, granted, ms, soon, until_nothing_is_left, wait_as};

on_every_store!(
    a_release_frees_the_lock_once_and_for_all,
    a_lock_is_released_with_the_last_of_several_guards,
    a_drop_releases_and_hands_over,
    a_drop_on_a_thread_without_a_runtime_releases,
    a_release_that_nobody_awaits_runs_all_the_same,
    a_lost_hold_cannot_be_entered_again,
    each_guard_of_a_lost_hold_reports_the_loss_with_its_release,
    a_leaked_hold_stays_until_its_lease_ends_and_nothing_renews_it,
    a_leak_tells_the_other_guards_that_they_have_lost,
    a_guard_tells_its_key_token_state_and_deadline,
    a_panic_releases,
);

// S6.
async fn a_release_frees_the_lock_once_and_for_all(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let mut last = None;
    for _ in 0..10 {
        let guard = a.lock("key").await.expect("free");
        let token = guard.fencing_token();
        assert!(last < Some(token), "tokens rise");
        last = Some(token);
        guard.release().await.expect("held until now");
        let other = b.try_lock("key").await.expect("an answer").expect("free at once");
        assert!(last < Some(other.fencing_token()));
        last = Some(other.fencing_token());
        other.release().await.expect("held until now");
    }
    until_nothing_is_left(&a, "key").await;
}

// S6.
async fn a_lock_is_released_with_the_last_of_several_guards(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let first = a.lock("key").await.expect("free");
    let second = first.reenter().expect("held");
    let third = second.reenter().expect("held");
    assert_eq!((first.hold_count(), third.hold_count()), (3, 3));
    assert_eq!(first.fencing_token(), third.fencing_token());
    let waiting = wait_as(1, &b, "key").await;
    first.release().await.expect("given up");
    drop(second);
    assert_eq!(third.hold_count(), 1);
    assert!(!third.is_lost() && !waiting.is_finished());
    assert!(b.try_lock("key").await.expect("an answer").is_none());
    third.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_drop_releases_and_hands_over(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    drop(guard);
    drop(granted(waiting).await);
    until_nothing_is_left(&b, "key").await;
    until_nothing_is_left(&a, "key").await;
}

async fn a_drop_on_a_thread_without_a_runtime_releases(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    let guard = soon(b.lock("key")).await.expect("given back");
    guard.release().await.expect("held until now");
}

async fn a_release_that_nobody_awaits_runs_all_the_same(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    drop(guard.release());
    let guard = soon(b.lock("key")).await.expect("given back");
    guard.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_lost_hold_cannot_be_entered_again(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    assert!(b.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await;
    assert_eq!(guard.reenter().expect_err("lost").kind(), LockErrorKind::Lost);
    assert_eq!(guard.hold_count(), 1);
}

async fn each_guard_of_a_lost_hold_reports_the_loss_with_its_release(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    let other = guard.reenter().expect("held");
    assert!(locks.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await;
    for guard in [guard, other] {
        assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    }
}

async fn a_leaked_hold_stays_until_its_lease_ends_and_nothing_renews_it(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let started = Instant::now();
    let guard = a.key("key").lease(ms(900)).lock().await.expect("free");
    let until = guard.leak();
    assert!(until > started + ms(500) && until <= Instant::now() + ms(900));
    assert_eq!(a.status().holding, 0);
    assert!(b.try_lock("key").await.expect("an answer").is_none());
    let guard = soon(b.lock("key")).await.expect("its lease ends");
    assert!(Instant::now() >= until, "taken until then for certain");
    guard.release().await.expect("held until now");
}

async fn a_leak_tells_the_other_guards_that_they_have_lost(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let other = guard.reenter().expect("held");
    let third = guard.reenter().expect("held");
    let _until = guard.leak();
    soon(other.lost()).await;
    assert!(other.is_lost());
    assert_eq!(other.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    drop(third);
    lock_tests::eventually("nothing is on its way", crate::backend::SOON, async || {
        a.status().releasing == 0
    })
    .await;
    assert!(b.try_lock("key").await.expect("an answer").is_none(), "it stays taken");
}

async fn a_guard_tells_its_key_token_state_and_deadline(backend: &Backend) {
    let locks = backend.node().await;
    let before = Instant::now();
    let guard = locks.lock("50% {off}").await.expect("free");
    assert_eq!(guard.key(), "50% {off}");
    assert_eq!(guard.name(), backend.named("50%25 %7Boff%7D"));
    assert_eq!(guard.state(), HoldState::Held);
    assert!(!guard.is_lost() && !guard.cancellation_token().is_cancelled());
    // S2: the deadline is before the lease end on the server.
    assert!(guard.deadline() > before && guard.deadline() <= before + LONG);
    let seen = locks.inspect("50% {off}").await.expect("an inspection");
    assert!(guard.deadline() < Instant::now() + seen.holders[0].lease_left);
    guard.release().await.expect("held until now");
    until_nothing_is_left(&locks, "50% {off}").await;
}

async fn a_panic_releases(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("as by a bug")); // without its message on stderr
    });
    assert!(panicked.await.expect_err("it panics").is_panic());
    let guard = soon(b.lock("key")).await.expect("given back");
    guard.release().await.expect("held until now");
}
