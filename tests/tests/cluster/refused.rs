//! Refusals: a typed error that names the reason.

use lock_tests::acl::set_user;
use lock_tests::{Clustered, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks, LocksBuilder};
use redis::cmd;

use crate::common::{SOON, soon};

async fn refused(builder: LocksBuilder, url: &str, kind: LockErrorKind, words: &[&str]) {
    let error = soon("an answer", builder.connect(url)).await.expect_err("refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in: {error}");
    }
}

#[tokio::test]
async fn each_kind_of_server_is_refused_by_the_url_of_the_other_kind() {
    let server = RedisServer::start();
    let url = format!("redis+cluster://{}", server.address());
    let words = ["does not run in cluster mode", "redis://"];
    refused(Locks::builder(), &url, LockErrorKind::Unsupported, &words).await;
    let mut clustered = Clustered::steady().await;
    let url = clustered.server(0).url();
    let words = ["runs in cluster mode", "redis+cluster://"];
    refused(Locks::builder(), &url, LockErrorKind::Unsupported, &words).await;
}

#[tokio::test]
async fn a_cluster_that_serves_no_slots_yet_is_unavailable() {
    let server = RedisServer::options().arg("cluster-enabled", "yes").start();
    let url = format!("redis+cluster://{}", server.address());
    refused(Locks::builder(), &url, LockErrorKind::Unavailable, &["no slots"]).await;
}

#[tokio::test]
async fn jvms_and_databases_are_invalid_options() {
    let peers = Locks::builder().redisson_peers(true);
    let words = ["redisson_peers", "JVMs", "sharded channels"];
    refused(peers, "redis+cluster://127.0.0.1:1", LockErrorKind::InvalidOption, &words).await;
    let url = "redis+cluster://127.0.0.1:1/3";
    let words = ["without a database"];
    refused(Locks::builder(), url, LockErrorKind::InvalidOption, &words).await;
}

#[tokio::test]
async fn a_user_with_the_rights_of_the_manual_and_those_of_a_cluster_can_lock() {
    const MORE: [&str; 3] = ["~lock:tokens:*", "+cluster|shards", "+cluster|slots"];
    let mut clustered = Clustered::steady().await;
    let address = clustered.server(0).address();
    let third = clustered.server(2).address().to_string();
    let allow = async |primary: usize, rules: &[&str]| {
        let mut redis = clustered.raw(primary).await;
        redis.ask::<()>(&set_user("locker", |_| false)).await;
        redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg(rules)).await;
    };
    for primary in 0..3 {
        allow(primary, &MORE).await;
    }
    let url = format!("redis+cluster://locker:PASSWORD@{address}");
    let shop = || Locks::builder().namespace("shop");
    let locks = soon("an answer", shop().connect(&url)).await.expect("accepted");
    for primary in 0..3 {
        let guard = soon("the lock", locks.lock(clustered.key_of(primary, 0))).await;
        guard.expect("allowed").release().await.expect("held");
    }
    allow(0, &MORE[..1]).await;
    refused(shop(), &url, LockErrorKind::Denied, &["+cluster|shards", "+cluster|slots"]).await;
    allow(0, &MORE).await;
    allow(2, &MORE[1..]).await;
    refused(shop(), &url, LockErrorKind::Denied, &[&third, "~lock:tokens:*"]).await;
    allow(2, &MORE).await;
    eventually("it is allowed again", SOON, async || shop().connect(&url).await.is_ok()).await;
}
