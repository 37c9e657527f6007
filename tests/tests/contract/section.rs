//! `with`: a section under a lock.

use std::future::pending;

use lockcore::LockErrorKind;

use crate::backend::{Backend, ms, soon, until_nothing_is_left, until_waiting};

on_every_store!(
    a_section_runs_under_the_lock_and_releases_it,
    a_section_of_a_request_has_the_options_of_the_request,
    a_section_is_stopped_when_the_hold_is_lost,
    a_section_that_is_dropped_releases_the_lock,
    sections_never_overlap,
);

async fn a_section_runs_under_the_lock_and_releases_it(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let value = a
        .with("key", async |guard| {
            assert!(!guard.is_lost());
            assert!(b.try_lock("key").await.expect("an answer").is_none());
            42
        })
        .await;
    assert_eq!(value.expect("held"), 42);
    let guard = b.try_lock("key").await.expect("an answer").expect("given back");
    guard.release().await.expect("held until now");
}

async fn a_section_of_a_request_has_the_options_of_the_request(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let limited = || b.key("key").wait(ms(50)).lease(ms(600)).max_hold(ms(1_500));
    let section = a.with("key", async |_| limited().with(async |_| ()).await);
    let error = section.await.expect("held").expect_err("held by the other");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let error = soon(limited().with(async |_| pending::<()>().await)).await.expect_err("too long");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    until_nothing_is_left(&a, "key").await;
}

async fn a_section_is_stopped_when_the_hold_is_lost(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let section = a.with("key", async |_| {
        assert!(b.force_release("key").await.expect("an answer"));
        pending::<()>().await;
    });
    let error = soon(section).await.expect_err("lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    until_nothing_is_left(&a, "key").await;
}

async fn a_section_that_is_dropped_releases_the_lock(backend: &Backend) {
    let locks = backend.node().await;
    let other = locks.clone();
    let section =
        tokio::spawn(async move { other.with("key", async |_| pending::<()>().await).await });
    let held = async || !locks.inspect("key").await.expect("an inspection").holders.is_empty();
    lock_tests::eventually("it runs", crate::backend::SOON, held).await;
    section.abort();
    until_nothing_is_left(&locks, "key").await;
}

// S1, S2.
async fn sections_never_overlap(backend: &Backend) {
    let nodes = backend.nodes::<3>().await;
    let running = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let guard = nodes[0].lock("key").await.expect("free");
    let mut tasks = Vec::new();
    for number in 0..12 {
        let locks = nodes[number % 3].clone();
        let running = running.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                // The future of a section that uses its hold is `Send`.
                let section = locks.with("key", async |hold| {
                    let was = running.swap(true, std::sync::atomic::Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    assert!(!hold.is_lost());
                    running.store(false, std::sync::atomic::Ordering::SeqCst);
                    was
                });
                assert!(!section.await.expect("held"), "two at a time");
            }
        }));
    }
    until_waiting(12, &nodes[0], "key").await;
    guard.release().await.expect("held until now");
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    until_nothing_is_left(&nodes[0], "key").await;
}
