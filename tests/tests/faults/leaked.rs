//! Locks leaked on purpose: requests of the same node do not release them.

use lock_tests::eventually;
use tokio::time::Instant;

use crate::common::{SHORT, SOON, held, holder, queued, release, setup, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaked_lock_stays_held_until_its_lease_ends_whichever_caller_asks_for_it() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", SHORT + SHORT).await;
    let member = holder(&mut setup.redis, "k").await;
    let end = guard.leak();
    // Each reply reports that this node holds the lock.
    for _ in 0..3 {
        assert!(soon("an answer", locks.try_lock("k")).await.expect("an answer").is_none());
    }
    let waiting = queued(&locks, "k", SHORT, &mut setup.redis).await;
    eventually("nothing is open", SOON, async || locks.status().releasing == 0).await;
    assert_eq!(holder(&mut setup.redis, "k").await, member, "it was given back");
    let guard = crate::common::granted(waiting).await;
    assert!(Instant::now() >= end);
    release(guard).await;
}
