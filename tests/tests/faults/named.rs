//! The owner of a connection, as an operator sees it on the server.

use lock_tests::acl::set_user;
use lock_tests::{Raw, RedisServer, eventually};
use lockcore::Locks;
use redis::cmd;

use crate::common::{LONG, SOON, connected, granted, held, queued, release, setup, soon};

/// The number of lines of CLIENT LIST that hold a word.
async fn clients_with(redis: &mut Raw, word: &str) -> usize {
    let list: String = redis.ask(cmd("CLIENT").arg("LIST")).await;
    list.lines().filter(|line| line.split(' ').any(|field| field == word)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_of_a_node_have_its_label_and_our_name_also_when_they_were_replaced() {
    let mut setup = setup().await;
    let builder = Locks::builder().label("checkout 7");
    let locks = soon("a connection", builder.connect(setup.proxy.url())).await.expect("accepted");
    let version = setup.server.version();
    for opened in [2, 4] {
        let redis = &mut setup.redis;
        eventually("both connections, and only these", SOON, async || {
            setup.proxy.accepted() == opened
                && clients_with(redis, "name=lockcore:checkout_7").await == 1
                && (version < (7, 2) || clients_with(redis, "lib-name=lockcore").await == 2)
        })
        .await;
        setup.proxy.cut_all().await;
    }
    connected(&locks).await;
}

/// The greeting that sets the name also sets the protocol: it has to be the spoken one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_may_choose_the_newer_protocol() {
    let mut setup = setup().await;
    let url = format!("{}?protocol=resp3", setup.server.url());
    let far = soon("a connection", Locks::builder().label("far").connect(&url)).await;
    let far = far.expect("accepted");
    let near = setup.direct().await;
    assert_eq!(clients_with(&mut setup.redis, "resp=3").await, {
        // The list does not tell before 7.0.
        if setup.server.version() >= (7, 0) { 2 } else { 0 }
    });
    assert_eq!(clients_with(&mut setup.redis, "name=lockcore:far").await, 1);
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_label_needs_no_right() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&set_user("locker", |_| false)).await;
    let builder = Locks::builder().namespace("shop").label("web-1");
    let url = format!("redis://locker:PASSWORD@{}/", server.address());
    let _locks = soon("a connection", builder.connect(url)).await.expect("accepted");
    assert_eq!(clients_with(&mut redis, "name=lockcore:web-1").await, 1);
}
