//! A primary that stands still, with more requests on their way to it than there are places.

use std::time::Duration;

use lock_tests::{Clustered, eventually, queued};
use lockcore::{LockGuard, LockOptions, Locks};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::common::{SOON, held, release, soon};

/// The requests of each kind to the primary that stands still.
const MANY: usize = 300;
/// The holds on each other primary.
const FEW: usize = 30;
/// A lease of which a third is shorter than the time of a request.
const SHORT: Duration = Duration::from_secs(4);
const FROZEN: Duration = Duration::from_secs(7);

async fn connect(clustered: &Clustered, lease: Duration) -> Locks {
    let locks = Locks::builder().defaults(LockOptions::new().lease(lease));
    soon("a connection", locks.connect(clustered.url())).await.expect("accepted")
}

/// The first names of a primary.
fn keys(clustered: &Clustered, primary: usize, count: usize) -> Vec<String> {
    let names = (0..).map(|number: u64| format!("key {number}"));
    names.filter(|name| clustered.primary_of(name) == primary).take(count).collect()
}

/// Acquires and releases free locks of a primary until told to stop; returns the longest time.
async fn turns(locks: Locks, keys: Vec<String>, until: watch::Receiver<bool>) -> Duration {
    let mut longest = Duration::ZERO;
    for key in keys.iter().cycle() {
        if *until.borrow() {
            break;
        }
        let started = Instant::now();
        let guard = locks.lock_timeout(key, SOON).await.expect("another primary's lock");
        guard.release().await.expect("another primary's hold");
        longest = longest.max(started.elapsed());
    }
    longest
}

// H3: the places of all primaries were common, so nothing of the others got through for 2 to 4 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_costs_the_others_neither_a_turn_nor_a_hold() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered, SHORT).await;
    let other = connect(&clustered, 10 * SOON).await;
    let [theirs, one, two] = [(0, 4 * MANY), (1, 2 * FEW), (2, 2 * FEW)]
        .map(|(primary, count)| keys(&clustered, primary, count));
    let mut waited_for = Vec::new();
    let (mut kept, mut dropped): (Vec<LockGuard>, Vec<LockGuard>) = Default::default();
    for number in 0..MANY {
        kept.push(held(&locks, &theirs[number]).await);
        dropped.push(held(&locks, &theirs[MANY + number]).await);
        waited_for.push(held(&other, &theirs[2 * MANY + number]).await);
    }
    let mut waiting = Vec::new();
    for number in 0..MANY {
        waiting.push(tokio::spawn(locks.lock(&theirs[2 * MANY + number])));
    }
    queued(&other, &theirs[3 * MANY - 1], 1).await;
    let mut guards = Vec::new();
    for key in one[..FEW].iter().chain(&two[..FEW]) {
        guards.push(held(&locks, key).await);
    }

    clustered.server(0).freeze();
    drop(dropped);
    for number in 0..MANY {
        waiting.push(tokio::spawn(locks.lock(&theirs[3 * MANY + number])));
    }
    let (stop, until) = watch::channel(false);
    let others = [one, two].map(|mut keys| {
        let free = keys.split_off(FEW);
        tokio::spawn(turns(locks.clone(), free, until.clone()))
    });
    // For so long, nothing may happen to the locks of the others.
    tokio::time::sleep(FROZEN).await;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    assert_eq!(lost, 0, "of {} holds on other primaries", guards.len());
    stop.send_replace(true);
    for longest in others {
        let longest = soon("the end", longest).await.expect("no error");
        assert!(longest < Duration::from_secs(1), "the longest turn took {longest:?}");
    }
    assert!(kept.iter().all(LockGuard::is_lost), "their primary stands still");

    clustered.server(0).thaw();
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop((kept, waited_for));
    for guard in guards {
        release(guard).await;
    }
    eventually("nothing is left", SOON, async || {
        let status = locks.status();
        status.waiting + status.holding + status.releasing == 0
    })
    .await;
}
