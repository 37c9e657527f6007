//! Waiting requests on one HTTP/2 connection, and the streams left for other requests.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use lock_tests::http::{Client, Multiplexed, listen, text};
use lock_tests::{LIMIT, queued};
use lock_tower::http::PerConnection;
use lock_tower::{ByPath, HttpLockLayer, Keys, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A wait longer than any test: a test that waits for its end fails.
const WAIT: Duration = Duration::from_secs(120);

/// The servers' default maximum of concurrent streams per client.
const STREAMS: usize = 200;

async fn lock_in_handler(request: Request) -> Response {
    let locks = RequestLocks::of(request.extensions()).expect("behind the layer");
    match locks.lock(Keys::one("/orders")).await {
        Ok(_) => Response::new(Body::from("paid")),
        Err(error) => locks.refusals().respond(&error).map(Body::from),
    }
}

/// Starts a server with the routes in `orders`, which need the lock, and `/health`, which needs
/// none.
async fn serve(orders: Router) -> SocketAddr {
    let app = orders.route("/health", post(async || "well"));
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, PerConnection::new(app)).await });
    address
}

fn behind_layer(locks: &Locks, limit: Option<usize>) -> Router {
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(WAIT);
    let layer = match limit {
        Some(limit) => layer.waiting_per_connection(limit),
        None => layer,
    };
    Router::new().route("/orders", post(async || "paid")).layer(layer)
}

fn behind_scope(locks: &Locks) -> Router {
    let layer = LockScopeLayer::new(locks.clone()).wait(WAIT);
    Router::new().route("/orders", post(lock_in_handler)).layer(layer)
}

async fn order(client: Multiplexed) -> (u16, String) {
    client.post("/orders", text("")).await
}

#[tokio::test]
async fn waiters_of_one_name_leave_half_of_the_streams_of_a_connection_to_its_other_requests() {
    for is_scope in [false, true] {
        let locks = Locks::in_memory();
        let orders = if is_scope { behind_scope(&locks) } else { behind_layer(&locks, None) };
        let address = serve(orders).await;
        let held = locks.lock("/orders").await.unwrap();
        let client = Multiplexed::connect(address).await;
        let mut calls = JoinSet::new();
        for _ in 0..2 * STREAMS {
            calls.spawn(order(client.clone()));
        }
        for _ in 0..2 * STREAMS - STREAMS / 2 {
            let ended = timeout(LIMIT, calls.join_next()).await.expect("a refusal");
            let (status, problem) = ended.unwrap().unwrap();
            assert_eq!(status, 503, "{problem}");
            assert!(problem.ends_with(r#""code":"lock-connection-full"}"#), "{problem}");
        }
        queued(&locks, "/orders", STREAMS / 2).await;
        assert_eq!(client.post("/health", text("")).await, (200, "well".to_owned()));
        // Another connection has its own streams.
        let other = Multiplexed::connect(address).await;
        calls.spawn(order(other));
        queued(&locks, "/orders", STREAMS / 2 + 1).await;
        held.release().await.unwrap();
        for (status, answer) in calls.join_all().await {
            assert_eq!((status, answer.as_str()), (200, "paid"));
        }
        // A finished wait has freed its slot on the connection.
        let held = locks.lock("/orders").await.unwrap();
        let call = tokio::spawn(order(client));
        queued(&locks, "/orders", 1).await;
        held.release().await.unwrap();
        assert_eq!(call.await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn requests_that_need_not_wait_and_those_of_http_1_count_for_no_connection() {
    let locks = Locks::in_memory();
    let address = serve(behind_layer(&locks, Some(0))).await;
    let client = Multiplexed::connect(address).await;
    assert_eq!(order(client.clone()).await, (200, "paid".to_owned()));
    let held = locks.lock("/orders").await.unwrap();
    assert_eq!(order(client).await.0, 503);
    let alone = Client::send(address, "POST /orders", "content-length: 0\r\n").await;
    queued(&locks, "/orders", 1).await;
    held.release().await.unwrap();
    assert_eq!(alone.answer().await.status, 200);
}
