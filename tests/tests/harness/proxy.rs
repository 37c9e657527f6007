//! Facts about `Proxy`.

use std::net::TcpStream;
use std::time::Duration;

use futures_util::StreamExt;
use lock_tests::{Connections, Fault, Flow, Proxy, Raw, RedisServer, eventually};
use redis::{Client, RedisResult, cmd};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
/// The time for an event that must not happen: longer can only find more.
const A_WHILE: Duration = Duration::from_millis(100);

struct Setup {
    server: RedisServer,
    proxy: Proxy,
    /// A connection past the proxy.
    direct: Raw,
    /// A connection through the proxy.
    through: Raw,
}

async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let direct = Raw::connect(&server.url()).await;
    let through = Raw::connect(&proxy.url()).await;
    Setup { server, proxy, direct, through }
}

impl Setup {
    async fn subscribe(&mut self, channel: &str) -> redis::aio::PubSub {
        let client = Client::open(self.proxy.url()).expect("a URL");
        let mut subscription = client.get_async_pubsub().await.expect("connects");
        subscription.subscribe(channel).await.expect("subscribes");
        subscription
    }
}

async fn struck(fault: &Fault) {
    timeout(SOON, fault.struck()).await.expect("the fault strikes");
}

async fn increment(mut redis: Raw) -> RedisResult<i64> {
    redis.try_ask(cmd("INCR").arg("n")).await
}

#[tokio::test]
async fn commands_messages_and_large_replies_pass_unchanged() {
    let mut setup = setup().await;
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_be_bytes()[3]).collect();
    let _: () = setup.through.ask(cmd("SET").arg("large").arg(&large)).await;
    let read: Vec<u8> = setup.direct.ask(cmd("GET").arg("large")).await;
    assert!(read == large);
    let read: Vec<u8> = setup.through.ask(cmd("GET").arg("large")).await;
    assert!(read == large);

    let mut subscription = setup.subscribe("channel").await;
    assert_eq!(setup.through.publish("channel", "hello\r\n").await, 1);
    let message = timeout(SOON, next_message(&mut subscription)).await.expect("a message");
    assert_eq!(message.as_deref(), Some("hello\r\n"));
    assert_eq!(setup.proxy.accepted(), 2);
}

async fn next_message(subscription: &mut redis::aio::PubSub) -> Option<String> {
    let message = subscription.on_message().next().await?;
    Some(message.get_payload().expect("text"))
}

#[tokio::test]
async fn cutting_subscriptions_leaves_command_connections_and_the_other_way_round() {
    let mut setup = setup().await;
    let mut subscription = setup.subscribe("channel").await;
    assert_eq!(setup.proxy.open(Connections::Subscriptions), 1);
    assert_eq!(setup.proxy.open(Connections::Commands), 1);
    assert_eq!(setup.proxy.open(Connections::All), 2);

    assert_eq!(setup.proxy.cut(Connections::Subscriptions).await, 1);
    assert_eq!(setup.proxy.open(Connections::All), 1);
    let end = timeout(SOON, next_message(&mut subscription)).await.expect("an end");
    assert_eq!(end, None);
    assert_eq!(setup.through.get("key").await, None);
    let direct = &mut setup.direct;
    eventually("the server notices", SOON, async || direct.subscribers("channel").await == 0).await;

    let mut subscription = setup.subscribe("channel").await;
    assert_eq!(setup.proxy.cut(Connections::Commands).await, 1);
    increment(setup.through.clone()).await.expect_err("its connection was cut");
    assert_eq!(setup.direct.publish("channel", "still there").await, 1);
    let message = timeout(SOON, next_message(&mut subscription)).await.expect("a message");
    assert_eq!(message.as_deref(), Some("still there"));

    assert_eq!(setup.proxy.cut(Connections::All).await, 1);
    assert_eq!(setup.proxy.accepted(), 3);
}

#[tokio::test]
async fn frozen_requests_reach_the_server_only_after_the_thaw() {
    let mut setup = setup().await;
    setup.proxy.freeze(Connections::All, Flow::Requests).await;
    let late = tokio::spawn(increment(setup.through.clone()));
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(setup.direct.get("n").await, None);
    assert!(!late.is_finished());
    setup.proxy.thaw();
    let reply = timeout(SOON, late).await.expect("in time").expect("no panic");
    assert_eq!(reply.expect("a reply"), 1);
}

#[tokio::test]
async fn frozen_replies_come_after_the_thaw_though_the_server_has_executed() {
    let mut setup = setup().await;
    setup.proxy.freeze(Connections::Commands, Flow::Replies).await;
    let late = tokio::spawn(increment(setup.through.clone()));
    let direct = &mut setup.direct;
    eventually("it is executed", SOON, async || direct.get("n").await.is_some()).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(!late.is_finished());
    setup.proxy.thaw();
    let reply = timeout(SOON, late).await.expect("in time").expect("no panic");
    assert_eq!(reply.expect("a reply"), 1);
}

#[tokio::test]
async fn frozen_subscriptions_do_not_hold_commands_back() {
    let mut setup = setup().await;
    let mut subscription = setup.subscribe("channel").await;
    setup.proxy.freeze(Connections::Subscriptions, Flow::Both).await;
    setup.proxy.freeze(Connections::Subscriptions, Flow::Both).await; // twice is once
    assert_eq!(setup.direct.publish("channel", "kept").await, 1);
    assert_eq!(setup.through.get("key").await, None);
    timeout(A_WHILE, next_message(&mut subscription)).await.expect_err("nothing passes");
    setup.proxy.thaw();
    let message = timeout(SOON, next_message(&mut subscription)).await.expect("a message");
    assert_eq!(message.as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_new_connection_is_frozen_as_well() {
    let setup = setup().await;
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    let url = setup.proxy.url();
    let late = tokio::spawn(async move { Raw::connect(&url).await.get("key").await });
    let accepted = async || setup.proxy.accepted() == 2;
    eventually("it is accepted", SOON, accepted).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(!late.is_finished());
    setup.proxy.thaw();
    timeout(SOON, late).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_lost_reply_leaves_the_command_executed_and_its_connection_cut() {
    let mut setup = setup().await;
    let fault = setup.proxy.lose_reply(|request| request.is("incr") && request.mentions("n"));
    assert_eq!(setup.through.get("other").await, None); // not such a request
    assert!(!fault.has_struck());
    increment(setup.through.clone()).await.expect_err("the reply was lost");
    struck(&fault).await;
    assert_eq!(setup.proxy.open(Connections::All), 0);
    assert_eq!(setup.direct.get("n").await.as_deref(), Some("1"));

    let again = Raw::connect(&setup.proxy.url()).await;
    assert_eq!(increment(again).await.expect("a fault strikes once"), 2);
}

#[tokio::test]
async fn of_many_requests_on_their_way_at_once_exactly_the_chosen_reply_is_held() {
    let mut setup = setup().await;
    let fault = setup.proxy.hold_reply(|request| request.mentions("held"));
    let ask = |key: &'static str| {
        let mut redis = setup.through.clone();
        tokio::spawn(async move { redis.ask::<usize>(cmd("RPUSH").arg(key).arg(1)).await })
    };
    let before: Vec<_> = (0..50).map(|_| ask("before")).collect();
    for reply in before {
        timeout(SOON, reply).await.expect("in time").expect("no panic");
    }
    let held = ask("held");
    struck(&fault).await;
    let after = ask("after");
    let direct = &mut setup.direct;
    eventually("the next is executed", SOON, async || direct.exists("after").await).await;
    assert!(!held.is_finished() && !after.is_finished());
    assert!(setup.direct.exists("held").await);
    fault.release();
    timeout(SOON, held).await.expect("in time").expect("no panic");
    timeout(SOON, after).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_lost_request_is_never_executed() {
    let mut setup = setup().await;
    let fault = setup.proxy.lose_request(|request| request.is("INCR"));
    increment(setup.through.clone()).await.expect_err("the connection was cut");
    struck(&fault).await;
    assert_eq!(setup.direct.get("n").await, None);
}

#[tokio::test]
async fn a_held_request_is_executed_on_release_though_its_client_has_gone() {
    let mut setup = setup().await;
    let fault = setup.proxy.hold_request(|request| request.is("INCR"));
    let call = tokio::spawn(increment(setup.through.clone()));
    struck(&fault).await;
    call.abort();
    drop(setup.through); // the last handle: the client closes its connection
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(setup.direct.get("n").await, None);
    fault.release();
    let direct = &mut setup.direct;
    eventually("the ghost runs", SOON, async || direct.get("n").await.is_some()).await;
}

#[tokio::test]
async fn refused_connections_are_refused_until_accepted_again_and_open_ones_go_on() {
    let mut setup = setup().await;
    setup.proxy.refuse().await;
    setup.proxy.refuse().await; // twice is once
    let refused = TcpStream::connect(setup.proxy.address()).expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(setup.through.get("key").await, None);
    setup.proxy.accept();
    setup.proxy.accept();
    let mut again = Raw::connect(&setup.proxy.url()).await;
    assert_eq!(again.get("key").await, None);
}

#[tokio::test]
async fn a_restarted_server_is_reached_by_the_next_connection() {
    let mut setup = setup().await;
    setup.server.kill();
    increment(setup.through.clone()).await.expect_err("the server has died");
    let proxy = &setup.proxy;
    eventually("the proxy notices", SOON, async || proxy.open(Connections::All) == 0).await;
    setup.server.restart();
    let again = Raw::connect(&setup.proxy.url()).await;
    assert_eq!(increment(again).await.expect("a reply"), 1);
}

#[tokio::test]
async fn a_pushed_message_is_not_taken_for_a_reply() {
    let mut setup = setup().await;
    // Client-side caching: the server pushes when a key that was read changes.
    let mut tracking = Raw::connect(&format!("{}?protocol=resp3", setup.proxy.url())).await;
    let _: () = tracking.ask(cmd("CLIENT").arg("TRACKING").arg("ON")).await;
    tracking.get("n").await;

    let fault = setup.proxy.hold_reply(|request| request.is("BLPOP"));
    let call = tokio::spawn(async move {
        let _: (String, String) = tracking.ask(cmd("BLPOP").arg("list").arg(0)).await;
    });
    let direct = &mut setup.direct;
    eventually("it blocks", SOON, async || {
        direct.info("clients").await.contains("blocked_clients:1")
    })
    .await;
    increment(setup.direct.clone()).await.expect("a reply");
    tokio::time::sleep(A_WHILE).await;
    assert!(!fault.has_struck(), "the message came before the reply");
    let _: () = setup.direct.ask(cmd("RPUSH").arg("list").arg("x")).await;
    struck(&fault).await;
    fault.release();
    timeout(SOON, call).await.expect("in time").expect("no panic");
}
