//! A server with full memory: it grants no new lock, but holds and waiters continue.

use std::time::Duration;

use lock_tests::{eventually, patience_key};
use lockcore::{HoldState, LockErrorKind};

use crate::common::{LONG, SHORT, SOON, granted, held, nothing_left, queued, release, setup, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory_refuses_new_locks_by_name_while_holds_and_waiters_go_on() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let other = setup.direct().await;
    let guard = held(&locks, "k", SHORT).await;
    let waiting = queued(&other, "k", SHORT, &mut setup.redis).await;
    let dropped = held(&locks, "dropped", LONG).await;
    let patience = patience_key("k", other.node().as_str());
    setup.redis.configure("maxmemory", "1").await;

    for key in ["new", "k"] {
        let error = soon("an answer", locks.lock(key)).await.expect_err("it is full");
        assert_eq!(error.kind(), LockErrorKind::OutOfMemory, "{error}");
        assert!(error.to_string().contains("memory"), "{error}");
    }
    let error = soon("an answer", locks.try_lock("new")).await.expect_err("it is full");
    assert_eq!(error.kind(), LockErrorKind::OutOfMemory, "{error}");

    let first_deadline = guard.deadline();
    eventually("it is renewed", SOON, async || guard.deadline() > first_deadline + SHORT).await;
    let redis = &mut setup.redis;
    // A touch, every 0.8 s for such a lease, sets 15 s.
    eventually("time passes", SOON, async || redis.pttl(&patience).await < 14_500).await;
    eventually("the waiter is touched", SOON, async || redis.pttl(&patience).await > 14_700).await;
    drop(dropped);
    nothing_left(redis, "dropped").await;
    release(guard).await;
    let guard = granted(waiting).await;
    // The claim of the waiter is renewed as well.
    let first_deadline = guard.deadline();
    eventually("it is renewed", SOON, async || guard.deadline() > first_deadline).await;
    assert_eq!(guard.state(), HoldState::Held);
    let one = held_count(&other);
    let two = held_count(&locks);
    assert_eq!((one, two), (1, 0));
    release(guard).await;
    nothing_left(redis, "k").await;
    redis.configure("maxmemory", "0").await;
    let limit = Duration::from_secs(5);
    let guard = soon("the lock", locks.lock_timeout("k", limit)).await.expect("there is memory");
    release(guard).await;
}

fn held_count(locks: &lockcore::Locks) -> usize {
    locks.status().holding
}
