//! Clients that disconnect.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::routing::get as on_get;
use lock_axum::{LockScopeLayer, Locked, Locks};
use lock_tests::http::{Client, Gate, Keeper, gate};
use lock_tests::{free, is_held, queued};

use crate::support::{ByOrder, serve};

async fn plain(_: Locked<ByOrder>, State(gate): State<Gate>) {
    gate.pass().await;
}

async fn together(both: Locked<(MatchedPath, ByOrder)>, State(gate): State<Gate>) {
    let kept = both.handles().to_vec();
    let detached = async move {
        gate.pass().await;
        assert!(kept.iter().all(|handle| !handle.is_lost()), "the handler still sees them");
    };
    both.detach(detached).await.unwrap();
}

/// A handler that detaches its work under the first of its two locks.
async fn apart(order: Locked<ByOrder>, _route: Locked<MatchedPath>, State(gate): State<Gate>) {
    order.detach(async move { gate.pass().await }).await.unwrap();
}

async fn start(locks: &Locks) -> (SocketAddr, Keeper) {
    let (gate, keeper) = gate();
    let app = Router::new()
        .route("/plain/{id}", on_get(plain))
        .route("/together/{id}", on_get(together))
        .route("/apart/{id}", on_get(apart))
        .layer(LockScopeLayer::new(locks.clone()))
        .with_state(gate);
    (serve(app).await, keeper)
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_leaves_the_queue() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks).await;
    let guard = locks.lock("order:7").await.unwrap();
    let gone = Client::send(address, "GET /plain/7", "").await;
    queued(&locks, "order:7", 1).await;
    drop(gone);
    queued(&locks, "order:7", 0).await;
    drop(guard);
    free(&locks, "order:7").await;
    assert!(keeper.is_alone(), "its handler never ran");
}

#[tokio::test]
async fn a_client_that_goes_before_it_has_sent_its_body_leaves_the_queue() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks).await;
    let _held = locks.lock("order:7").await.unwrap();
    for expect in ["", "expect: 100-continue\r\n"] {
        let headers = format!("content-length: 2\r\n{expect}");
        let mut gone = Client::send(address, "GET /plain/7", &headers).await;
        if expect.is_empty() {
            gone.write("x").await;
        }
        queued(&locks, "order:7", 1).await;
        drop(gone);
        queued(&locks, "order:7", 0).await;
    }
    assert!(keeper.is_alone(), "its handler never ran");
}

#[tokio::test]
async fn a_client_that_goes_while_its_handler_runs_stops_it_and_releases_the_lock() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks).await;
    let gone = Client::send(address, "GET /plain/7", "").await;
    keeper.entered().await;
    let mut next = Client::send(address, "GET /plain/7", "").await;
    queued(&locks, "order:7", 1).await;
    drop(gone);
    keeper.entered().await;
    keeper.let_one_on();
    keeper.finished().await;
    next.until("200 OK").await;
    assert!(!keeper.has_finished(), "the first was stopped");
    free(&locks, "order:7").await;
}

#[tokio::test]
async fn what_is_detached_finishes_with_all_its_locks() {
    for kind in ["together", "apart"] {
        let locks = Locks::in_memory();
        let (address, mut keeper) = start(&locks).await;
        let gone = Client::send(address, &format!("GET /{kind}/7"), "").await;
        keeper.entered().await;
        drop(gone);
        tokio::time::sleep(Duration::from_millis(100)).await; // the server notices meanwhile
        let route = format!(":route:/{kind}/{{id}}");
        assert!(is_held(&locks, "order:7").await && is_held(&locks, &route).await, "{kind}");
        keeper.let_one_on();
        keeper.finished().await;
        free(&locks, "order:7").await;
        free(&locks, &route).await;
    }
}

#[tokio::test]
async fn what_is_detached_is_answered_if_the_client_stays() {
    let locks = Locks::in_memory();
    let (address, keeper) = start(&locks).await;
    for kind in ["together", "apart"] {
        keeper.let_one_on();
        Client::send(address, &format!("GET /{kind}/7"), "").await.until("200 OK").await;
        assert!(!is_held(&locks, "order:7").await);
    }
}

#[tokio::test]
async fn a_pipelined_request_is_a_request_of_its_own() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks).await;
    let mut client = Client::connect(address).await;
    for path in ["/plain/7", "/plain/8"] {
        client.write(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    }
    keeper.entered().await;
    assert!(is_held(&locks, "order:7").await && !is_held(&locks, "order:8").await);
    keeper.let_one_on();
    keeper.entered().await;
    assert!(!is_held(&locks, "order:7").await && is_held(&locks, "order:8").await);
    keeper.let_one_on();
    client.until("200 OK").await;
    free(&locks, "order:8").await;
}
