//! Errors of other locks.

use std::time::Duration;

use lock_tests::{Request, eventually};
use lockcore::HoldState;

use crate::common::{SOON, counter, granted, queue, queue_has, release, setup, soon};

// node-redlock #369: a lock whose time was already over was returned as held. etcd, PR 11408: after
// a wait, the lease was not checked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_answer_comes_after_its_lease_hands_out_no_dead_hold() {
    const LEASE: Duration = Duration::from_millis(400);
    let mut setup = setup().await;
    let locks = setup.through().await;
    let late = setup.proxy.hold_reply(Request::is_script);
    let waiting = tokio::spawn(locks.key("k").fixed_lease(LEASE).lock());
    soon("the grant is on its way", late.struck()).await;
    let first = counter(&mut setup.redis).await;
    let redis = &mut setup.redis;
    eventually("its lease ends", SOON, async || redis.holder("k").await.is_none()).await;
    late.release();
    let guard = granted(waiting).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.fencing_token().get() > first, "it is not the hold that is over");
    release(guard).await;
}

// node-redlock #369: the renewal continued after the section.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_s_lock_is_neither_held_nor_renewed_after_it() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    locks.with("k", async |_| ()).await.expect("a section");
    assert_eq!(locks.status().holding, 0);
    assert_eq!(setup.redis.holder("k").await, None);
}

// redis-rb #953, jedis #1466: the client sent a script twice, and it counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_runs_twice_counts_once() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let repeated = setup.proxy.repeat(Request::is_script);
    let guard = soon("the lock", locks.lock("k")).await.expect("a free lock");
    assert!(repeated.has_struck());
    assert!(setup.redis.holder("k").await.is_some_and(|one| one.contains(locks.node().as_str())));

    let repeated = setup.proxy.repeat(Request::is_script);
    let first = tokio::spawn(locks.lock("k"));
    soon("the repetition", repeated.struck()).await;
    queue_has(&mut setup.redis, "k", 1).await;
    // From another process: it is not in a batch with the first.
    let second = tokio::spawn(setup.direct().await.lock("k"));
    queue_has(&mut setup.redis, "k", 2).await;

    let repeated = setup.proxy.repeat(Request::is_script);
    release(guard).await;
    soon("the repetition", repeated.struck()).await;
    let guard = granted(first).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert!(!second.is_finished(), "a second release has released nothing");
    assert_eq!(queue(&mut setup.redis, "k").await.len(), 1);
    release(guard).await;
    release(granted(second).await).await;
}
