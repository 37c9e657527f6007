//! What is refused when a `Locks` is built, and when it connects.

use std::time::Duration;

use lock_tests::acl::set_user;
use lock_tests::{Disk, Raw, RedisServer};
use lockcore::{LockError, LockErrorKind, Locks, LocksBuilder, MemoryStore, Quorum};
use redis::cmd;

use crate::common::{fsync, setup, soon};

async fn refusal(builder: LocksBuilder, url: &str) -> LockError {
    soon("an answer", builder.connect(url)).await.expect_err("refused")
}

#[track_caller]
fn check(error: &LockError, kind: LockErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in: {error}");
    }
}

#[tokio::test]
async fn a_store_that_has_no_disk_of_its_own_is_refused_and_named() {
    let option = LockErrorKind::InvalidOption;
    let error = fsync().on_memory(&MemoryStore::new()).expect_err("refused");
    check(&error, option, &["require_fsync", "in-memory"]);
    let error = fsync().in_memory_quorum(3).expect_err("refused");
    check(&error, option, &["require_fsync", "quorum"]);
    let quorum =
        Quorum::new(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://127.0.0.1:3/"]);
    let error = soon("an answer", fsync().connect(quorum)).await.expect_err("refused");
    check(&error, option, &["require_fsync", "quorum"]);
}

#[tokio::test]
async fn a_client_a_configuration_and_a_pool_of_the_user_are_refused() {
    const URL: &str = "redis://127.0.0.1:1/";
    let client = || redis::Client::open(URL).expect("a URL");
    let config = || deadpool_redis::Config::from_url(URL);
    let pool = config().create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a pool");
    let words = ["require_fsync", "connect with a URL"];
    for error in [
        soon("an answer", fsync().connect(client())).await.expect_err("refused"),
        soon("an answer", fsync().connect(config())).await.expect_err("refused"),
        soon("an answer", fsync().from_pool(pool, URL)).await.expect_err("refused"),
    ] {
        check(&error, LockErrorKind::InvalidOption, &words);
    }
    // Without the option the only error is that the server is unreachable.
    let error = soon("an answer", Locks::builder().connect(client())).await.expect_err("nobody");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
}

#[tokio::test]
async fn a_time_out_of_a_third_of_the_lease_is_refused_before_anything_is_sent() {
    let lease = Duration::from_secs(6);
    let nobody = "redis://127.0.0.1:1/";
    let error = refusal(fsync().lease(lease), nobody).await;
    check(&error, LockErrorKind::InvalidOption, &["require_fsync", "2s", "6s"]);
    let shorter = fsync().lease(lease).request_timeout(Duration::from_millis(1_999));
    assert_eq!(refusal(shorter, nobody).await.kind(), LockErrorKind::Unavailable);
    let shorter = fsync().lease(lease).require_replicas(1, Duration::from_millis(1_999));
    assert_eq!(refusal(shorter, nobody).await.kind(), LockErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_without_waitaof_is_refused_with_its_version() {
    let server = RedisServer::start();
    let error = refusal(fsync(), &server.url()).await;
    match server.version() < (7, 2) {
        true => check(&error, LockErrorKind::Unsupported, &["WAITAOF", "7.2 or newer"]),
        // The server has WAITAOF, but no append-only file.
        false => check(&error, LockErrorKind::Unsupported, &["append"]),
    }
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_server_that_keeps_no_append_only_file_is_refused_with_the_setting() {
    let server = Disk::new();
    let server = server.options("always").arg("appendonly", "no").start();
    let error = refusal(fsync(), &server.url()).await;
    check(&error, LockErrorKind::Unsupported, &["WAITAOF", "set appendonly to yes"]);
    // Without the option the append-only file is not checked.
    soon("a connection", Locks::connect(server.url())).await.expect("accepted");
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn the_right_to_wait_for_the_disk_is_asked_for_only_with_the_option() {
    let mut setup = setup("always").await;
    setup.redis.ask::<()>(&set_user("locks", |_| false)).await;
    let url = format!("redis://locks:PASSWORD@{}/", setup.server.address());
    let builder = || Locks::builder().namespace("shop");
    soon("a connection", builder().connect(&url)).await.expect("accepted");
    let error = refusal(builder().require_fsync(true), &url).await;
    check(&error, LockErrorKind::Denied, &["allow", "+waitaof"]);
    let mut allow = cmd("ACL");
    allow.arg("SETUSER").arg("locks").arg("+waitaof").arg("+config|get");
    setup.redis.ask::<()>(&allow).await;
    let locks = soon("a connection", builder().require_fsync(true).connect(&url)).await;
    let guard = soon("a guard", locks.expect("accepted").lock("key")).await.expect("granted");
    assert!(setup.disk.has("shop:key"));
    drop(guard);
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_policy_that_syncs_never_is_refused_in_time_and_named() {
    let setup = setup("no").await;
    let builder = fsync().request_timeout(Duration::from_millis(300));
    let error = soon("an answer", builder.connect(setup.server.url())).await.expect_err("refused");
    assert!(
        matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Unsupported),
        "{error}"
    );
    check(&error, error.kind(), &["appendfsync", "always"]);
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn everysec_is_refused_where_waitaof_does_not_wait_for_the_disk() {
    let setup = setup("everysec").await;
    let mut redis = Raw::connect(&setup.server.url()).await;
    // The first second after a start may be synced at once.
    let mut waits = false;
    for number in 0..3 {
        redis.ask::<()>(cmd("SET").arg("written").arg(format!("number {number}"))).await;
        let mut wait = cmd("WAITAOF");
        let _: (u32, u32) = redis.ask(wait.arg(1).arg(0).arg(3_000)).await;
        waits = setup.disk.has(&format!("number {number}"));
    }
    let connected = soon("an answer", fsync().connect(setup.server.url())).await;
    match waits {
        true => drop(connected.expect("accepted")),
        false => {
            let error = connected.expect_err("refused");
            check(&error, LockErrorKind::Unsupported, &["appendfsync is everysec", "always"]);
        }
    }
}
