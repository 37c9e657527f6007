//! The end of a node.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use lockcore::{LockErrorKind, Locks};
use tokio::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::backend::{Backend, SOON, granted, is_free, ms, soon, until_waiting, wait_as};

on_every_store!(
    a_shutdown_ends_waiting_refuses_new_ones_and_waits_for_holds,
    a_shutdown_of_zero_takes_every_hold_away_at_once,
    a_shutdown_takes_away_what_is_not_released_in_time,
    a_shutdown_of_an_idle_node_is_done_at_once,
    a_shutdown_hands_nothing_to_its_own_waiters,
    a_shutdown_waits_for_an_acquire_that_is_just_being_dropped;
    not_by_a_quorum:
    // The gate stops one event, but the hold at each primary has its own event.
    a_shutdown_waits_for_a_guard_that_is_just_being_dropped,
);

/// A subscriber that blocks a thread at its events, until the gate is open.
struct Gate {
    reached: mpsc::Sender<()>,
    open: Mutex<mpsc::Receiver<()>>,
}

/// Drops something on a dedicated thread, and returns when the drop has reached its first event.
/// The drop continues when the sender is dropped.
fn drop_up_to_the_gate(
    dropped: impl Send + 'static,
) -> (std::thread::JoinHandle<()>, mpsc::Sender<()>) {
    let (reached, at_gate) = mpsc::channel();
    let (open, opened) = mpsc::channel();
    let gate = Gate { reached, open: Mutex::new(opened) };
    let dropping = std::thread::spawn(|| {
        tracing::subscriber::with_default(gate, || drop(dropped));
    });
    at_gate.recv().expect("a drop is logged");
    (dropping, open)
}

impl Subscriber for Gate {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lockcore")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let _ = self.reached.send(());
        let _ = self.open.lock().expect("no panic").recv();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

// L6.
async fn a_shutdown_ends_waiting_refuses_new_ones_and_waits_for_holds(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("held").await.expect("free");
    let other = b.lock("waited for").await.expect("free");
    let waiting = wait_as(1, &a, "waited for").await;
    let locks = a.clone();
    let shutdown = tokio::spawn(async move { locks.shutdown(SOON).await });
    let error = soon(waiting).await.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    assert_eq!(a.lock("new").await.expect_err("closed").kind(), LockErrorKind::Closed);
    assert_eq!(a.try_lock("new").await.expect_err("closed").kind(), LockErrorKind::Closed);
    assert!(!shutdown.is_finished() && !guard.is_lost());
    guard.release().await.expect("held until now");
    let report = soon(shutdown).await.expect("no panic");
    assert_eq!((report.waiters, report.holds, report.unreleased), (1, 0, 0));
    assert!(is_free(&b, "held").await);
    assert_eq!(b.inspect("waited for").await.expect("an inspection").waiters, []);
    other.release().await.expect("held until now");
    assert!(a.lock("new").await.is_err());
}

// L6.
async fn a_shutdown_of_zero_takes_every_hold_away_at_once(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guards = [a.lock("one").await.expect("free"), a.lock("two").await.expect("free")];
    let waiting = wait_as(1, &b, "one").await;
    let report = soon(a.shutdown(Duration::ZERO)).await;
    assert_eq!((report.waiters, report.holds, report.unreleased), (0, 2, 0));
    assert!(guards.iter().all(|guard| guard.is_lost()));
    granted(waiting).await.release().await.expect("held until now");
    assert!(is_free(&b, "two").await);
    drop(guards);
}

// L6.
async fn a_shutdown_takes_away_what_is_not_released_in_time(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let started = Instant::now();
    let report = soon(a.shutdown(ms(300))).await;
    assert!(started.elapsed() >= ms(300));
    assert_eq!((report.holds, report.unreleased), (1, 0));
    assert_eq!(guard.release().await.expect_err("taken").kind(), LockErrorKind::Lost);
    let guard = soon(b.lock("key")).await.expect("free");
    guard.release().await.expect("held until now");
}

async fn a_shutdown_of_an_idle_node_is_done_at_once(backend: &Backend) {
    let locks = backend.node().await;
    let report = soon(locks.shutdown(Duration::from_secs(600))).await;
    assert_eq!((report.waiters, report.holds, report.unreleased), (0, 0, 0));
}

async fn a_shutdown_hands_nothing_to_its_own_waiters(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let own = wait_as(1, &a, "key").await;
    let others = wait_as(2, &b, "key").await;
    let report = soon(a.shutdown(Duration::ZERO)).await;
    assert_eq!((report.waiters, report.holds, report.unreleased), (1, 1, 0));
    assert_eq!(
        soon(own).await.expect("no panic").expect_err("closed").kind(),
        LockErrorKind::Closed
    );
    granted(others).await.release().await.expect("held until now");
    drop(guard);
}

/// Waits until the attempt is in the queue, and its node knows: responses arrive in order, and the
/// acquire's response is before this inspection's.
async fn until_known_to_wait(node: &Locks, other: &Locks, key: &str) {
    until_waiting(1, other, key).await;
    node.inspect(key).await.expect("an inspection");
}

// L6.
async fn a_shutdown_waits_for_an_acquire_that_is_just_being_dropped(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = b.lock("key").await.expect("free");
    let mut acquire = Box::pin(a.lock("key"));
    tokio::select! {
        biased;
        granted = &mut acquire => panic!("it is taken: {granted:?}"),
        () = until_known_to_wait(&a, &b, "key") => {}
    }
    let (dropping, open) = drop_up_to_the_gate(acquire);
    // The attempt has left the node's table, and the thread is blocked there.
    let report = soon(a.shutdown(SOON)).await;
    assert_eq!((report.waiters, report.unreleased), (0, 0));
    assert_eq!(b.inspect("key").await.expect("an inspection").waiters, []);
    drop(open);
    dropping.join().expect("no panic");
    guard.release().await.expect("held until now");
}

// L6.
async fn a_shutdown_waits_for_a_guard_that_is_just_being_dropped(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let (dropping, open) = drop_up_to_the_gate(guard);
    let shutdown = tokio::spawn(async move { a.shutdown(SOON).await });
    // A shutdown that does not wait has time to end.
    tokio::time::sleep(ms(200)).await;
    assert!(!shutdown.is_finished(), "the lock is still held");
    drop(open);
    let report = soon(shutdown).await.expect("no panic");
    assert_eq!((report.holds, report.unreleased), (0, 0));
    assert!(is_free(&b, "key").await);
    dropping.join().expect("no panic");
}
