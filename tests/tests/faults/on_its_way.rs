//! Requests in flight when a node shuts down or a polling runtime ends, and callers on another
//! runtime than the node's.

use std::thread;
use std::time::Duration;

use lockcore::{LockError, LockErrorKind, LockGuard, Locks};

use crate::common::{LONG, held, nothing_left, setup, soon};
use crate::script::runs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_acquired_inspected_and_released_by_a_caller_on_another_runtime() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let another = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async move {
            locks.ping().await?;
            let guard = locks.lock("k").await?;
            assert!(!locks.inspect("k").await?.holders.is_empty());
            let late = locks.lock_timeout("k", Duration::from_millis(50)).await;
            assert_eq!(late.expect_err("held").kind(), LockErrorKind::Timeout);
            guard.release().await?;
            let guard = locks.lock("k").await?;
            assert!(locks.force_release("k").await?);
            drop(guard);
            Ok::<(), LockError>(())
        })
    });
    let joined = tokio::task::spawn_blocking(move || another.join());
    soon("the end", joined).await.expect("no panic").expect("no panic").expect("no error");
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_polled_and_ended_leaves_nothing_of_its_acquire() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let late = setup.proxy.hold_reply(runs("lock"));
    let its_own = locks.clone();
    let other = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let _ = tokio::time::timeout(Duration::from_millis(20), its_own.lock("k")).await;
        });
    });
    soon("the acquire", late.struck()).await;
    let joined = tokio::task::spawn_blocking(move || other.join());
    soon("the other runtime", joined).await.expect("no panic").expect("no panic");
    late.release();
    nothing_left(&mut setup.redis, "k").await;
    lock_tests::eventually("none waits", crate::common::SOON, async || locks.status().waiting == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_releases_what_an_acquire_on_its_way_was_granted() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let late = setup.proxy.hold_reply(runs("lock"));
    let waiting = tokio::spawn(locks.lock("k"));
    soon("the acquire", late.struck()).await;
    let shutdown = tokio::spawn(async move { locks.shutdown(Duration::ZERO).await });
    let refused = soon("the attempt's end", waiting).await.expect("no panic");
    assert!(refused.is_err(), "it was ended");
    late.release();
    let shutdown = soon("the shutdown", shutdown).await.expect("no panic");
    assert_eq!((shutdown.waiters, shutdown.unreleased), (1, 0));
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_a_release_on_its_way() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let guard = held(&locks, "k", LONG).await;
    let late = setup.proxy.hold_request(runs("unlock"));
    let releasing = tokio::spawn(guard.release());
    soon("the release", late.struck()).await;
    let shutdown = tokio::spawn(async move { locks.shutdown(Duration::from_secs(1)).await });
    // The time for an event that must not happen: a longer wait can only find more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!shutdown.is_finished(), "the release has not been answered");
    late.release();
    let shutdown = soon("the shutdown", shutdown).await.expect("no panic");
    assert_eq!((shutdown.holds, shutdown.unreleased), (0, 0));
    soon("the release", releasing).await.expect("no panic").expect("it was held until then");
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boundless_durations_are_bounds_like_others() {
    let mut setup = setup().await;
    let locks: Locks = setup.direct().await;
    let guard: LockGuard =
        soon("the lock", locks.key("k").max_hold(Duration::MAX).wait(Duration::MAX).lock())
            .await
            .expect("the lock is free");
    assert!(!guard.is_lost());
    soon("the release", guard.release()).await.expect("held until now");
    soon("the shutdown", locks.shutdown(Duration::MAX)).await;
    nothing_left(&mut setup.redis, "k").await;
}
