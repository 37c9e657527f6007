//! The owner of a connection, as seen by an operator on the server.

use lock_tests::acl::set_user;
use lock_tests::{Log, Raw, RedisServer, eventually};
use lockcore::Locks;
use redis::cmd;
use tracing::Level;

use crate::common::{LONG, SOON, connected, granted, held, queued, release, setup, soon};

/// How many lines of CLIENT LIST contain a word.
async fn clients_with(redis: &mut Raw, word: &str) -> usize {
    let list: String = redis.ask(cmd("CLIENT").arg("LIST")).await;
    list.lines().filter(|line| line.split(' ').any(|field| field == word)).count()
}

/// The name field of a node with this label, followed by its process and node id.
fn named(label: &str, locks: &Locks) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    format!("name=lockcore:{label}{}:{}:{}", host.trim(), std::process::id(), locks.node())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_of_a_node_have_its_names_and_ours_also_when_they_were_replaced() {
    let mut setup = setup().await;
    let builder = Locks::builder().label("checkout 7");
    let locks = soon("a connection", builder.connect(setup.proxy.url())).await.expect("accepted");
    let version = setup.server.version();
    for opened in [2, 4] {
        let redis = &mut setup.redis;
        eventually("both connections, and only these", SOON, async || {
            setup.proxy.accepted() == opened
                && clients_with(redis, &named("checkout_7:", &locks)).await == 2
                && (version < (7, 2) || clients_with(redis, "lib-name=lockcore").await == 2)
        })
        .await;
        setup.proxy.cut_all().await;
    }
    connected(&locks).await;
}

/// The greeting that sets the name also sets the protocol, which must be the protocol in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_may_choose_the_newer_protocol() {
    let mut setup = setup().await;
    let url = format!("{}?protocol=resp3", setup.server.url());
    let far = soon("a connection", Locks::builder().label("far").connect(&url)).await;
    let far = far.expect("accepted");
    let near = setup.direct().await;
    assert_eq!(clients_with(&mut setup.redis, "resp=3").await, {
        // Before 7.0 the list does not contain it.
        if setup.server.version() >= (7, 0) { 2 } else { 0 }
    });
    assert_eq!(clients_with(&mut setup.redis, &named("far:", &far)).await, 2);
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test]
async fn a_node_is_logged_once_when_it_connects_with_its_process() {
    let server = RedisServer::start();
    let (log, _here) = Log::listen();
    let locks = soon("a connection", Locks::connect(server.url())).await.expect("accepted");
    let (node, pid) = (locks.node().to_string(), format!(":{}", std::process::id()));
    let logged: Vec<_> = log.lines().into_iter().filter(|(_, line)| line.contains(&node)).collect();
    let [(Level::INFO, line)] = &logged[..] else { panic!("{logged:?}") };
    for part in ["connected to Redis", &pid, &server.address().to_string()] {
        assert!(line.contains(part), "no {part}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_needs_no_right() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&set_user("locker", |_| false)).await;
    let builder = Locks::builder().namespace("shop");
    let url = format!("redis://locker:PASSWORD@{}/", server.address());
    let locks = soon("a connection", builder.connect(url)).await.expect("accepted");
    assert_eq!(clients_with(&mut redis, &named("", &locks)).await, 2);
}
