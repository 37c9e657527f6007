//! Errors of Redisson's fair lock.

use std::time::Duration;

use lock_tests::{Monitor, eventually, patience_key};
use lockcore::{HoldState, LockErrorKind, LockOptions, Locks, MemoryStore};
use tokio::task::JoinSet;

use crate::common::{LONG, SOON, granted, held, queue_has, queued, release, setup, soon};

// Redisson #1104: each waiter that gave up moved the timeouts of all others further into the
// future.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_give_up_do_not_move_the_deadlines_of_others() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let patient = queued(&locks, "k", LONG, &mut setup.redis).await;
    for _ in 0..50 {
        let wait = Duration::from_millis(5);
        let error = locks.lock_timeout("k", wait).await.expect_err("it is taken");
        assert_eq!(error.kind(), LockErrorKind::Timeout);
    }
    queue_has(&mut setup.redis, "k", 1).await;
    let patience = patience_key("k", locks.node().as_str());
    assert!((1..=15_000).contains(&setup.redis.pttl(&patience).await));
    assert_eq!(setup.redis.keys("lock:{k}:patience:*").await, [patience]);
    release(guard).await;
    release(granted(patient).await).await;
}

// Redisson #2278, #2883, #2960, #3730: under load, with waits that end, no client could acquire the
// lock any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_waits_that_end_leaves_a_lock_that_can_be_had() {
    let mut setup = setup().await;
    let nodes = [setup.direct().await, setup.direct().await, setup.direct().await];
    let mut storm = JoinSet::new();
    for number in 0..30_u64 {
        let locks = nodes[number as usize % nodes.len()].clone();
        storm.spawn(async move {
            let mut turns = 0;
            for turn in 0..40_u64 {
                let wait = Duration::from_millis((number * 7 + turn * 13) % 20);
                match locks.lock_timeout("k", wait).await {
                    Ok(guard) => {
                        turns += 1;
                        if turn % 2 == 0 {
                            guard.release().await.expect("held until now");
                        } // otherwise it is dropped
                    }
                    Err(error) => assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}"),
                }
            }
            turns
        });
    }
    let mut turns = 0;
    while let Some(ended) = soon("the storm ends", storm.join_next()).await {
        turns += ended.expect("no panic");
    }
    assert!(turns > 0, "somebody had a turn");
    for locks in &nodes {
        release(held(locks, "k", LONG).await).await;
    }
    queue_has(&mut setup.redis, "k", 0).await;
}

// Redisson #3004: live waiters were considered dead, dropped, and waited for ever.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_position_however_long_the_hold_before_it_lasts() {
    let store = MemoryStore::new();
    let options = LockOptions::new();
    let node = || Locks::builder().defaults(options).on_memory(&store).expect("options");
    let holder = node();
    let first = node();
    let second = node();
    let guard = holder.lock("k").await.expect("a free lock");
    let one = tokio::spawn(first.lock("k"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let two = tokio::spawn(second.lock("k"));
    // An hour passes in no time: 240 times the liveness deadline of a silent waiter.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(holder.inspect("k").await.expect("an inspection").waiters.len(), 2);
    assert_eq!(first.status().positions_lost + second.status().positions_lost, 0);
    guard.release().await.expect("the watchdog has kept it");
    let guard = one.await.expect("no panic").expect("the first is next");
    assert!(!two.is_finished());
    guard.release().await.expect("held until now");
    two.await.expect("no panic").expect("then the second").release().await.expect("held until now");
}

// Redisson #2515, #3194, #3712, #3714: after a reconnect nothing was renewed any more, not even
// when the same lock was acquired again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_goes_on_after_a_reconnect_and_for_a_lock_that_is_taken_again() {
    const LEASE: Duration = Duration::from_secs(2);
    let mut setup = setup().await;
    let locks = setup.through().await;
    for round in 0..2 {
        let guard = held(&locks, "k", LEASE).await;
        assert!(setup.proxy.cut_all().await > 0);
        tokio::time::sleep(2 * LEASE).await; // the measured time
        assert_eq!(guard.state(), HoldState::Held, "round {round}");
        assert!(setup.redis.hold("k").await.is_some_and(|(_, left)| left > 0));
        release(guard).await;
    }
}

// Redisson #7272: the watchdog renewed a lock that had been released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_it_was_released() {
    const LEASE: Duration = Duration::from_millis(300);
    let setup = setup().await;
    let locks = setup.direct().await;
    // The lock is released at every phase of a renewal period, by release and by drop.
    for turn in 0..40_u32 {
        let guard = locks.key("k").lease(LEASE).lock().await.expect("a free lock");
        tokio::time::sleep(LEASE / 3 * turn / 30).await;
        match turn % 2 {
            0 => guard.release().await.expect("held until now"),
            _ => drop(guard),
        }
    }
    eventually("all is given back", SOON, async || {
        let status = locks.status();
        status.holding + status.releasing == 0
    })
    .await;
    let monitor = Monitor::start(setup.server.address());
    tokio::time::sleep(3 * LEASE).await; // the watched time
    let after: Vec<String> =
        monitor.stop().iter().filter(|line| !line.is("PING")).map(|line| line.text(0)).collect();
    assert_eq!(after, Vec::<String>::new());
}
