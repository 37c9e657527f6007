//! Processes killed with SIGKILL: what they held and where they waited. On each server a tool
//! subscribes to everything, which must not hide a death.

use std::time::Duration;

use tokio::time::timeout;

use crate::common::{
    LONG, SHORT, deadlines_key, granted, held, listens, queue, queue_has, queued, release, setup,
    soon,
};

/// Far below the claim of a lease of 30 s, which a dead grantee would cost.
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
    let guard = timeout(AT_ONCE, granted(next)).await.expect("the dead process is passed over");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_in_the_middle_of_the_queue_costs_those_behind_nothing() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let (locks, other) = (setup.direct().await, setup.direct().await);
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
    let guard = timeout(AT_ONCE, granted(behind)).await.expect("the dead process is passed over");
    assert!(first < second && second < guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_a_killed_process_are_passed_over_in_one_hand_over() {
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
    let guard = timeout(AT_ONCE, granted(next)).await.expect("all dead are passed over");
    // Not removed: a connection that blips keeps its place. But not for long.
    assert_eq!(queue(&mut setup.redis, "k").await.len(), DEAD);
    let now_ms = (setup.redis.time_us().await / 1_000) as f64;
    for (member, deadline) in setup.redis.scores(&deadlines_key("k")).await {
        assert!(deadline <= now_ms + 5_000.0, "{member} is patient until {deadline}");
    }
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_holder_is_taken_over_when_its_lease_ends() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let mut child = setup.child().await;
    child.lock("dead", "k", SHORT).await;
    let first = child.granted("dead").await;
    let locks = setup.direct().await;
    // A lease of its own that says nothing about the holder's; it touches every 4 s.
    let next = queued(&locks, "k", LONG, &mut setup.redis).await;
    child.kill();
    let now_us = setup.redis.time_us().await;
    let left_ms = setup.redis.pttl("k").await;
    let end_us = now_us + u64::try_from(left_ms).expect("it holds, with a lease") * 1_000;
    let guard = soon("the takeover", granted(next)).await;
    // A token is the server's time of the grant, in microseconds.
    let second = guard.fencing_token().get();
    assert!(second > first);
    let early = end_us.saturating_sub(second);
    assert!(early <= 2_000, "granted {early} us before the lease had ended");
    let late = second.saturating_sub(end_us);
    assert!(late < 1_500_000, "granted {late} us after the lease had ended");
}
