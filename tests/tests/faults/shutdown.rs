//! Shutting down a node while the server is away.

use std::time::Duration;

use lock_tests::{Connections, Flow, eventually};
use lockcore::{LockErrorKind, Locks};
use tokio::time::Instant;

use crate::common::{LONG, SOON, held, queued, setup, soon};

const SLACK: Duration = Duration::from_secs(1);

/// Shuts down a node that holds a lock and waits for another, while its connections carry nothing.
async fn shut_down(timeout: Duration, request_timeout: Duration) {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let _theirs = held(&near, "theirs", LONG).await;
    let builder = Locks::builder().request_timeout(request_timeout);
    let far = soon("a connection", builder.connect(setup.proxy.url())).await.expect("accepted");
    let guard = held(&far, "ours", LONG).await;
    let waiting = queued(&far, "theirs", LONG, &mut setup.redis).await;
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    let start = Instant::now();
    let shutdown = soon("the end", far.shutdown(timeout)).await;
    let took = start.elapsed();
    assert_eq!((shutdown.waiters, shutdown.holds, shutdown.unreleased), (1, 1, 2));
    let error = soon("the end", waiting).await.expect("no panic").expect_err("shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
    assert!(guard.is_lost(), "the hold was taken away");
    let error = soon("an answer", far.lock("x")).await.expect_err("shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
    let bound = timeout + request_timeout + SLACK;
    assert!(took < bound, "it took {took:?}, not {bound:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_without_a_server_ends_in_time_and_counts_what_it_could_not_release() {
    shut_down(Duration::from_secs(1), Duration::from_millis(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_that_waits_for_nobody_ends_within_one_request_timeout() {
    shut_down(Duration::ZERO, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_whose_server_was_killed_ends_in_time_and_counts_the_rest() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    setup.server.kill();
    eventually("it notices", SOON, async || !locks.status().is_connected()).await;
    let start = Instant::now();
    let shutdown = soon("the end", locks.shutdown(Duration::from_secs(1))).await;
    assert!(start.elapsed() < Duration::from_secs(3) + SLACK);
    assert_eq!((shutdown.waiters, shutdown.holds, shutdown.unreleased), (0, 1, 1));
    assert!(guard.is_lost());
}
