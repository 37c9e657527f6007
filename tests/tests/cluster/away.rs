//! A primary that is away and has no replica, while the others serve.

use std::time::Duration;

use lock_tests::{Clustered, RedisOptions, eventually, queued};
use lockcore::{HoldState, LockErrorKind};
use redis::cmd;
use tokio::time::Instant;

use crate::common::{SOON, connect, held, release, soon};

/// Longer than it takes to notice that a killed server is gone.
const WAIT: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_queued_wait_that_ends_while_its_own_primary_is_away_is_an_outage() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let mut all = Vec::new();
    for primary in [1, 0] {
        let key = clustered.key_of(primary, 0);
        let guard = held(&locks, &key).await;
        let waiting = tokio::spawn(locks.key(&key).wait(WAIT).lock().into_future());
        queued(&locks, &key, 1).await;
        all.push((guard, waiting));
    }
    clustered.server(1).kill();
    eventually("the link is down", SOON, async || all[0].0.state() == HoldState::Uncertain).await;
    assert!(!all[0].1.is_finished(), "it waits for its turn");
    assert_eq!(all[1].0.state(), HoldState::Held, "the other primary is up");
    let mut kinds = Vec::new();
    for (_, waiting) in &mut all {
        let error = soon("the end", waiting).await.expect("no panic").expect_err("it is held");
        kinds.push((error.kind(), error.is_outage()));
    }
    assert_eq!(kinds, [(LockErrorKind::Unavailable, true), (LockErrorKind::Timeout, false)]);
}

/// With this setting a script begins although the Cluster is down, and its first write is refused
/// with an error of its own.
#[tokio::test]
async fn a_wait_goes_on_while_a_cluster_that_is_down_serves_reads() {
    const STORE_WAIT: Duration = Duration::from_secs(1);
    let options = RedisOptions::default().arg("cluster-allow-reads-when-down", "yes");
    let mut clustered = Clustered::start(options, false, Duration::from_secs(2)).await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(0, 0);
    release(held(&locks, &key).await).await;
    let mut redis = clustered.raw(0).await;
    for number in [1, 2] {
        clustered.server(number).freeze();
    }
    eventually("the Cluster is down", SOON, async || {
        let info: String = redis.ask(cmd("CLUSTER").arg("INFO")).await;
        info.contains("cluster_state:fail")
    })
    .await;
    let started = Instant::now();
    let refused = soon("the end", locks.key(&key).store_wait(STORE_WAIT).lock()).await;
    let error = refused.expect_err("the Cluster is down");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() >= STORE_WAIT, "it took {:?}", started.elapsed());
    let waiting = tokio::spawn(locks.key(&key).store_wait(SOON).lock().into_future());
    tokio::time::sleep(STORE_WAIT).await;
    assert!(!waiting.is_finished(), "it waits for the Cluster");
    for number in [1, 2] {
        clustered.server(number).thaw();
    }
    let guard = soon("the grant", waiting).await.expect("no panic").expect("the Cluster is up");
    release(guard).await;
}
