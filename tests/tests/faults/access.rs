//! Users with few rights (ACL): the least that works, and what is said when any of it is missing.

use std::time::Duration;

use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks};
use redis::cmd;

use crate::common::{LONG, SOON, connected, granted, release, soon};

/// What scripts and connections run; a user needs each of them.
const COMMANDS: &[&str] = &[
    "evalsha",
    "eval",
    "subscribe",
    "ping",
    "publish",
    "pubsub|numsub",
    "time",
    "del",
    "exists",
    "get",
    "set",
    "hdel",
    "hrandfield",
    "hset",
    "lindex",
    "lpop",
    "lpos",
    "lrange",
    "lrem",
    "persist",
    "pexpire",
    "pexpireat",
    "pttl",
    "rpush",
    "type",
    "zadd",
    "zcard",
    "zcount",
    "zmscore",
    "zrangebyscore",
    "zrem",
    "zrevrange",
    "zscore",
];
/// Useful, not needed: version and memory policy, scripts by digest from the first call on, and
/// ending a connection that was replaced.
const OPTIONAL: &[&str] = &["info", "script|load", "client|info", "client|kill"];
/// `lockcore` without a namespace needs the names of its locks in place of `shop:*`.
const KEYS: &str = "~shop:* ~redisson_lock_*:{shop:*";
const CHANNELS: &str = "&lockcore:grants:*";

/// The ACL of a user called `name` with these commands.
fn user<'a>(name: &str, commands: impl IntoIterator<Item = &'a str>) -> redis::Cmd {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(name).arg("reset").arg("on").arg(">hunter2");
    for rule in KEYS.split(' ').chain([CHANNELS]) {
        set.arg(rule);
    }
    for command in commands {
        set.arg(format!("+{command}"));
    }
    set
}

fn url(address: std::net::SocketAddr, user: &str) -> String {
    format!("redis://{user}:hunter2@{address}/")
}

async fn connect(url: &str) -> Result<Locks, lockcore::LockError> {
    soon("an answer", Locks::builder().namespace("shop").connect(url)).await
}

/// Everything a node does, also after its connections were replaced.
async fn exercise(server: &RedisServer, name: &str) {
    let proxy = Proxy::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    let near = connect(&url(server.address(), name)).await.expect("it may connect");
    let far = connect(&url(proxy.address(), name)).await.expect("it may connect");
    let lease = Duration::from_secs(2);
    let guard = soon("the lock", near.key("k").lease(lease).lock()).await.expect("free");
    let waiting = queued_in_shop(&far, &mut redis).await;
    let gives_up = soon("the end", far.lock_timeout("k", Duration::from_millis(50))).await;
    assert_eq!(gives_up.expect_err("it is held").kind(), LockErrorKind::Timeout);
    assert!(soon("an answer", near.try_lock("k")).await.expect("an answer").is_none());
    let first_deadline = guard.deadline();
    eventually("a renewal", SOON, async || guard.deadline() > first_deadline).await;
    proxy.cut_all().await;
    connected(&far).await;
    release(guard).await;
    let guard = granted(waiting).await;
    assert_eq!(soon("an answer", near.inspect("k")).await.expect("an answer").waiters.len(), 0);
    assert!(soon("an answer", near.force_release("k")).await.expect("an answer"));
    soon("the loss", guard.lost()).await;
    soon("an answer", near.ping()).await.expect("an answer");
    redis.flush_scripts().await;
    release(soon("the lock", near.key("k").lease(LONG).lock()).await.expect("free")).await;
    soon("the end", far.shutdown(Duration::ZERO)).await;
    let denied: Vec<redis::Value> = redis.ask(cmd("ACL").arg("LOG")).await;
    assert!(denied.is_empty(), "something was denied: {denied:?}");
}

async fn queued_in_shop(locks: &Locks, redis: &mut Raw) -> crate::common::Waiting {
    let waiting = tokio::spawn(locks.key("k").lease(Duration::from_secs(2)).lock());
    eventually("it waits, or failed", SOON, async || {
        waiting.is_finished() || crate::common::queue(redis, "shop:k").await.len() == 1
    })
    .await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_least_rights_can_do_everything_and_is_denied_nothing() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let all = COMMANDS.iter().chain(OPTIONAL).copied();
    redis.ask::<()>(&user("locker", all)).await;
    // What redis-rs says of itself on connecting, from Redis 7.2 on; it does not mind a refusal.
    let mut introduction = cmd("ACL");
    introduction.arg("SETUSER").arg("locker").arg("+client|setinfo");
    let _ = redis.try_ask::<()>(&introduction).await;
    exercise(&server, "locker").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_optional_rights_can_lock() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&user("locker", COMMANDS.iter().copied())).await;
    let locks = connect(&url(server.address(), "locker")).await.expect("it may connect");
    release(soon("the lock", locks.lock("k")).await.expect("free")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_any_one_of_the_needed_rights_is_denied_at_connect_by_its_name() {
    // A PING shows whether an idle connection stands, EVAL is for a server that has forgotten the
    // scripts: neither is asked for at connect.
    let later = ["ping", "eval"];
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    for missing in COMMANDS.iter().filter(|command| !later.contains(command)) {
        let commands = COMMANDS.iter().chain(OPTIONAL).filter(|command| *command != missing);
        redis.ask::<()>(&user("locker", commands.copied())).await;
        let error = connect(&url(server.address(), "locker")).await.expect_err(missing);
        assert_eq!(error.kind(), LockErrorKind::Denied, "without {missing}: {error}");
        let name = missing.split('|').next().expect("a name");
        let text = error.to_string().to_lowercase();
        assert!(text.contains(name), "without {missing}: {error}");
        assert!(!text.contains("hunter2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_channel_is_denied_at_connect_by_its_name() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&user("locker", COMMANDS.iter().chain(OPTIONAL).copied())).await;
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg("resetchannels")).await;
    let error = connect(&url(server.address(), "locker")).await.expect_err("no channel");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("lockcore:grants:"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_keys_is_denied_them_by_name_when_locking() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&user("locker", COMMANDS.iter().chain(OPTIONAL).copied())).await;
    let locks = connect(&url(server.address(), "locker")).await.expect("it has the rights");
    release(soon("the lock", locks.lock("k")).await.expect("free")).await;
    let elsewhere = Locks::builder().namespace("other").connect(url(server.address(), "locker"));
    let locks = soon("an answer", elsewhere).await.expect("which names are whose is not known");
    let error = soon("an answer", locks.try_lock("k")).await.expect_err("not its namespace");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("key"), "{error}");
}
