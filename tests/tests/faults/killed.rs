//! Processes killed with SIGKILL: their holds and their positions. On each server a tool subscribes
//! to everything, which must not hide a death.

use std::time::Duration;

use lock_tests::{Grants, Raw, aside_key};
use tokio::time::timeout;

use crate::common::{
    LONG, SHORT, granted, held, listens, queue, queue_has, queued, release, setup, soon,
};

/// The bound, far below the claim of a lease of 30 s, which a dead grantee would cost.
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_the_head_of_the_queue_costs_the_next_nothing() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let mut child = setup.child().await;
    child.lock("dead", "k", LONG).await;
    queue_has(&mut setup.redis, "k", 1).await;
    let next = queued(&locks, "k", LONG, &mut setup.redis).await;
    child.kill();
    listens(&mut setup.redis, child.node(), 0).await;
    release(guard).await;
    let guard = timeout(AT_ONCE, granted(next)).await.expect("the dead process is skipped");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_in_the_middle_of_the_queue_costs_those_behind_nothing() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let locks = setup.direct().await;
    let other = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let before = queued(&other, "k", LONG, &mut setup.redis).await;
    let mut child = setup.child().await;
    child.lock("dead", "k", LONG).await;
    queue_has(&mut setup.redis, "k", 2).await;
    let behind = queued(&locks, "k", LONG, &mut setup.redis).await;
    child.kill();
    listens(&mut setup.redis, child.node(), 0).await;
    let first = guard.fencing_token();
    release(guard).await;
    let guard = timeout(AT_ONCE, granted(before)).await.expect("it was next");
    let second = guard.fencing_token();
    assert!(!behind.is_finished());
    release(guard).await;
    let guard = timeout(AT_ONCE, granted(behind)).await.expect("the dead process is skipped");
    assert!(first < second && second < guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_a_killed_process_are_skipped_in_one_hand_over() {
    const DEAD: usize = 40;
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let mut child = setup.child().await;
    for number in 0..DEAD {
        child.lock(&format!("dead{number}"), "k", LONG).await;
    }
    queue_has(&mut setup.redis, "k", DEAD).await;
    let next = queued(&locks, "k", LONG, &mut setup.redis).await;
    child.kill();
    listens(&mut setup.redis, child.node(), 0).await;
    release(guard).await;
    let guard = timeout(AT_ONCE, granted(next)).await.expect("all dead are skipped");
    // The members are set aside because an interrupted connection keeps its position, but not for
    // long.
    assert_eq!(queue(&mut setup.redis, "k").await, Vec::<String>::new());
    let aside = aside_key("k", child.node());
    assert_eq!(setup.redis.scores(&aside).await.len(), DEAD);
    assert!((1..=15_000).contains(&setup.redis.pttl(&aside).await), "it ends");
    release(guard).await;
}

/// The times from the end of the previous lease to the grant of each of these locks, which this
/// node has by now, in µs; the least first.
async fn granted_after(ends: &[(String, i64)], grants: &Grants, node: &str) -> Vec<i64> {
    let mut after = Vec::new();
    for (key, end_us) in ends {
        after.push(grants.at(key, node).await as i64 - end_us);
    }
    after.sort_unstable();
    after
}

/// Checks that no lease is cut short, and that usually a busy machine grants as quickly as an idle
/// one.
fn is_in_time(after: &[i64]) {
    // The server rounds to milliseconds.
    assert!(after[0] >= -2_000, "granted {after:?} us after the leases had ended");
    assert!(after[after.len() / 2] <= 100_000, "granted {after:?} us after the leases had ended");
}

/// When the lease of each of these locks ends without renewals, by the server's clock, µs.
async fn ends_of(keys: &[String], redis: &mut Raw) -> Vec<(String, i64)> {
    let mut ends = Vec::new();
    for key in keys {
        let now_us = redis.time_us().await as i64;
        let (_, left_ms) = redis.hold(key).await.expect("it holds, with a lease");
        ends.push((key.clone(), now_us + left_ms * 1_000));
    }
    ends
}

fn keys() -> Vec<String> {
    (0..5).map(|number| format!("k{number}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_holder_goes_to_the_next_within_100_ms_of_the_end_of_its_lease() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let grants = Grants::watch(&setup.server);
    let mut child = setup.child().await;
    let locks = setup.direct().await;
    let mut waiting = Vec::new();
    let mut first = Vec::new();
    for key in keys() {
        child.lock(&key, &key, SHORT).await;
        first.push(child.granted(&key).await);
        // The waiter's lease says nothing about the holder's lease.
        waiting.push(queued(&locks, &key, LONG, &mut setup.redis).await);
    }
    child.kill();
    let ends = ends_of(&keys(), &mut setup.redis).await;
    let mut guards = Vec::new();
    for (next, first) in waiting.into_iter().zip(first) {
        let guard = soon("the takeover", granted(next)).await;
        assert!(guard.fencing_token().get() > first);
        guards.push(guard);
    }
    is_in_time(&granted_after(&ends, &grants, locks.node().as_str()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_has_the_lock_within_100_ms_of_its_lease_when_holder_and_all_waiters_are_dead() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let grants = Grants::watch(&setup.server);
    let mut holder = setup.child().await;
    let mut crowd = setup.child().await;
    for key in keys() {
        holder.lock(&key, &key, SHORT).await;
        holder.granted(&key).await;
        for number in 0..20 {
            crowd.lock(&format!("{key}-{number}"), &key, LONG).await;
        }
        queue_has(&mut setup.redis, &key, 20).await;
    }
    crowd.kill();
    holder.kill();
    let ends = ends_of(&keys(), &mut setup.redis).await;
    listens(&mut setup.redis, crowd.node(), 0).await;
    let locks = setup.direct().await;
    let newcomers: Vec<_> =
        keys().iter().map(|key| tokio::spawn(locks.key(key).lease(LONG).lock())).collect();
    let mut guards = Vec::new();
    for newcomer in newcomers {
        guards.push(soon("the lock", granted(newcomer)).await);
    }
    is_in_time(&granted_after(&ends, &grants, locks.node().as_str()).await);
}
