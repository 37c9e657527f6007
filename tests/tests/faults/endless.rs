//! Lock keys that another program made persistent (PERSIST): they get an expiry again.

use std::time::Duration;

use lock_tests::{eventually, lock_key};
use redis::cmd;

use crate::common::{LONG, SHORT, SOON, Setup, granted, held, holder, release, setup, soon};

async fn persist(setup: &mut Setup, key: &str) {
    assert!(setup.redis.ask::<bool>(cmd("PERSIST").arg(lock_key(key))).await, "it had an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_key_without_an_end_gets_one_by_the_next_renewal() {
    for has_waiter in [false, true] {
        let mut setup = setup().await;
        let locks = setup.direct().await;
        let other = setup.direct().await;
        let guard = held(&locks, "k", SHORT).await;
        let waiting = match has_waiter {
            true => Some(crate::common::queued(&other, "k", LONG, &mut setup.redis).await),
            false => None,
        };
        persist(&mut setup, "k").await;
        let redis = &mut setup.redis;
        let lasts = async || redis.hold("k").await.is_some_and(|(_, left)| left > 0);
        eventually("it ends again", SHORT, lasts).await;
        let (_, left) = redis.hold("k").await.expect("held");
        assert!(Duration::from_millis(left.unsigned_abs()) <= SHORT, "{left} ms");
        release(guard).await;
        if let Some(waiting) = waiting {
            release(granted(waiting).await).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_key_without_an_end_of_a_killed_holder_gets_one_by_the_next_who_asks() {
    let mut setup = setup().await;
    let mut child = setup.child().await;
    child.lock("dead", "k", SHORT).await;
    child.granted("dead").await;
    child.kill();
    persist(&mut setup, "k").await;
    let locks = setup.direct().await;
    let guard = soon("the lock", locks.key("k").lease(LONG).lock()).await.expect("in the end");
    let member = holder(&mut setup.redis, "k").await.expect("held");
    assert!(member.contains(locks.node().as_str()), "{member}");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_keys_and_holds_of_parts_without_an_end_get_one_by_the_next_renewal() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let read = soon("a read", locks.key("k").lease(SHORT).read()).await.expect("free");
    persist(&mut setup, "k").await;
    let redis = &mut setup.redis;
    eventually("the lock key ends again", SOON, async || redis.pttl(&lock_key("k")).await > 0)
        .await;
    soon("the release", read.release()).await.expect("held until now");
}
