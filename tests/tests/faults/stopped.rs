//! Processes stopped (SIGSTOP) past their lease, and continued.

use lock_tests::{Grants, eventually, signal};
use lockcore::{HoldState, LockErrorKind};
use tokio::time::Instant;

use crate::common::{SHORT, granted, held, holder, queue, queue_has, queued, release, setup, soon};
use crate::witness::Witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_waiter_is_overtaken_after_its_claim_and_waits_on_when_continued() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", SHORT).await;
    let mut child = setup.child().await;
    child.lock("a", "k", SHORT).await;
    queue_has(&mut setup.redis, "k", 1).await;
    let second = queued(&locks, "k", SHORT, &mut setup.redis).await;
    let third = queued(&locks, "k", SHORT, &mut setup.redis).await;
    signal::stop(child.pid());

    let grants = Grants::watch(&setup.server);
    let given_us = setup.redis.time_us().await;
    release(guard).await;
    // The waiter is still connected, so it is its turn; the only cost is its claim of 2 s.
    let guard = soon("the second", granted(second)).await;
    let late_us = grants.at("k", locks.node().as_str()).await - given_us;
    assert!((1_900_000..6_000_000).contains(&late_us), "overtaken after {late_us} us");
    release(guard).await;
    let guard = soon("the third", granted(third)).await;

    signal::resume(child.pid());
    let redis = &mut setup.redis;
    eventually("it is back in the queue", crate::common::SOON, async || {
        queue(redis, "k").await.iter().any(|member| member.contains(child.node()))
    })
    .await;
    assert_eq!(guard.state(), HoldState::Held, "a late grant does no harm");
    assert!(holder(&mut setup.redis, "k").await.expect("held").contains(locks.node().as_str()));
    let before = guard.fencing_token().get();
    release(guard).await;
    assert!(child.granted("a").await > before);
    child.send("status");
    assert_eq!(child.answer("status").await, "0 1 1", "waiting, holding, positions lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_knows_its_loss_at_once_when_continued_and_harms_nobody() {
    let mut setup = setup().await;
    let file = Witness::default();
    let mut child = setup.child().await;
    child.lock("a", "k", SHORT).await;
    let stale = child.granted("a").await;
    assert!(file.write(stale));
    let locks = setup.direct().await;
    let next = queued(&locks, "k", SHORT, &mut setup.redis).await;
    signal::stop(child.pid());
    let guard = soon("the takeover", granted(next)).await;
    assert!(file.write(guard.fencing_token().get()));

    // The line is written while the child is stopped, so that it is processed first.
    child.send("state a");
    child.send("release a");
    signal::resume(child.pid());
    assert_eq!(child.answer("state a").await, "Lost");
    assert_eq!(child.answer("released a").await, "Lost");
    assert!(!file.write(stale), "a fenced write of the stale holder is refused");
    assert!(holder(&mut setup.redis, "k").await.expect("held").contains(locks.node().as_str()));
    assert_eq!(guard.state(), HoldState::Held);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_is_told_of_its_loss_when_continued() {
    let mut setup = setup().await;
    let mut child = setup.child().await;
    child.lock("a", "k", SHORT).await;
    child.granted("a").await;
    signal::stop(child.pid());
    let redis = &mut setup.redis;
    eventually("its lease ends", crate::common::SOON, async || holder(redis, "k").await.is_none())
        .await;
    signal::resume(child.pid());
    child.answer("lost a").await;
    assert_eq!(holder(&mut setup.redis, "k").await, None, "a late renewal does not revive it");
}

// A single thread: while it is blocked, no task can run, as in a stopped process.
#[tokio::test]
async fn a_guard_knows_its_loss_by_the_clock_before_any_task_could_tell_it() {
    let setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", SHORT / 4).await;
    assert_eq!(guard.state(), HoldState::Held);
    while Instant::now() < guard.deadline() {
        std::thread::sleep(SHORT / 100);
    }
    assert!(guard.is_lost());
    assert_eq!(guard.state(), HoldState::Lost);
    let error = guard.reenter().expect_err("it is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    let error = soon("the release", guard.release()).await.expect_err("it is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
}
