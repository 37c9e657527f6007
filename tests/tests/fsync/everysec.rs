//! `appendfsync everysec`, on a server whose WAITAOF waits for it: a disk that is slow or full.

use std::time::Duration;

use lock_tests::{Request, eventually};
use lockcore::{LockErrorKind, Locks};
use proto::Topology;
use proto::wire::scripts;
use redis::cmd;
use tokio::time::Instant;

use crate::common::{SOON, fsync, refused_and_given_back, setup, soon};

const SLOW: Duration = Duration::from_secs(4);

#[tokio::test]
#[ignore = "needs Redis 8.2 or newer in REDIS_SERVER: scripts/test --servers"]
async fn a_guard_is_there_only_once_its_grant_is_on_the_disk() {
    let setup = setup("everysec").await;
    let locks = setup.node().await;
    let mut longest = Duration::ZERO;
    for number in 0..4 {
        let asked = Instant::now();
        let key = format!("key {number}");
        let guard = soon("a guard", locks.lock(&key)).await.expect("granted");
        assert!(setup.disk.has(&key), "{key} is not on the disk");
        longest = longest.max(asked.elapsed());
        drop(guard);
    }
    assert!(longest > Duration::from_millis(500), "nothing has waited: {longest:?}");
    // Without the option nothing waits.
    let locks = setup.node_with(Locks::builder()).await;
    let guard = soon("a guard", locks.lock("quick")).await.expect("granted");
    assert!(!setup.disk.has("quick"));
    drop(guard);
}

#[tokio::test]
#[ignore = "needs Redis 8.2 or newer in REDIS_SERVER: scripts/test --servers"]
async fn a_disk_that_is_too_slow_is_refused_at_connect_and_later() {
    let setup = setup("everysec").await;
    let builder = || fsync().request_timeout(Duration::from_millis(1_500));
    let locks = setup.node_with(builder()).await;
    drop(soon("a guard", locks.lock("key")).await.expect("granted"));
    setup.disk.takes(SLOW);
    let answer = soon("an answer", locks.lock("key")).await;
    refused_and_given_back(answer, &["appendfsync", "the disk"], &locks).await;
    let error = soon("an answer", builder().connect(setup.server.url())).await;
    let error = error.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("appendfsync"), "{error}");
    setup.disk.takes(Duration::ZERO);
    let granted =
        lock_tests::eventually_some("it is granted", SOON, async || locks.lock("key").await.ok());
    drop(granted.await);
}

#[tokio::test]
#[ignore = "needs Redis 8.2 or newer in REDIS_SERVER: scripts/test --servers"]
async fn a_hold_whose_renewals_a_slow_disk_keeps_back_is_lost() {
    const LEASE: Duration = Duration::from_secs(5);
    let setup = setup("everysec").await;
    let builder = fsync().request_timeout(Duration::from_millis(1_500));
    let locks = setup.node_with(builder).await;
    let guard = soon("a guard", locks.key("key").lease(LEASE).lock()).await.expect("granted");
    let first = guard.deadline();
    setup.disk.takes(3 * LEASE);
    soon("the loss", guard.lost()).await;
    assert!(guard.deadline() < first + LEASE / 2, "a renewal counted");
    setup.disk.takes(Duration::ZERO);
}

fn confirms(request: &Request) -> bool {
    let script = scripts::of_queue(Topology::Single).get("confirm").expect("there is one");
    request.mentions(&script.digest) || request.mentions(&script.source)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Redis 8.2 or newer in REDIS_SERVER: scripts/test --servers"]
async fn a_grant_before_the_disk_is_full_is_refused_with_misconf() {
    let mut setup = setup("everysec").await;
    let locks = setup.node().await;
    drop(soon("a guard", locks.lock("warm")).await.expect("granted"));
    let held = setup.proxy.hold_request(confirms);
    let waiting = tokio::spawn(locks.lock("key"));
    soon("a confirmation", held.struck()).await;
    setup.disk.is_full(true);
    eventually("the server notices", SOON, async || {
        let _ = setup.redis.try_ask::<()>(cmd("SET").arg("written").arg(1)).await;
        setup.redis.info("persistence").await.contains("aof_last_write_status:err")
    })
    .await;
    held.release();
    let answer = soon("an answer", waiting).await.expect("no panic");
    let error = answer.as_ref().expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("MISCONF"), "{error}");
    setup.disk.is_full(false);
    refused_and_given_back(answer, &["MISCONF"], &locks).await;
}
