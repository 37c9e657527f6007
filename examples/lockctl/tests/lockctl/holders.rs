//! The output of `holders`.

use lock_tests::{Raw, RedisServer, queued};
use lockcore::Locks;
use serde_json::Value;

use crate::common::{run, server};
use crate::terminal::Terminal;

/// A label that would clear the screen and start a new line.
const HOSTILE: &str = "\u{1b}[2J\nroot";

#[tokio::test]
async fn the_holders_of_names_are_lines_with_label_lease_age_and_the_number_of_waiters() {
    let url = server().url();
    let locks = Locks::builder().label(HOSTILE).connect(&url).await.expect("the server is up");
    let _hold = locks.lock("holders:1").await.expect("it is free");
    let waiter = tokio::spawn(locks.lock("holders:1").into_future());
    queued(&locks, "holders:1", 1).await;
    let _read = locks.read("holders:2").await.expect("it is free");
    let _other = locks.read("holders:2").await.expect("it is read");

    let shown = run(&url, ["holders", "holders:1", "holders:2", "holders:3"]).await;
    shown.is(0);
    let lines: Vec<_> = shown.stdout.lines().collect();
    let [one, two, three, free] = lines[..] else { panic!("{shown:?}") };
    assert!(one.starts_with(r"holders:1  \u{1b}[2J\nroot, lease "), "{one}");
    assert!(one.contains(" s, requested ") && one.ends_with(" s ago, 1 waiting"), "{one}");
    for read in [two, three] {
        assert!(read.starts_with(r"holders:2  read: \u{1b}[2J\nroot, lease "), "{read}");
    }
    assert_eq!(free, "holders:3  free");

    let shown = run(&url, ["holders", "--json", "holders:1", "holders:3"]).await;
    shown.is(0);
    let lines: Vec<Value> =
        shown.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["lock"], &lines[0]["waiting"]), (&"holders:1".into(), &1.into()));
    assert_eq!(lines[0]["holders"][0]["label"], HOSTILE);
    assert_eq!((&lines[1]["lock"], &lines[1]["waiting"]), (&"holders:3".into(), &0.into()));
    assert_eq!(lines[1]["holders"], Value::Array(Vec::new()));
    waiter.abort();
}

// Once, lockctl showed it as free, and ran beside it.
#[tokio::test]
async fn a_lock_in_one_queue_with_jvms_is_seen_respected_and_released_with_the_flag() {
    let server = RedisServer::start();
    let url = server.url();
    let peers = Locks::builder().redisson_peers(true).label("web");
    let peers = peers.connect(&url).await.expect("the server is up");
    let guard = peers.lock("order:42").await.expect("it is free");
    let shown = run(&url, ["--redisson", "holders", "order:42"]).await;
    shown.is(0);
    assert!(shown.stdout.starts_with("order:42  web, lease "), "{shown:?}");
    let exec = ["--redisson", "exec", "--wait", "0", "order:42", "--", "true"];
    run(&url, exec).await.says(75, "did not become free");
    run(&url, ["--redisson", "release", "--force", "order:42"]).await.is(0);
    guard.lost().await;
    run(&url, exec).await.is(0);
}

#[tokio::test]
async fn all_locks_of_a_server_are_found_by_the_names_that_commands_take_and_nothing_else() {
    let server = RedisServer::start();
    let url = server.url();
    let mut redis = Raw::connect(&url).await;
    let shop = Locks::builder().namespace("shop").label("web").connect(&url).await.expect("up");
    let _one = shop.lock("b").await.expect("it is free");
    let read = || shop.read("50% {off}").into_future();
    let _two = (read().await.expect("it is free"), read().await.expect("it is read"));
    redis.ask::<()>(redis::cmd("SET").arg("lock:{mine}").arg("an application's")).await;
    let shown = run(&url, ["holders", "--all"]).await;
    shown.says(0, "1 lock key of another program or another version of lockcore not shown");
    let names: Vec<_> = shown.stdout.lines().filter_map(|line| line.split("  ").next()).collect();
    assert_eq!(names, ["shop:50% {off}", "shop:50% {off}", "shop:b"], "{shown:?}");
    let shown = run(&url, ["--namespace", "shop", "holders", "b", "50% {off}", "shop:b"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let names: Vec<_> = shown.stdout.lines().filter_map(|line| line.split("  ").next()).collect();
    assert_eq!(names, ["b", "50% {off}", "50% {off}", "shop:b"], "{shown:?}");
    assert!(shown.stdout.ends_with("shop:b  free\n"), "{shown:?}");
    assert!(shown.stderr.contains("did you mean b, without the namespace?"), "{shown:?}");
    let other = run(&url, ["--namespace", "shop", "release", "--force", "shop:b"]).await;
    other.says(1, "did you mean b");
    // The other lock is suggested, and not touched.
    let shown = run(&url, ["--namespace", "shop", "inspect", "b"]).await;
    assert!(shown.stdout.starts_with("b is held by web"), "{shown:?}");
    // Only people get a search of all names.
    let shown = run(&url, ["holders", "b"]).await;
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("b  free\n", ""), "{shown:?}");
    let terminal = Terminal::start(&url, &["holders", "b"]);
    terminal.until(&["b  free", "did you mean the lock in --namespace shop?"]).await;
}

#[tokio::test]
async fn of_too_many_locks_the_first_are_shown_and_that_there_are_more() {
    let server = RedisServer::start();
    let url = server.url();
    let locks = Locks::connect(&url).await.expect("the server is up");
    let _hold = locks.lock("model").await.expect("it is free");
    let mut redis = Raw::connect(&url).await;
    let member = redis.get("lock:{model}").await.expect("it is held");
    let copies =
        "for i = 1, 20000 do redis.call('SET', 'lock:{' .. i .. '}', ARGV[1], 'PX', 300000) end";
    redis.ask::<()>(redis::cmd("EVAL").arg(copies).arg(0).arg(member)).await;
    let shown = run(&url, ["holders", "--all"]).await;
    assert_eq!((shown.code, shown.stdout.lines().count()), (Some(0), 20_000));
    shown.says(0, "the first 20000 locks are shown: there are more");
}

#[tokio::test]
async fn a_name_that_no_key_leads_to_hides_neither_its_first_holder_nor_the_other_locks() {
    let server = RedisServer::start();
    let url = server.url();
    let shop = Locks::builder().namespace("shop").label("web").connect(&url).await.expect("up");
    // With the namespace it is too long for a key.
    let long = "a".repeat(510);
    let read = || shop.read(long.as_str()).into_future();
    let _reads = (read().await.expect("it is free"), read().await.expect("it is read"));
    let _later = shop.lock("b").await.expect("it is free");
    let shown = run(&url, ["holders", "--all"]).await;
    shown.says(0, "only the first of 2 holders is shown");
    let lines: Vec<_> = shown.stdout.lines().collect();
    let [first, second] = lines[..] else { panic!("{shown:?}") };
    assert!(first.starts_with(&format!("shop:{long}  read: web, ")), "{first}");
    assert!(second.starts_with("shop:b  web, "), "{second}");
}

// More nodes than are looked up, and the holder's id is the greatest.
#[tokio::test]
async fn the_process_of_the_holder_is_found_before_those_of_many_waiters() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("the server is up");
    redis.ask::<()>(redis::cmd("SET").arg("lock:node:z").arg("vm:7")).await;
    let waiters = (0..300).map(|number| format!("a{number}"));
    let nodes = ["z", "z"].map(str::to_owned).into_iter().chain(waiters);
    let processes = locks.processes(nodes).await;
    assert_eq!(processes.get("z").map(String::as_str), Some("vm:7"));
}
