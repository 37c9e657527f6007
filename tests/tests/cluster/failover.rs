//! Primaries that fail: their replicas take over, and the locks of other primaries are unaffected.

use std::time::Duration;

use lock_tests::{Clustered, Connections, Flow, Proxy, RedisOptions, eventually, lock_key, queued};
use lockcore::{LockErrorKind, LockGuard, LockOptions, Locks};
use redis::cmd;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::common::{
    LONG, SOON, announce, connect, held, release, several_refreshes, soon, topology_queries,
};

/// When a silent primary is considered dead.
const SILENT: Duration = Duration::from_secs(2);

async fn with_replicas() -> Clustered {
    Clustered::start(RedisOptions::default(), true, SILENT).await
}

async fn until_replicated(clustered: &Clustered, primary: usize) {
    let mut redis = clustered.raw(primary).await;
    eventually("the replica has all", SOON, async || {
        redis.ask::<usize>(cmd("WAIT").arg(1).arg(500)).await == 1
    })
    .await;
}

/// A lock held by one node, with a waiter of another node.
struct Wanted {
    guard: LockGuard,
    waiter: Locks,
    waiting: JoinHandle<LockGuard>,
}

async fn wanted(clustered: &Clustered, key: &str) -> Wanted {
    let [holder, waiter] = [connect(clustered).await, connect(clustered).await];
    let guard = held(&holder, key).await;
    let waiting = tokio::spawn({
        let (waiter, key) = (waiter.clone(), key.to_owned());
        async move { waiter.lock(&key).await.expect("granted") }
    });
    queued(&holder, key, 1).await;
    Wanted { guard, waiter, waiting }
}

/// Waits until the new primary has renewed the hold, releases it, and returns the waiter's guard.
async fn go_on(guard: LockGuard, waiting: JoinHandle<LockGuard>) -> LockGuard {
    // By itself it would be renewed after a third of its lease.
    let first = guard.deadline();
    eventually("the new primary renews the hold", SOON, async || guard.deadline() > first).await;
    let before = guard.fencing_token();
    release(guard).await;
    let guard = soon("the grant", waiting).await.expect("no panic");
    assert!(guard.fencing_token() > before);
    guard
}

/// Locks and unlocks on a primary until stopped; returns how often, and the longest time.
async fn turns(
    locks: Locks,
    key: String,
    until: tokio::sync::watch::Receiver<bool>,
) -> (u32, Duration) {
    let (mut turns, mut longest) = (0, Duration::ZERO);
    while !*until.borrow() {
        let started = Instant::now();
        let guard = locks.lock_timeout(&key, SOON).await.expect("another primary's lock");
        guard.release().await.expect("another primary's hold");
        turns += 1;
        longest = longest.max(started.elapsed());
    }
    (turns, longest)
}

#[tokio::test]
async fn a_killed_primary_is_replaced_and_its_hold_and_waiters_go_on() {
    let mut clustered = with_replicas().await;
    let key = clustered.key_of(1, 0);
    let Wanted { guard, waiter, waiting } = wanted(&clustered, &key).await;
    until_replicated(&clustered, 1).await;
    let (stop, until) = tokio::sync::watch::channel(false);
    let others = [0, 2].map(|primary| {
        tokio::spawn(turns(waiter.clone(), clustered.key_of(primary, 0), until.clone()))
    });
    clustered.server(1).kill();
    clustered.promoted(1).await;
    let guard = go_on(guard, waiting).await;
    release(guard).await;
    stop.send_replace(true);
    for others in others {
        let (turns, longest) = soon("the end", others).await.expect("no error");
        assert!(turns > 0 && longest < SILENT, "{turns} turns, the longest {longest:?}");
    }
    assert_eq!(waiter.status().positions_lost, 0, "its position was replicated");
}

#[tokio::test]
async fn a_request_to_a_primary_that_stands_still_goes_on_at_the_one_that_replaces_it() {
    // The longest bound: it ends after the test has failed.
    const REQUEST: Duration = Duration::from_secs(60);
    // Connections of lockcore, and of redis-rs.
    for query in ["", "?protocol=resp3"] {
        let mut clustered = with_replicas().await;
        let locks = Locks::builder().request_timeout(REQUEST);
        let url = format!("{}{query}", clustered.url());
        let locks = soon("a connection", locks.connect(url)).await.expect("accepted");
        let key = clustered.key_of(1, 0);
        release(held(&locks, &key).await).await;
        clustered.server(1).freeze();
        let asking = tokio::spawn({
            let (locks, key) = (locks.clone(), key.clone());
            async move { locks.lock(&key).await.expect("granted") }
        });
        clustered.promoted(1).await;
        let guard = tokio::time::timeout(REQUEST / 2, asking).await;
        release(guard.expect("in time").expect("no panic")).await;
        clustered.server(1).thaw();
    }
}

#[tokio::test]
async fn a_primary_that_is_cut_off_from_the_others_is_replaced_although_it_still_answers() {
    let clustered = Clustered::start_with_relays(RedisOptions::default(), SILENT).await;
    let key = clustered.key_of(1, 0);
    let Wanted { guard, waiter, waiting } = wanted(&clustered, &key).await;
    until_replicated(&clustered, 1).await;
    clustered.isolate(Some(1));
    let new = clustered.promoted(1).await;
    assert_eq!(clustered.present_primary(1).await, 1, "it does not know");
    let guard = go_on(guard, waiting).await;
    assert!(clustered.raw(new).await.exists(&lock_key(&key)).await);
    release(guard).await;
    assert_eq!(waiter.status().positions_lost, 0, "its position was replicated");
}

// Once the primary had answered nothing for ten seconds, its old topology was believed again.
#[tokio::test]
async fn a_replaced_primary_that_is_cut_off_from_the_others_is_not_asked_for_the_topology() {
    let clustered = Clustered::start_with_relays(RedisOptions::default(), SILENT).await;
    let locks = connect(&clustered).await;
    clustered.isolate(Some(1));
    let new = clustered.promoted(1).await;
    let key = clustered.key_of(1, 0);
    eventually("the new primary serves", SOON, async || {
        let Ok(Some(_guard)) = locks.try_lock(&key).await else { return false };
        clustered.raw(new).await.exists(&lock_key(&key)).await
    })
    .await;
    several_refreshes(&clustered).await;
    let asked = async || topology_queries(&clustered, 1..2).await;
    let (before, others) = (asked().await, async || {
        topology_queries(&clustered, 0..1).await + topology_queries(&clustered, 2..6).await
    });
    // A query every two seconds.
    let enough = others().await + 10;
    eventually("the others are asked", SOON, async || others().await >= enough).await;
    assert_eq!(asked().await, before);
}

// A reply from the restarted server counted as one from the server that knew the release.
#[tokio::test]
async fn a_release_that_a_restarted_primary_has_lost_is_repeated_however_long_it_was_away() {
    // Longer than a server may take to copy a release.
    const AWAY: Duration = Duration::from_secs(11);
    let mut clustered = Clustered::steady().await;
    let proxy = Proxy::start(clustered.server(0).address());
    announce(&clustered, [(0, proxy.address())]).await;
    let port = proxy.address().port().to_string();
    clustered.server(0).restarts_with("cluster-announce-port", &port);
    let locks = connect(&clustered).await;
    let [key, other] = [0, 1].map(|number| clustered.key_of(0, number));
    let guard = held(&locks, &key).await;
    let hold: Vec<u8> = clustered.raw(0).await.ask(cmd("DUMP").arg(lock_key(&key))).await;
    release(guard).await;
    let released = Instant::now();
    clustered.server(0).kill();
    proxy.refuse().await;
    clustered.server(0).restart();
    let mut redis = clustered.raw(0).await;
    let mut restore = cmd("RESTORE");
    restore.arg(lock_key(&key)).arg(LONG.as_millis() as u64).arg(hold);
    eventually("the hold is back", SOON, async || redis.try_ask::<()>(&restore).await.is_ok())
        .await;
    tokio::time::sleep_until(released + AWAY).await;
    proxy.freeze(Connections::Subscriptions, Flow::Both).await;
    proxy.accept();
    eventually("the primary is back", SOON, async || locks.try_lock(&other).await.is_ok()).await;
    proxy.thaw();
    eventually("it is released again", SOON, async || !redis.exists(&lock_key(&key)).await).await;
}

#[tokio::test]
async fn after_a_planned_failover_locks_are_served_by_the_new_primary() {
    let clustered = with_replicas().await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(0, 0);
    let guard = held(&locks, &key).await;
    let before = guard.fencing_token();
    clustered.fail_over(0).await;
    clustered.promoted(0).await;
    // A release in flight on a connection to the old primary is repeated in the background when the
    // connection ends.
    if let Err(error) = soon("the release", guard.release()).await {
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    }
    let guard = soon("the lock", locks.lock(&key)).await.expect("the new primary serves it");
    assert!(guard.fencing_token() > before);
    assert!(clustered.raw(3).await.exists(&lock_key(&key)).await);
    release(guard).await;
}

#[tokio::test]
async fn a_dead_primary_without_a_replica_fails_its_own_locks_in_time_and_no_others() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let keys: Vec<_> = (0..3).map(|primary| clustered.key_of(primary, 0)).collect();
    for key in &keys {
        release(held(&locks, key).await).await;
    }
    clustered.server(1).kill();
    let started = Instant::now();
    let error = locks.try_lock(&keys[1]).await.expect_err("its primary is dead");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    // The server is known to be down: nothing waits for it, which would delay other requests.
    let started = Instant::now();
    let error = locks.inspect(&keys[1]).await.expect_err("its primary is dead");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() < Duration::from_secs(1), "it took {:?}", started.elapsed());
    for key in [&keys[0], &keys[2]] {
        release(held(&locks, key).await).await;
    }
    locks.ping().await.expect("others answer");
    assert!(locks.status().is_connected(), "two primaries are connected");
    clustered.server(1).restart();
    let guard = soon("the lock", locks.lock(&keys[1])).await.expect("its primary is back");
    release(guard).await;
}

#[tokio::test]
async fn where_replicas_have_to_acknowledge_it_a_grant_of_each_primary_is_there_after_a_failover() {
    const LEASE: Duration = Duration::from_secs(6);
    let mut clustered = with_replicas().await;
    let locks = Locks::builder()
        .defaults(LockOptions::new().lease(LEASE))
        .require_replicas(1, Duration::from_secs(1));
    let locks = soon("a connection", locks.connect(clustered.url())).await.expect("accepted");
    let mut guards = Vec::new();
    for primary in 0..3 {
        guards.push(held(&locks, &clustered.key_of(primary, 0)).await);
    }
    let first: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    eventually("replicas have a renewal of each", SOON, async || {
        guards.iter().zip(&first).all(|(guard, first)| guard.deadline() > *first)
    })
    .await;
    for guard in guards {
        release(guard).await;
    }
    let key = clustered.key_of(2, 0);
    // Longer than any failover takes: nothing renews it meanwhile.
    let guard = locks.key(&key).lease(LONG).lock();
    let guard = soon("the lock", guard).await.expect("the lock is free");
    clustered.server(2).kill();
    let new = clustered.promoted(2).await;
    let mut redis = clustered.raw(new).await;
    let (holder, _) = redis.hold(&key).await.expect("the replica had acknowledged it");
    assert!(holder.contains(locks.node().as_str()), "{holder}");
    drop(guard);
}
