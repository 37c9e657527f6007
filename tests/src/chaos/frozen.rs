//! A frozen primary of a Redis Cluster, with many requests in flight to it, and the locks of the
//! other primaries meanwhile.

use std::time::Duration;

use lockcore::{LockGuard, LockOptions, Locks};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::{Clustered, eventually, queued};

/// A lease with a third shorter than the request timeout.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(600);
/// How long the primary is frozen.
const FROZEN: Duration = Duration::from_secs(7);
/// The number of holds on each other primary, and of locks that take turns there.
const FEW: usize = 30;
const PRIMARIES: usize = 3;
const SOON: Duration = Duration::from_secs(60);

/// The effects on the locks of the other primaries.
#[derive(Clone, Copy, Debug)]
pub struct FrozenPrimary {
    /// How many holds there were, with leases of 4 s.
    pub holds: usize,
    /// How many of these holds were lost.
    pub lost: usize,
    /// How many acquires and releases there were.
    pub turns: u64,
    /// The longest acquire and release.
    pub longest: Duration,
}

impl FrozenPrimary {
    /// The longest acquire and release allowed on another primary: half of the request timeout on
    /// the frozen primary.
    pub const BOUND: Duration = Duration::from_secs(1);
}

/// Freezes a primary for 7 s while it has `many` renewed holds, dropped guards, touched waits and
/// attempts, and measures the other primaries.
///
/// # Panics
///
/// If a free lock is refused, or a hold or a wait is left at the end.
pub async fn frozen_primary(
    clustered: &mut Clustered,
    frozen: usize,
    many: usize,
) -> FrozenPrimary {
    let [locks, other] = [connect(clustered, SHORT).await, connect(clustered, LONG).await];
    let names = keys(clustered, frozen, 4 * many);
    let mut parts = names.chunks(many.max(1));
    let mut part = || parts.next().unwrap_or_default();
    let [of_kept, of_dropped, of_waits, of_attempts] = [part(), part(), part(), part()];
    let (mut kept, mut dropped, mut waited_for) = (Vec::new(), Vec::new(), Vec::new());
    for ((one, another), third) in of_kept.iter().zip(of_dropped).zip(of_waits) {
        kept.push(held(&locks, one).await);
        dropped.push(held(&locks, another).await);
        waited_for.push(held(&other, third).await);
    }
    let mut waiting: Vec<_> = of_waits.iter().map(|key| tokio::spawn(locks.lock(key))).collect();
    for key in of_waits {
        queued(&other, key, 1).await;
    }
    let (mut guards, mut turning) = (Vec::new(), Vec::new());
    let (stop, until) = watch::channel(false);
    for primary in (0..PRIMARIES).filter(|primary| *primary != frozen) {
        let mut names = keys(clustered, primary, 2 * FEW);
        let free = names.split_off(FEW);
        for key in &names {
            guards.push(held(&locks, key).await);
        }
        turning.push((free, until.clone()));
    }

    clustered.server(frozen).freeze();
    drop(dropped);
    waiting.extend(of_attempts.iter().map(|key| tokio::spawn(locks.lock(key))));
    let turning: Vec<_> = turning
        .into_iter()
        .map(|(free, until)| tokio::spawn(turns(locks.clone(), free, until)))
        .collect();
    sleep(FROZEN).await;
    let mut found = FrozenPrimary {
        holds: guards.len(),
        lost: guards.iter().filter(|guard| guard.is_lost()).count(),
        turns: 0,
        longest: Duration::ZERO,
    };
    assert!(kept.iter().all(LockGuard::is_lost), "their primary stands still");
    stop.send_replace(true);
    for turns in turning {
        let (turns, longest) = timeout(SOON, turns).await.expect("an end").expect("no error");
        found.turns += turns;
        found.longest = found.longest.max(longest);
    }

    clustered.server(frozen).thaw();
    waiting.iter().for_each(JoinHandle::abort);
    drop((kept, waited_for, guards));
    eventually("nothing is left", SOON, async || {
        let status = locks.status();
        status.waiting + status.holding + status.releasing == 0
    })
    .await;
    found
}

async fn connect(clustered: &Clustered, lease: Duration) -> Locks {
    let locks = Locks::builder().defaults(LockOptions::new().lease(lease));
    locks.connect(clustered.url()).await.expect("the Cluster accepts a node")
}

/// Returns the first names served by a primary.
fn keys(clustered: &Clustered, primary: usize, count: usize) -> Vec<String> {
    let names = (0..).map(|number: u64| format!("key {number}"));
    names.filter(|name| clustered.primary_of(name) == primary).take(count).collect()
}

async fn held(locks: &Locks, key: &str) -> LockGuard {
    locks.lock_timeout(key, SOON).await.expect("the lock is free")
}

/// Acquires and releases free locks until stopped; returns how often, and the longest time.
async fn turns(locks: Locks, keys: Vec<String>, until: watch::Receiver<bool>) -> (u64, Duration) {
    let (mut turns, mut longest) = (0, Duration::ZERO);
    for key in keys.iter().cycle() {
        if *until.borrow() {
            break;
        }
        let started = Instant::now();
        held(&locks, key).await.release().await.expect("another primary's hold");
        turns += 1;
        longest = longest.max(started.elapsed());
    }
    (turns, longest)
}
