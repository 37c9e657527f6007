//! Clients that disconnect.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{MatchedPath, State};
use axum::routing::get as on_get;
use axum::{Extension, Router};
use lock_axum::{Cause, DetachLayer, Keys, LockScopeLayer, Locked, Locks, RequestLocks, lock_by};
use lock_tests::http::{Client, Gate, Keeper, gate};
use lock_tests::{free, is_held, queued};
use tokio::sync::mpsc;

use crate::support::{ByOrder, serve};

async fn plain(_: Locked<ByOrder>, State(gate): State<Gate>) {
    gate.pass().await;
}

/// axum drops the body before it extracts the last argument.
async fn only(_: Locked<ByOrder>) {
    panic!("no client waits for it");
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
        .route("/only/{id}", on_get(only))
        .route("/together/{id}", on_get(together))
        .route("/apart/{id}", on_get(apart))
        .layer(LockScopeLayer::new(locks.clone()).wait_forever())
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
    let held = locks.lock("order:7").await.unwrap();
    for kind in ["plain", "only"] {
        for (expect, part) in [("", "x"), ("", ""), ("expect: 100-continue\r\n", "")] {
            let headers = format!("content-length: 2\r\n{expect}");
            let mut gone = Client::send(address, &format!("GET /{kind}/7"), &headers).await;
            gone.write(part).await;
            queued(&locks, "order:7", 1).await;
            drop(gone);
            queued(&locks, "order:7", 0).await;
        }
    }
    drop(held);
    free(&locks, "order:7").await;
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

/// Starts a server whose detached handlers hold the lock `first`, and wait without a limit for the
/// order's lock. The layer for that lock is inside the detached part if `is_inside`.
async fn start_detached(locks: &Locks, is_inside: bool) -> (SocketAddr, Keeper) {
    let (gate, keeper) = gate();
    let scope = || LockScopeLayer::new(locks.clone()).wait_forever();
    let handler = match is_inside {
        true => on_get(plain).layer(scope()),
        false => on_get(plain),
    };
    let handler = handler.layer(DetachLayer::new());
    let handler = handler.route_layer(lock_by(|_: MatchedPath| "first"));
    let app = Router::new().route("/{id}", handler).layer(scope()).with_state(gate);
    (serve(app).await, keeper)
}

#[tokio::test]
async fn what_is_detached_ends_with_its_client_while_it_waits_for_another_lock_of_its_layer() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start_detached(&locks, false).await;
    let _guard = locks.lock("order:7").await.unwrap();
    let gone = Client::send(address, "GET /7", "").await;
    queued(&locks, "order:7", 1).await;
    assert!(is_held(&locks, "first").await);
    drop(gone);
    queued(&locks, "order:7", 0).await;
    free(&locks, "first").await;
    assert!(keeper.is_alone(), "its handler never ran");
}

#[tokio::test]
async fn what_is_detached_acquires_locks_after_its_client_has_gone_from_a_layer_of_its_own() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start_detached(&locks, true).await;
    let guard = locks.lock("order:7").await.unwrap();
    let gone = Client::send(address, "GET /7", "").await;
    queued(&locks, "order:7", 1).await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await; // the server notices meanwhile
    assert!(is_held(&locks, "first").await);
    drop(guard);
    keeper.entered().await;
    keeper.let_one_on();
    keeper.finished().await;
    free(&locks, "first").await;
}

#[tokio::test]
async fn what_is_detached_is_told_why_it_acquires_no_more_locks_after_its_client_has_gone() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let (sender, mut errors) = mpsc::unbounded_channel();
    let handler = async move |order: Locked<ByOrder>,
                              Extension(of_request): Extension<RequestLocks>| {
        let detached = async move {
            gate.pass().await;
            sender.send(of_request.lock(Keys::one("more")).await.unwrap_err()).unwrap();
        };
        order.detach(detached).await.unwrap();
    };
    let scope = LockScopeLayer::new(locks.clone());
    let address = serve(Router::new().route("/{id}", on_get(handler)).layer(scope)).await;
    let gone = Client::send(address, "GET /7", "").await;
    keeper.entered().await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await; // the server notices meanwhile
    keeper.let_one_on();
    let error = errors.recv().await.unwrap();
    assert_eq!(error.cause(), Cause::Misconfigured);
    assert!(error.to_string().contains("the client has disconnected"), "{error}");
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
