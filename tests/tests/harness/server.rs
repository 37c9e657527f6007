//! Facts about `RedisServer`.

use std::net::TcpStream;
use std::time::Duration;

use lock_tests::{CommandStats, Port, Raw, RedisServer, eventually};
use redis::cmd;
use tokio::time::timeout;

#[tokio::test]
async fn a_killed_server_refuses_connections_and_comes_back_empty_on_the_same_port() {
    let mut server = RedisServer::start();
    let url = server.url();
    let pid = server.pid();
    let mut redis = Raw::connect(&url).await;
    let _: () = redis.ask(cmd("SET").arg("key").arg("value")).await;
    server.kill();
    let refused = TcpStream::connect(server.address());
    assert!(refused.is_err());
    server.restart();
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    let mut redis = Raw::connect(&url).await;
    assert_eq!(redis.get("key").await, None);
}

#[tokio::test]
async fn a_frozen_server_accepts_connections_and_answers_only_once_thawed() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    server.freeze();
    TcpStream::connect(server.address()).expect("the kernel accepts for a stopped process");
    let late = tokio::spawn(async move { redis.get("key").await });
    // The time for an event that must not happen: longer can only find more.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!late.is_finished());
    server.thaw();
    let answer = timeout(Duration::from_secs(10), late).await.expect("an answer after the thaw");
    assert_eq!(answer.expect("no panic"), None);
}

#[tokio::test]
async fn a_server_that_is_frozen_again_and_again_is_frozen_each_time() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    for _ in 0..20 {
        server.freeze();
        server.thaw();
        assert_eq!(redis.get("key").await, None);
    }
}

#[test]
fn a_dropped_server_is_gone_frozen_or_not() {
    let server = RedisServer::start();
    let address = server.address();
    server.freeze();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn a_server_can_come_up_on_a_port_chosen_before() {
    let port = Port::free();
    let address = port.address();
    assert!(TcpStream::connect(address).is_err());
    let server = RedisServer::options().start_on_port(port);
    assert_eq!(server.address(), address);
}

#[tokio::test]
async fn options_reach_the_server() {
    let server = RedisServer::options()
        .arg("maxmemory", "64mb")
        .arg("client-output-buffer-limit", "pubsub 1mb 1mb 7")
        .arg("requirepass", "secret")
        .start();
    let mut redis = Raw::connect(&server.url()).await;
    let (_, value): (String, String) = redis.ask(cmd("CONFIG").arg("GET").arg("maxmemory")).await;
    assert_eq!(value, "67108864");
    redis.configure("maxmemory", "32mb").await;
    let _: () = redis.ask(cmd("DEBUG").arg("SLEEP").arg("0")).await;
}

#[test]
#[should_panic(expected = "redis-server ended")]
fn a_server_that_refuses_its_options_is_an_error_with_its_own_words() {
    let _server = RedisServer::options().arg("no-such-directive", "1").start();
}

#[test]
fn many_servers_start_at_once_each_on_its_own_port() {
    let servers: Vec<_> = (0..20).map(|_| std::thread::spawn(RedisServer::start)).collect();
    let servers: Vec<_> = servers.into_iter().map(|start| start.join().expect("up")).collect();
    let mut ports: Vec<_> = servers.iter().map(|server| server.address().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 20);
}

#[tokio::test]
async fn command_stats_count_what_ran_between_two_readings() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.get("before").await;
    let before = CommandStats::read(&mut redis).await;
    for _ in 0..3 {
        redis.get("key").await;
    }
    let _: i64 = redis.ask(cmd("EVAL").arg("return redis.call('incr', 'n')").arg(0)).await;
    let ran = CommandStats::read(&mut redis).await.since(&before);
    assert_eq!(ran.calls("get"), 3);
    assert_eq!((ran.calls("eval"), ran.calls("incr")), (1, 1));
    assert_eq!(ran.of("set").calls, 0);
    assert_eq!(
        ran.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["eval", "get", "incr", "info"]
    );
}

#[tokio::test]
async fn raw_shows_each_kind_of_key() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let _: () = redis.ask(cmd("RPUSH").arg("list").arg("a").arg("b")).await;
    let _: () = redis.ask(cmd("ZADD").arg("zset").arg(2).arg("y").arg(1).arg("x")).await;
    let _: () = redis.ask(cmd("HSET").arg("hash").arg("field").arg(1)).await;
    let _: () = redis.ask(cmd("SET").arg("string").arg("s").arg("PX").arg(60_000)).await;
    assert_eq!(redis.keys("*").await, ["hash", "list", "string", "zset"]);
    assert_eq!(redis.list("list").await, ["a", "b"]);
    assert_eq!(redis.list_length("list").await, 2);
    assert_eq!(redis.scores("zset").await, [("x".to_owned(), 1.0), ("y".to_owned(), 2.0)]);
    assert_eq!(redis.hash("hash").await, [("field".to_owned(), "1".to_owned())]);
    assert_eq!(redis.get("string").await.as_deref(), Some("s"));
    assert!((1..=60_000).contains(&redis.pttl("string").await));
    assert_eq!((redis.pttl("hash").await, redis.pttl("none").await), (-1, -2));
    assert_eq!((redis.publish("channel", "m").await, redis.subscribers("channel").await), (0, 0));
    assert!(redis.exists("hash").await && !redis.exists("none").await);
    assert!(redis.time_us().await > 1_600_000_000_000_000);
    redis.flush_scripts().await;
    redis.flush_all().await;
    eventually("nothing is left", Duration::from_secs(5), async || {
        redis.keys("*").await.is_empty()
    })
    .await;
}
