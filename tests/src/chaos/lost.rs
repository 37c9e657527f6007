//! Very many holds lost at once: how long before their deadlines the guards are notified, and how
//! long other callers wait for the node meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lockcore::{LockGuard, Locks};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::{Connections, Flow, Proxy, RedisServer, eventually};

const LEASE: Duration = Duration::from_secs(10);
/// The minimum time between a request that renewed a guard and the guard's deadline.
const RENEWED: Duration = Duration::from_millis(9_800);
/// The number of acquires in flight at once.
const AT_ONCE: usize = 250;
/// The interval between two calls of another caller.
const LOOKS: Duration = Duration::from_micros(500);
const SOON: Duration = Duration::from_secs(60);

/// What was measured when the holds were lost.
#[derive(Clone, Debug, Default)]
pub struct Lost {
    /// How many guards were notified at or after their deadline.
    pub late: usize,
    /// How long before the deadline each guard was notified, least first; zero for late
    /// notifications.
    pub early: Vec<Duration>,
    /// The time between the first deadline and the last.
    pub spread: Duration,
    /// The duration of each call of another caller, shortest first.
    pub calls: Vec<Duration>,
}

/// Acquires `holds` locks, renews all of them at once, and takes the server away.
///
/// # Panics
///
/// If a lock is not acquired.
pub async fn lost(holds: usize) -> Lost {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.expect("the server accepts a node");
    let acquire = |key: usize| {
        let acquire = locks.key(format!("k{key}")).lease(LEASE).lock();
        async { acquire.await.expect("the lock is free") }
    };
    let guards: Vec<LockGuard> =
        stream::iter(0..holds).map(acquire).buffer_unordered(AT_ONCE).collect().await;
    // A new connection has all holds renewed, so that all end together.
    let cut = Instant::now();
    proxy.cut(Connections::Commands).await;
    eventually("all are renewed", SOON, async || {
        guards.iter().all(|guard| guard.deadline() >= cut + RENEWED)
    })
    .await;
    proxy.freeze(Connections::All, Flow::Both).await;
    sleep(Duration::from_millis(500)).await; // earlier replies are read by then
    let calls = Calls::start(locks.clone());
    let mut waiting = JoinSet::new();
    for guard in guards {
        waiting.spawn(async move {
            let deadline = guard.deadline();
            guard.cancellation_token().cancelled().await;
            let lost_at = Instant::now();
            // Nothing is released during the measurement.
            std::mem::forget(guard);
            (lost_at, deadline)
        });
    }
    let losses = waiting.join_all().await;
    let first = losses.iter().map(|at| at.1).min();
    let last = losses.iter().map(|at| at.1).max();
    let mut early: Vec<_> = losses
        .iter()
        .map(|(lost_at, deadline)| deadline.saturating_duration_since(*lost_at))
        .collect();
    early.sort_unstable();
    Lost {
        late: early.iter().filter(|early| early.is_zero()).count(),
        early,
        spread: last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first),
        calls: calls.stop(),
    }
}

/// A thread that calls the node: each call takes the node's mutex once, and does nothing else that
/// takes time.
struct Calls {
    stops: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Duration>>,
}

impl Calls {
    fn start(locks: Locks) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            let mut took = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let _ = locks.status();
                took.push(begun.elapsed());
                thread::sleep(LOOKS);
            }
            took
        });
        Self { stops, thread }
    }

    fn stop(self) -> Vec<Duration> {
        self.stops.store(true, Ordering::Relaxed);
        let mut took = self.thread.join().expect("no panic");
        took.sort_unstable();
        took
    }
}
