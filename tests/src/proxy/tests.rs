//! The proxy's shortcuts and counters; facts about the rest are in the suite `harness`.

use std::time::Duration;

use futures_util::StreamExt;
use redis::{Cmd, cmd};

use super::*;
use crate::{Raw, RedisServer, eventually};

const LIMIT: Duration = Duration::from_secs(10);
/// The time within which a reply arrives unless held.
const SILENCE: Duration = Duration::from_millis(50);

async fn start() -> (RedisServer, Proxy, Raw) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let direct = Raw::connect(&server.url()).await;
    (server, proxy, direct)
}

fn incr(key: &str) -> Cmd {
    cmd("INCR").arg(key).clone()
}

async fn subscribe(url: &str) -> redis::aio::PubSub {
    let client = redis::Client::open(url).expect("the URL of a test is well formed");
    let mut subscription = client.get_async_pubsub().await.expect("the proxy accepts");
    subscription.subscribe("channel").await.expect("the server accepts a subscription");
    subscription
}

#[tokio::test]
async fn a_cut_counts_the_connections_of_its_kind() {
    let (_server, proxy, _direct) = start().await;
    let _commands = Raw::connect(&proxy.url()).await;
    let _first = subscribe(&proxy.url()).await;
    let _second = subscribe(&proxy.url()).await;
    assert_eq!(proxy.cut_subscriptions().await, 2);
    let _third = subscribe(&proxy.url()).await;
    assert_eq!(proxy.cut_commands().await, 1);
    assert_eq!(proxy.cut_all().await, 1);
    assert_eq!((proxy.open(Connections::All), proxy.accepted()), (0, 4));
}

#[tokio::test]
async fn a_dropped_reply_is_of_a_command_that_was_executed_once() {
    let (_server, proxy, mut direct) = start().await;
    let mut client = Raw::connect(&proxy.url()).await;
    let fault = proxy.drop_next_reply();
    client.try_ask::<u64>(&incr("n")).await.expect_err("the reply is lost");
    fault.struck().await;
    assert_eq!(direct.get("n").await.as_deref(), Some("1"));
    assert_eq!(proxy.open(Connections::All), 0);
}

#[tokio::test]
async fn held_replies_are_of_executed_commands_and_arrive_in_order() {
    let (_server, proxy, mut direct) = start().await;
    let client = Raw::connect(&proxy.url()).await;
    let mut subscription = subscribe(&proxy.url()).await;
    proxy.hold_replies().await;
    let replies = proxy.replies();
    let mut asking: Vec<_> = Vec::new();
    for number in 1..=3 {
        let mut client = client.clone();
        asking.push(tokio::spawn(async move { client.ask::<u64>(&incr("n")).await }));
        let executed = async || direct.get("n").await == Some(number.to_string());
        eventually("the command is executed", LIMIT, executed).await;
    }
    tokio::time::sleep(SILENCE).await;
    assert!(asking.iter().all(|task| !task.is_finished()));
    assert_eq!(proxy.replies(), replies);

    // Messages are not replies.
    assert_eq!(direct.publish("channel", "message").await, 1);
    assert!(next_message(&mut subscription).await.is_some());

    proxy.release_replies();
    for (task, expected) in asking.into_iter().zip(1..) {
        assert_eq!(task.await.expect("the reply arrives"), expected);
    }
}

#[tokio::test]
async fn nothing_reaches_the_server_while_frozen_and_all_of_it_after() {
    let (_server, proxy, mut direct) = start().await;
    let mut client = Raw::connect(&proxy.url()).await;
    proxy.freeze(Connections::All, Flow::Both).await;
    let requests = proxy.requests();
    let task = tokio::spawn(async move { client.ask::<u64>(&incr("n")).await });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(direct.get("n").await, None);
    assert_eq!(proxy.requests(), requests);
    proxy.thaw();
    assert_eq!(task.await.expect("the reply arrives"), 1);
    assert_eq!(proxy.requests(), requests + 1);
}

/// Reads the next message, `None` when the connection has ended.
async fn next_message(subscription: &mut redis::aio::PubSub) -> Option<redis::Msg> {
    let mut messages = subscription.on_message();
    timeout(LIMIT, messages.next()).await.expect("a message or the end in time")
}
