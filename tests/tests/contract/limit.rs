//! The caller's limits: times, numbers, and the supported options and names.

use std::time::Duration;

use lock_tests::{CommandStats, Raw};
use lockcore::{LockErrorKind, LockOptions, Locks};
use tokio::time::Instant;

use crate::backend::{
    Backend, granted, is_free, ms, until_nothing_is_left, until_waiting, wait_as, waiters,
};

on_every_store!(
    a_wait_that_is_over_ends_with_timeout_and_leaves_nothing,
    a_wait_limit_does_not_end_a_hold,
    a_wait_of_zero_asks_once,
    a_queue_as_long_as_allowed_is_full_for_who_allows_no_more,
    as_many_as_may_wait_do_and_one_more_is_refused,
    a_place_to_wait_is_freed_whatever_ends_the_wait,
    a_place_to_wait_is_freed_by_a_shutdown,
    a_bad_name_is_refused_by_everything_that_takes_one;
    not_on_a_cluster:
    an_option_out_of_its_range_is_refused_and_named,
);

async fn a_wait_that_is_over_ends_with_timeout_and_leaves_nothing(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let started = Instant::now();
    let error = b.lock_timeout("key", ms(200)).await.expect_err("it is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(error.is_retryable());
    assert!(started.elapsed() >= ms(200));
    lock_tests::eventually("it has left", crate::backend::SOON, async || {
        waiters(&a, "key").await == 0
    })
    .await;
    guard.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}

async fn a_wait_limit_does_not_end_a_hold(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.lock_timeout("key", ms(100)).await.expect("free");
    tokio::time::sleep(ms(200)).await; // a longer wait can only find more
    assert!(!guard.is_lost());
    guard.release().await.expect("held until now");
}

async fn a_wait_of_zero_asks_once(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.key("key").wait(Duration::ZERO).lock().await.expect("free");
    let error = b.key("key").wait(Duration::ZERO).lock().await.expect_err("it is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let waiting = wait_as(1, &b, "key").await;
    let error = b.lock_timeout("key", Duration::ZERO).await.expect_err("it is held");
    assert_eq!((error.kind(), waiters(&a, "key").await), (LockErrorKind::Timeout, 1));
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
}

async fn a_queue_as_long_as_allowed_is_full_for_who_allows_no_more(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.key("key").queue_limit(1).lock().await.expect("a free lock is never full");
    let waiting = wait_as(1, &b, "key").await;
    let error = a.key("key").queue_limit(1).lock().await.expect_err("one waits");
    assert_eq!(error.kind(), LockErrorKind::QueueFull);
    assert!(error.is_retryable());
    let other = tokio::spawn(a.key("key").queue_limit(2).lock());
    until_waiting(2, &a, "key").await;
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
    granted(other).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn as_many_as_may_wait_do_and_one_more_is_refused(backend: &Backend) {
    let near = backend.node().await;
    let far = backend.build(Locks::builder().max_waiting(2)).await;
    let guards = [near.lock("one").await.expect("free"), near.lock("two").await.expect("free")];
    let waiting = [wait_as(1, &far, "one").await, wait_as(1, &far, "two").await];
    let error = far.lock("one").await.expect_err("two wait");
    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    assert!(
        error.is_retryable() && error.to_string().contains("max_waiting: 2 attempts"),
        "{error}"
    );
    let error = far.lock("free").await.expect_err("nothing is sent, so it is not known to be free");
    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    // A caller that tries once does not wait, and a wait elsewhere belongs to another Locks.
    assert!(far.try_lock("one").await.expect("an answer").is_none());
    drop(far.try_lock("free").await.expect("an answer").expect("free"));
    let elsewhere = wait_as(2, &near, "one").await;
    assert_eq!((waiters(&near, "one").await, waiters(&near, "two").await), (2, 1));
    for guard in guards {
        guard.release().await.expect("held until now");
    }
    for waiting in waiting {
        granted(waiting).await.release().await.expect("held until now");
    }
    granted(elsewhere).await.release().await.expect("held until now");
    until_nothing_is_left(&far, "one").await;
}

async fn a_place_to_wait_is_freed_whatever_ends_the_wait(backend: &Backend) {
    let near = backend.node().await;
    let far = backend.build(Locks::builder().max_waiting(1)).await;
    let guard = near.lock("key").await.expect("free");
    let full = async |when: &str| {
        let error = far.lock_timeout("other", ms(500)).await.expect_err(when);
        assert_eq!(error.kind(), LockErrorKind::QueueFull, "{when}: {error}");
    };
    let kind = async |attempt: lockcore::Acquire| attempt.await.expect_err("it is held").kind();

    assert_eq!(kind(far.lock_timeout("key", ms(50))).await, LockErrorKind::Timeout);
    until_waiting(0, &near, "key").await;
    let waiting = wait_as(1, &far, "key").await;
    full("while one waits").await;
    waiting.abort();
    let _ = waiting.await;
    until_waiting(0, &near, "key").await;
    let _never_polled = far.lock("key");
    assert_eq!(kind(far.lock("a\nb")).await, LockErrorKind::InvalidKey);
    let queued = wait_as(1, &near, "key").await;
    assert_eq!(kind(far.key("key").queue_limit(1).lock()).await, LockErrorKind::QueueFull);
    assert!(waiters(&near, "key").await == 1, "refused by the lock's own limit");
    let waiting = wait_as(2, &far, "key").await;
    full("while one waits again").await;
    guard.release().await.expect("held until now");
    granted(queued).await.release().await.expect("held until now");
    let held = granted(waiting).await;
    // A hold does not count as a wait.
    let other = far.lock("other").await.expect("free");
    held.release().await.expect("held until now");
    other.release().await.expect("held until now");
    until_nothing_is_left(&far, "key").await;
}

async fn a_place_to_wait_is_freed_by_a_shutdown(backend: &Backend) {
    let near = backend.node().await;
    let far = backend.build(Locks::builder().max_waiting(1)).await;
    let guard = near.lock("key").await.expect("free");
    let waiting = wait_as(1, &far, "key").await;
    far.shutdown(Duration::ZERO).await;
    let error = waiting.await.expect("no panic").expect_err("shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    // The error is not QueueFull, which would be checked first.
    assert_eq!(far.lock("key").await.expect_err("shut down").kind(), LockErrorKind::Closed);
    guard.release().await.expect("held until now");
}

async fn a_bad_name_is_refused_by_everything_that_takes_one(backend: &Backend) {
    let locks = backend.node().await;
    for name in [String::new(), "x".repeat(513), "a\nb".to_owned(), "nul\0".to_owned()] {
        let kinds = [
            locks.lock(&name).await.expect_err("bad").kind(),
            locks.try_lock(&name).await.expect_err("bad").kind(),
            locks.lock_timeout(&name, ms(100)).await.expect_err("bad").kind(),
            locks.key(&name).lock().await.expect_err("bad").kind(),
            locks.inspect(&name).await.expect_err("bad").kind(),
            locks.force_release(&name).await.expect_err("bad").kind(),
            locks.with(&name, async |_| ()).await.expect_err("bad").kind(),
        ];
        assert_eq!(kinds, [LockErrorKind::InvalidKey; 7], "{name:?}");
    }
    let guard = locks.lock("x".repeat(512)).await.expect("as long as allowed");
    guard.release().await.expect("held until now");
}

async fn an_option_out_of_its_range_is_refused_and_named(backend: &Backend) {
    let locks = backend.node().await;
    let bad = [
        ("lease", LockOptions::new().lease(LockOptions::MIN_LEASE - ms(1))),
        ("lease", LockOptions::new().fixed_lease(LockOptions::MAX_LEASE + ms(1))),
        ("queue_limit", LockOptions::new().queue_limit(0)),
        ("max_hold", LockOptions::new().max_hold(ms(1))),
    ];
    for (option, options) in bad {
        let error = locks.key("key").options(options).lock().await.expect_err("out of range");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains(option), "{error}");
        let error = locks.key("key").options(options).try_lock().await.expect_err("out of range");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        let error = backend.try_build(Locks::builder().defaults(options)).await;
        assert_eq!(error.expect_err("out of range").kind(), LockErrorKind::InvalidOption);
    }
    for builder in [
        Locks::builder().namespace("a:b"),
        Locks::builder().namespace(""),
        Locks::builder().channel_prefix("{x}"),
        Locks::builder().request_timeout(ms(49)),
        Locks::builder().max_waiting(0),
    ] {
        let error = backend.try_build(builder).await.expect_err("out of range");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
    }
    assert!(is_free(&locks, "key").await);
}

#[tokio::test]
async fn what_is_refused_for_its_name_or_options_is_never_sent() {
    let backend = Backend::redis();
    let Backend::Redis(server) = &backend else { unreachable!() };
    let locks = backend.node().await;
    let mut redis = Raw::connect(&server.url()).await;
    let before = CommandStats::read(&mut redis).await;
    for _ in 0..10 {
        assert!(locks.lock("a\nb").await.is_err());
        assert!(locks.inspect("").await.is_err());
        assert!(locks.key("key").queue_limit(0).lock().await.is_err());
        assert!(locks.key("key").lease(ms(1)).try_lock().await.is_err());
    }
    locks.ping().await.expect("an answer"); // behind all sent requests
    let sent = CommandStats::read(&mut redis).await.since(&before);
    assert_eq!((sent.calls("evalsha"), sent.calls("eval")), (0, 0));
}
