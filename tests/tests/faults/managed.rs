//! Managed servers: a provider disables commands, and puts proxies in front.

use lock_tests::{RedisOptions, RedisServer};
use lockcore::{LockErrorKind, Locks};
use redis::cmd;

use crate::common::soon;
use crate::refused::refused;

/// Starts a server without these commands.
fn server_without(commands: &[&str]) -> RedisServer {
    let without = |options: RedisOptions, command: &&str| {
        options.arg("rename-command", &format!("{command} switched-off-{command}"))
    };
    commands.iter().fold(RedisServer::options(), without).start()
}

/// Acquires, queues, hands off, tries, inspects and releases.
async fn everything_works(server: &RedisServer) {
    let connect = async || soon("accepted", Locks::connect(server.url())).await.expect("accepted");
    let one = connect().await;
    let other = connect().await;
    let guard = soon("granted", one.lock("k")).await.expect("free");
    let waiting = tokio::spawn(other.lock("k"));
    lock_tests::eventually("it waits", crate::common::SOON, async || {
        one.inspect("k").await.is_ok_and(|lock| lock.waiters.len() == 1)
    })
    .await;
    assert!(soon("an answer", one.try_lock("k")).await.expect("an answer").is_none());
    soon("released", guard.release()).await.expect("held");
    let guard = soon("handed over", waiting).await.expect("a task").expect("handed over");
    soon("released", guard.release()).await.expect("held");
    let read = soon("granted", one.read("r")).await.expect("free");
    soon("released", read.release()).await.expect("held");
}

#[tokio::test]
async fn commands_that_services_switch_off_are_not_needed() {
    for missing in [
        &["CONFIG", "ACL", "DEBUG", "MONITOR", "SAVE", "BGSAVE", "SHUTDOWN", "REPLICAOF"][..],
        // Without these, the node can neither name its connections nor close them.
        &["CONFIG", "ACL", "CLIENT"],
        // Scripts are then sent with their source at their first use.
        &["CONFIG", "SCRIPT"],
    ] {
        everything_works(&server_without(missing)).await;
    }
}

#[tokio::test]
async fn a_command_that_scripts_need_is_named_at_connect() {
    for missing in ["EVALSHA", "ZADD", "PSETEX", "INCR", "TIME"] {
        let server = server_without(&[missing]);
        refused(&server.url(), LockErrorKind::Unsupported, &[missing]).await;
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_subscriptions_is_refused_in_its_words() {
    let server = server_without(&["SUBSCRIBE"]);
    refused(&server.url(), LockErrorKind::Unsupported, &["subscribe", "unknown command"]).await;
}

#[tokio::test]
async fn a_server_that_is_refused_keeps_nothing_of_ours() {
    let server = server_without(&["PUBLISH"]);
    let error = soon("an answer", Locks::connect(server.url())).await.expect_err("needed");
    assert!(error.to_string().to_lowercase().contains("publish"), "{error}");
    let mut redis = lock_tests::Raw::connect(&server.url()).await;
    assert_eq!(redis.ask::<usize>(&cmd("DBSIZE")).await, 0);
}
