//! Users with few rights (ACL): the minimum that works, and the errors when any right is missing.

use std::time::Duration;

use lock_tests::acl::{manual_commands, peers_rules, set_user};
use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::{HoldState, LockError, LockErrorKind, Locks, LocksBuilder};
use redis::cmd;

use crate::common::{LONG, SOON, connected, granted, held, release, soon};

/// The useful but optional rights: version and memory policy, scripts by digest from the first call
/// on, and closing a replaced connection.
const OPTIONAL: &[&str] = &["info", "script|load", "client|info", "client|kill"];

fn url(address: std::net::SocketAddr) -> String {
    format!("redis://locker:PASSWORD@{address}/")
}

fn shop() -> LocksBuilder {
    Locks::builder().namespace("shop")
}

async fn connect(builder: LocksBuilder, server: &RedisServer) -> Result<Locks, LockError> {
    soon("an answer", builder.connect(url(server.address()))).await
}

/// Starts a server with the manual's user, except for some rules.
async fn server_without(missing: &[&str]) -> (RedisServer, Raw) {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&set_user("locker", |rule| missing.contains(&rule))).await;
    (server, redis)
}

async fn allow(redis: &mut Raw, rules: &[&str]) {
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg(rules)).await;
}

fn denied(connected: Result<Locks, LockError>) -> String {
    let error = connected.expect_err("a right is missing");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(!text.contains("PASSWORD"), "{text}");
    text
}

/// The rules that an error advises to allow.
fn advised(text: &str) -> Vec<&str> {
    let (_, rules) = text.split_once("allow ").unwrap_or_else(|| panic!("no advice: {text}"));
    rules.split(' ').collect()
}

/// The scripts that a node runs when its connection is replaced, after 50 released locks.
async fn scripts_after(replaces: impl AsyncFnOnce(&mut RedisServer, &Proxy)) -> u64 {
    let (mut server, _) = server_without(OPTIONAL).await;
    let proxy = Proxy::start(server.address());
    let locks = soon("an answer", shop().connect(url(proxy.address()))).await;
    let locks = locks.expect("it may connect");
    for number in 0..50 {
        release(held(&locks, &number.to_string(), LONG).await).await;
    }
    replaces(&mut server, &proxy).await;
    connected(&locks).await;
    release(held(&locks, "another", LONG).await).await;
    let idle = async || locks.status().releasing == 0;
    eventually("nothing is to be given back", SOON, idle).await;
    let mut redis = Raw::connect(&server.url()).await;
    lock_tests::CommandStats::read(&mut redis).await.calls("evalsha")
}

// M4: each connection counted as a new server, so that all released locks were released once more.
#[tokio::test]
async fn without_the_right_of_info_a_server_is_recognised_from_7_0_on() {
    let before = scripts_after(async |_, _| {}).await;
    let cut = scripts_after(async |_, proxy| {
        proxy.cut_all().await;
    });
    let cut = cut.await - before;
    if RedisServer::start().version() < (7, 0) {
        assert!((50..70).contains(&cut), "{cut} scripts");
    } else {
        assert!(cut < 10, "{cut} scripts");
    }
}

/// Runs all commands of a node, also after its connections were replaced.
async fn exercise(server: &RedisServer) {
    let proxy = Proxy::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    let near = connect(shop(), server).await.expect("it may connect");
    let far = soon("an answer", shop().connect(url(proxy.address()))).await;
    let far = far.expect("it may connect");
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
    nothing_was_denied(&mut redis).await;
}

async fn nothing_was_denied(redis: &mut Raw) {
    let log: Vec<redis::Value> = redis.ask(cmd("ACL").arg("LOG")).await;
    assert!(log.is_empty(), "something was denied: {log:?}");
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
async fn a_user_with_the_optional_rights_can_do_everything_and_is_denied_nothing() {
    let (server, mut redis) = server_without(&[]).await;
    let optional = OPTIONAL.iter().map(|name| format!("+{name}"));
    let optional: Vec<_> = optional.chain(["~lock:node:*".to_owned()]).collect();
    allow(&mut redis, &optional.iter().map(String::as_str).collect::<Vec<_>>()).await;
    exercise(&server).await;
}

/// Tests the optional rights before 7.0: there a script cannot query its user's rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_least_rights_can_do_everything_and_from_7_0_on_is_denied_nothing() {
    let (server, mut redis) = server_without(&[]).await;
    if server.version() >= (7, 0) {
        exercise(&server).await;
        return;
    }
    let locks = connect(shop(), &server).await.expect("it may connect");
    release(held(&locks, "k", LONG).await).await;
    let mut log: Vec<redis::Value> = redis.ask(cmd("ACL").arg("LOG")).await;
    // If that took a second, also the node key.
    log.retain(|entry| !format!("{entry:?}").contains("lock:node:"));
    assert_eq!(log.len(), 3, "INFO, CLIENT and SCRIPT: {log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_any_one_of_the_needed_rights_is_denied_at_connect_by_its_exact_name() {
    let (server, mut redis) = server_without(&[]).await;
    // Only scripts that can query rights do so at connect: before 7.0, PING is first sent on an
    // idle connection, and EVAL is first needed when a server has dropped the scripts.
    let later = |name: &str| server.version() < (7, 0) && ["ping", "eval"].contains(&name);
    let mut looked_at = 0;
    for missing in manual_commands().filter(|name| !later(name)) {
        redis.ask::<()>(&set_user("locker", |rule| rule.strip_prefix('+') == Some(missing))).await;
        let text = denied(connect(shop(), &server).await);
        assert_eq!(advised(&text), [format!("+{missing}")], "without {missing}: {text}");
        looked_at += 1;
    }
    assert!(looked_at >= 25, "{looked_at}");
}

// B4: without a login the connection used the default user, with all its rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_a_password_in_the_url_is_that_user() {
    let (server, mut redis) = server_without(&[]).await;
    allow(&mut redis, &["nopass"]).await;
    let address = server.address();
    for url in [
        format!("redis://locker@{address}/"),
        format!("redis://locker:@{address}/"),
        format!("redis://{address}/?user=locker&protocol=resp3"),
    ] {
        let locks = soon("an answer", shop().connect(&url)).await.expect("any password does");
        let clients: String = redis.ask(cmd("CLIENT").arg("LIST")).await;
        let of_locker = clients.lines().filter(|client| client.contains("user=locker")).count();
        assert_eq!(of_locker, 2, "{url}: {clients}");
        soon("the end", locks.shutdown(Duration::ZERO)).await;
        eventually("its connections are gone", SOON, async || {
            let clients: String = redis.ask(cmd("CLIENT").arg("LIST")).await;
            !clients.contains("user=locker")
        })
        .await;
    }
    allow(&mut redis, &["resetpass", ">PASSWORD"]).await;
    let text = soon("an answer", shop().connect(format!("redis://locker@{address}/"))).await;
    let text = text.expect_err("it has a password").to_string();
    assert!(text.contains("login") || text.contains("WRONGPASS"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_missing_is_named_at_once_and_nothing_else() {
    let missing = ["+publish", "+del", "&lockcore:grants:*", "~lock:{shop:*"];
    let (server, _redis) = server_without(&missing).await;
    let text = denied(connect(shop(), &server).await);
    let mut advised = advised(&text);
    advised.sort_unstable();
    assert_eq!(advised, ["+del", "+publish", "~lock:{shop:*"], "{text}");
    // A server checks the channel of a command only if the command is allowed.
    let (server, _redis) = server_without(&missing[1..]).await;
    let text = denied(connect(shop(), &server).await);
    assert!(self::advised(&text).contains(&"&lockcore:grants:*"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_channel_is_denied_at_connect_by_its_name() {
    let (server, _redis) = server_without(&["&lockcore:grants:*"]).await;
    let text = denied(connect(shop(), &server).await);
    assert_eq!(advised(&text), ["&lockcore:grants:*"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_shared_with_jvms_names_the_channels_that_are_missing_and_not_those_that_are_there()
{
    let (server, mut redis) = server_without(&[]).await;
    let rules: Vec<_> = peers_rules().filter(|rule| *rule != "allchannels").collect();
    allow(&mut redis, &rules).await;
    let text = denied(connect(shop().redisson_peers(true), &server).await);
    assert!(text.contains("&redisson_lock__channel:*") && text.contains("allchannels"), "{text}");
    assert!(!text.contains("lockcore:grants") && !text.contains("+publish"), "{text}");
    // A pattern must be among the channels letter by letter, and this pattern is never the same
    // twice.
    allow(&mut redis, &["&redisson_lock__channel:*"]).await;
    let text = denied(connect(shop().redisson_peers(true), &server).await);
    assert!(text.contains("allchannels"), "{text}");
    allow(&mut redis, &["allchannels"]).await;
    connect(shop().redisson_peers(true), &server).await.expect("nothing is missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_for_queues_shared_with_jvms_are_enough_and_each_of_them_is_needed() {
    let (server, mut redis) = server_without(&[]).await; // other rules follow
    let with_peers = || shop().redisson_peers(true);
    // Before Redis 7 no script can query rights that it does not use itself.
    let is_known = |rule: &&str| server.version() >= (7, 0) || !["+eval", "+ping"].contains(rule);
    let rules = peers_rules().filter(|rule| !["on", ">PASSWORD"].contains(rule));
    for missing in rules.filter(is_known) {
        let rules = peers_rules().filter(|rule| *rule != missing);
        // Before Redis 7, a reset user has all channels.
        let none = ["reset", "resetchannels"];
        allow(&mut redis, &none.into_iter().chain(rules).collect::<Vec<_>>()).await;
        let connected = connect(with_peers(), &server).await;
        assert!(connected.is_err(), "{missing} is not needed");
        let text = denied(connected);
        assert!(text.contains(missing), "without {missing}: {text}");
    }
    allow(&mut redis, &["reset"].into_iter().chain(peers_rules()).collect::<Vec<_>>()).await;
    redis.ask::<()>(cmd("ACL").arg("LOG").arg("RESET")).await;
    let near = connect(with_peers(), &server).await;
    let far = connect(with_peers(), &server).await;
    let near = near.expect("all is allowed");
    let far = far.expect("all is allowed");
    let guard = held(&near, "k", LONG).await;
    let waiting = tokio::spawn(far.lock("k"));
    eventually("it waits", SOON, async || {
        near.inspect("k").await.expect("an inspection").waiters.len() == 1
    })
    .await;
    release(guard).await;
    release(granted(waiting).await).await;
    if server.version() >= (7, 0) {
        nothing_was_denied(&mut redis).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_counter_of_tokens_is_denied_at_connect_by_its_name() {
    let (server, _redis) = server_without(&["~lock:tokens"]).await;
    let text = denied(connect(shop(), &server).await);
    assert_eq!(advised(&text), ["~lock:tokens"], "{text}");
    let text = denied(connect(Locks::builder(), &server).await);
    assert_eq!(advised(&text), ["~lock:tokens"], "also without a namespace: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_namespace_is_denied_at_connect_with_the_patterns_to_allow() {
    let (server, _redis) = server_without(&[]).await;
    let text = denied(connect(Locks::builder().namespace("other"), &server).await);
    assert_eq!(advised(&text), ["~lock:{other:*"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_namespace_the_keys_are_denied_when_locking_and_the_commands_at_connect() {
    let (server, mut redis) = server_without(&[]).await;
    let locks =
        connect(Locks::builder(), &server).await.expect("which names are whose is not known");
    release(held(&locks, "shop:k", LONG).await).await;
    let error = soon("an answer", locks.try_lock("other:k")).await.expect_err("not its name");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(text.contains("allow ~lock:{NAME}*"), "{text}");
    redis.ask::<()>(&set_user("locker", |rule| rule == "+del")).await;
    let text = denied(connect(Locks::builder(), &server).await);
    assert_eq!(advised(&text), ["+del"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_away_later_is_denied_and_named_where_the_server_names_it() {
    let (server, mut redis) = server_without(&[]).await;
    let locks = connect(shop(), &server).await.expect("it has the rights");
    redis.ask::<()>(&set_user("locker", |rule| rule == "+psetex")).await;
    let error = soon("an answer", locks.try_lock("k")).await.expect_err("PSETEX is missing");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    let text = error.to_string();
    // 6.2 and 7.0 do not name the command of a script.
    let advice = if server.version() >= (7, 2) { "allow +psetex" } else { "connect again" };
    assert!(text.contains(advice), "{text}");
    redis.ask::<()>(&set_user("locker", |rule| rule == "+evalsha")).await;
    let error = soon("an answer", locks.try_lock("k")).await.expect_err("EVALSHA is missing");
    assert!(error.to_string().contains("allow +evalsha"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_or_not_allowed_is_said_so() {
    let (server, _redis) = server_without(&[]).await;
    let there = soon("an answer", Locks::connect(format!("{}5", server.url()))).await;
    there.expect("a server has 16 databases");
    let error = soon("an answer", Locks::connect(format!("{}99", server.url()))).await;
    let error = error.expect_err("it has no more");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("database"), "{error}");
    let not_allowed = format!("{}5", url(server.address()));
    let text = denied(soon("an answer", shop().connect(not_allowed)).await);
    assert_eq!(advised(&text), ["+select"], "{text}");
}

// The server refuses a whole script because of a single key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_may_not_be_renewed_any_more_costs_no_other_its_renewal() {
    let (server, mut redis) = server_without(&[]).await;
    let locks = connect(shop(), &server).await.expect("it may connect");
    let lease = Duration::from_secs(2);
    let lock =
        async |key: &str| soon("the lock", locks.key(key).lease(lease).lock()).await.expect("free");
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(lock(&format!("allowed {number}")).await);
    }
    let denied = lock("denied").await;
    allow(&mut redis, &["resetkeys", "~lock:tokens", "~lock:{shop:allowed*"]).await;
    soon("the loss", denied.lost()).await;
    let lost: Vec<_> = guards.iter().filter(|guard| guard.state() != HoldState::Held).collect();
    assert!(lost.is_empty(), "lost too: {lost:?}");
    for guard in guards {
        release(guard).await;
    }
}
