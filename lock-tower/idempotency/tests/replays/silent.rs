//! A connection on which no reply arrives, as after a router has forgotten it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::redis::AsyncConnectionConfig;
use deadpool_redis::{Manager, Pool};
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::Full;
use lock_idempotency::{IdempotencyLayer, ReadBody, RedisReplays, ReplayStore as _, Scope};
use lock_tests::{LIMIT, Proxy, RedisServer, eventually};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{key, payment, replays_at, text};

/// Creates a store whose connections wait this long for a reply, or without an end.
fn waits(url: &str, response_timeout: Option<Duration>) -> RedisReplays {
    let config = AsyncConnectionConfig::new().set_response_timeout(response_timeout);
    let manager = Manager::new_with_config(url, config).unwrap();
    RedisReplays::new(Pool::builder(manager).build().unwrap())
}

/// Swallows all replies to the next lookup's connection, and expects that a later request is served
/// on another connection, although the layer waits less than the connection for a reply.
async fn is_replaced(store: impl Fn(&str) -> RedisReplays) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(&server.url()).await.unwrap();
    let layer = IdempotencyLayer::new(locks, store(&proxy.url()), |_| Ok(Scope::new("ada")));
    let layer = layer.store_within(Duration::from_millis(300));
    let service = layer.layer(service_fn(async |_: Request<ReadBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("paid")))
    }));
    let pay = async |key| text(service.clone().oneshot(payment(key)).await.unwrap()).await;
    assert_eq!(pay("a1").await.0, 200);
    let silent = proxy.hold_reply(|_| true);
    assert_eq!(pay("a2").await.0, 503);
    assert!(silent.has_struck());
    eventually("a request is served", LIMIT, async || pay("a3").await.0 == 200).await;
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_replaced_although_the_layer_waits_less_than_it_for_a_reply() {
    is_replaced(replays_at).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_waits_for_a_reply_without_an_end_is_replaced() {
    is_replaced(|url| waits(url, None)).await;
}

#[tokio::test] // on one thread, so that no reply arrives during a poll
async fn a_caller_that_does_not_wait_for_the_reply_does_not_end_the_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let replays = replays_at(&proxy.url());
    assert!(replays.look_up(&key("a1")).await.unwrap().is_none());
    for _ in 0..10 {
        assert!(replays.look_up(&key("a1")).now_or_never().is_none());
        assert!(replays.look_up(&key("a1")).await.unwrap().is_none());
    }
    assert_eq!(proxy.accepted(), 1);
}
