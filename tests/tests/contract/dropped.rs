//! A `Locks` whose last handle is dropped leaves no task and no connection.

use std::future::Future;
use std::pin::Pin;

use futures_util::poll;
use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::{LockGuard, LockOptions, Locks, MemoryStore};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::backend::{Backend, LONG, SOON, ms};

on_every_store!(
    a_locks_that_is_dropped_around_its_last_guard_leaves_nothing,
    a_locks_that_is_dropped_after_a_waiter_leaves_nothing;
    not_by_a_quorum:
    a_locks_that_is_dropped_with_reads_and_permits_leaves_nothing,
);

const ROUNDS: usize = 50;

/// The number of unfinished tasks of this runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Waits until only `before` tasks are left, and no node is connected.
async fn until_nothing_is_left(backend: &Backend, before: usize) {
    eventually("no task is left", SOON, async || tasks() <= before).await;
    if let Backend::Redis(server) = backend {
        until_disconnected(server).await;
    }
}

async fn until_disconnected(server: &RedisServer) {
    let mut redis = Raw::connect(&server.url()).await;
    let mut list = redis::cmd("CLIENT");
    list.arg("LIST");
    eventually("no node is connected", SOON, async || {
        let clients: String = redis.ask(&list).await;
        !clients.contains("name=lockcore")
    })
    .await;
}

/// Drops the guard and the `Locks`, alternating the order.
fn drop_both(round: usize, locks: Locks, guard: LockGuard) {
    if round.is_multiple_of(2) {
        drop(guard);
        drop(locks);
    } else {
        drop(locks);
        drop(guard);
    }
}

async fn a_locks_that_is_dropped_around_its_last_guard_leaves_nothing(backend: &Backend) {
    let before = tasks();
    for round in 0..ROUNDS {
        let locks = backend.node().await;
        let guard = locks.lock(round.to_string()).await.expect("free");
        drop_both(round, locks, guard);
    }
    until_nothing_is_left(backend, before).await;
}

async fn a_locks_that_is_dropped_after_a_waiter_leaves_nothing(backend: &Backend) {
    let before = tasks();
    for round in 0..ROUNDS / 2 {
        let locks = backend.node().await;
        let guard = locks.lock(round.to_string()).await.expect("free");
        let mut waiting = Box::pin(locks.lock(round.to_string()));
        assert!(poll!(waiting.as_mut()).is_pending());
        if round.is_multiple_of(3) {
            crate::backend::until_waiting(1, &locks, &round.to_string()).await;
        }
        drop(waiting);
        drop_both(round, locks, guard);
    }
    until_nothing_is_left(backend, before).await;
}

async fn a_locks_that_is_dropped_with_reads_and_permits_leaves_nothing(backend: &Backend) {
    let before = tasks();
    for round in 0..ROUNDS / 2 {
        let locks = backend.node().await;
        let reads =
            [locks.read("doc").await.expect("free"), locks.read("doc").await.expect("free")];
        let permit = locks.permit("api", 2).await.expect("free");
        if round.is_multiple_of(2) {
            drop((reads, permit));
            drop(locks);
        } else {
            drop(locks);
            drop((permit, reads));
        }
    }
    until_nothing_is_left(backend, before).await;
}

#[tokio::test]
async fn a_locks_that_is_dropped_with_a_release_that_is_not_polled_leaves_nothing() {
    let backend = Backend::redis();
    let before = tasks();
    let mut releases = Vec::new();
    for round in 0..ROUNDS / 2 {
        let locks = backend.node().await;
        let guard = locks.lock(round.to_string()).await.expect("free");
        releases.push(guard.release());
    }
    // A separate task finishes each of them, although their futures are neither polled nor dropped.
    until_nothing_is_left(&backend, before).await;
    for release in releases {
        release.await.expect("held until now");
    }
}

// The response to the last release ends the node, not the next clock check, which may be a second
// away.
#[tokio::test]
async fn the_answer_of_the_last_release_ends_a_dropped_locks_at_once() {
    let backend = Backend::redis();
    let before = tasks();
    let mut times = Vec::new();
    for round in 0..20 {
        let locks = backend.node().await;
        let guard = locks.lock("key").await.expect("free");
        let dropped = Instant::now();
        drop_both(round, locks, guard);
        eventually("no task is left", SOON, async || tasks() <= before).await;
        times.push(dropped.elapsed());
    }
    times.sort();
    assert!(times[times.len() / 2] < ms(500), "half of them took longer: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn in_paused_time_a_dropped_locks_is_gone_within_100_ms() {
    let before = tasks();
    for round in 0..ROUNDS {
        let locks = Locks::builder().on_memory(&MemoryStore::new()).expect("options");
        let guard = locks.lock("key").await.expect("free");
        let dropped = Instant::now();
        drop_both(round, locks, guard);
        eventually("no task is left", SOON, async || tasks() <= before).await;
        assert!(dropped.elapsed() <= ms(100), "round {round}: {:?}", dropped.elapsed());
    }
}

// The release is retried while the server is away, so the node stays for it.
#[tokio::test]
async fn a_locks_that_is_dropped_while_the_server_is_away_leaves_nothing_once_it_is_back() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let before = tasks();
    let builder = Locks::builder().defaults(LockOptions::new().lease(LONG));
    let locks = builder.connect(proxy.url()).await.expect("a node connects");
    let guard = locks.lock("key").await.expect("free");
    let mut waiting: Pin<Box<dyn Future<Output = _>>> = Box::pin(locks.lock("key"));
    assert!(poll!(waiting.as_mut()).is_pending());
    proxy.refuse().await;
    proxy.cut_all().await;
    drop(waiting);
    drop(guard);
    drop(locks);
    // The release cannot have run yet.
    tokio::time::sleep(ms(300)).await;
    assert!(tasks() > before, "the release is given up");
    proxy.accept();
    eventually("no task is left", SOON, async || tasks() <= before).await;
    until_disconnected(&server).await;
    let other = Locks::connect(server.url()).await.expect("a node connects");
    assert!(other.try_lock("key").await.expect("an answer").is_some(), "it was released");
}

#[tokio::test]
async fn a_locks_that_is_dropped_and_whose_server_never_returns_leaves_nothing() {
    let mut server = RedisServer::start();
    let before = tasks();
    let mut nodes = Vec::new();
    for round in 0..10 {
        let builder = Locks::builder().request_timeout(ms(200)).lease(ms(5_000));
        let locks = builder.connect(server.url()).await.expect("a node connects");
        let guard = locks.lock(round.to_string()).await.expect("free");
        nodes.push((locks, guard));
    }
    server.kill();
    for (round, (locks, guard)) in nodes.into_iter().enumerate() {
        drop_both(round, locks, guard);
    }
    // A release is retried for 15 s.
    eventually("no task is left", 3 * SOON, async || tasks() <= before).await;
}
