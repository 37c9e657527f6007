//! Failovers by real sentinels: kills, freezes, and a planned one.

use std::time::Duration;

use lock_tests::{Raw, RedisOptions, Watched, eventually, queued};
use lockcore::{LockGuard, Locks};
use redis::cmd;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::common::{SOON, connect, release, soon};

const LEASE: Duration = Duration::from_secs(30);

/// A holder, and two waiters in a known order, all on nodes of their own.
struct Scene {
    watched: Watched,
    guard: LockGuard,
    waiting: Vec<JoinHandle<LockGuard>>,
    holder: Locks,
}

async fn scene(options: RedisOptions) -> Scene {
    let watched = Watched::start(options).await;
    let holder = connect(&watched.url()).await.expect("accepted");
    let guard = soon("the lock", holder.key("k").lease(LEASE).lock()).await.expect("free");
    let mut waiting = Vec::new();
    for place in 1..=2 {
        let locks = connect(&watched.url()).await.expect("accepted");
        waiting.push(tokio::spawn(async move { locks.lock("k").await.expect("granted") }));
        queued(&holder, "k", place).await;
    }
    // Replication is asynchronous: the hold and the places have to be there first to survive.
    let mut primary = watched.raw(0).await;
    let mut replicas = [watched.raw(1).await, watched.raw(2).await];
    let last = queue(&mut primary).await;
    eventually("both replicas know the queue", SOON, async || {
        for replica in &mut replicas {
            if queue(replica).await != last {
                return false;
            }
        }
        true
    })
    .await;
    Scene { watched, guard, waiting, holder }
}

/// The queue as a server knows it.
async fn queue(redis: &mut Raw) -> Vec<String> {
    redis.queue("k").await
}

async fn lease_left(redis: &mut Raw) -> i64 {
    redis.hold("k").await.map_or(0, |(_, left)| left)
}

/// Checks that the new primary has renewed the holder, and that all have their turns in order.
async fn turns_in_order(scene: Scene) {
    let Scene { watched, guard, waiting, holder } = scene;
    let mut primary = watched.raw(watched.settled().await).await;
    // A waiter that cannot be told is skipped.
    eventually("all three listen to the new primary", SOON, async || {
        let channels: Vec<String> =
            primary.ask(cmd("PUBSUB").arg("CHANNELS").arg("lockcore:grants:*")).await;
        channels.len() == 3
    })
    .await;
    let first = queue(&mut primary).await;
    assert_eq!(first.len(), 2, "both waiters kept their positions");
    assert!(!guard.is_lost(), "its hold was renewed");
    release(guard).await;
    for (turn, waiter) in waiting.into_iter().enumerate() {
        let guard = soon("the grant", waiter).await.expect("no panic");
        assert_eq!(primary.holder("k").await.as_ref(), Some(&first[turn]), "turn {turn}");
        release(guard).await;
    }
    lock_tests::free(&holder, "k").await;
}

#[tokio::test]
async fn a_hold_and_its_waiters_survive_the_death_of_the_primary() {
    let mut scene = scene(RedisOptions::default()).await;
    scene.watched.server(0).kill();
    let now = scene.watched.promoted(0).await;
    let mut primary = scene.watched.raw(now).await;
    let unrenewed = lease_left(&mut primary).await;
    assert!(unrenewed > 0, "the new primary knows the hold");
    eventually("the hold is renewed at once", SOON, async || {
        lease_left(&mut primary).await > unrenewed
    })
    .await;
    turns_in_order(scene).await;
}

#[tokio::test]
async fn a_hold_and_its_waiters_survive_a_planned_failover() {
    let scene = scene(RedisOptions::default()).await;
    scene.watched.fail_over(0).await;
    turns_in_order(scene).await;
}

#[tokio::test]
async fn a_primary_that_was_frozen_and_comes_back_is_not_followed() {
    // The old primary takes no writes when it comes back, because of this.
    let options = RedisOptions::default().arg("min-replicas-to-write", "1");
    let mut scene = scene(options).await;
    scene.watched.server(0).freeze();
    let now = scene.watched.promoted(0).await;
    scene.watched.server(0).thaw();
    // The new primary takes no writes before that either.
    let mut primary = scene.watched.raw(now).await;
    eventually("the new primary has a replica", SOON, async || {
        let info = primary.info("replication").await;
        let good = info.lines().find_map(|line| line.strip_prefix("min_slaves_good_slaves:"));
        good.expect("it needs some").parse::<usize>().expect("a number") > 0
    })
    .await;
    turns_in_order(scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_ends_in_a_failover_under_load() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let nodes = [
        connect(&watched.url()).await.expect("accepted"),
        connect(&watched.url()).await.expect("accepted"),
    ];
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let (locks, stop) = (nodes[task % 2].clone(), stop.clone());
        tasks.spawn(async move {
            let mut served = 0;
            while !stop.is_cancelled() {
                // Also one that was not queued yet: a failover is shorter than it waits for one.
                let request = locks.key(format!("k{}", task % 4)).wait(SOON);
                let guard = request.lock().await.expect("served in the end");
                tokio::time::sleep(Duration::from_millis(2)).await;
                served += 1;
                drop(guard.release().await);
            }
            served
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.server(0).kill();
    watched.promoted(0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.cancel();
    let served = soon("everybody's end", tasks.join_all()).await;
    assert!(served.iter().all(|served| *served > 1), "{served:?}");
}
