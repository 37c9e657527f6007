//! Releases of a lock: early by the handler, before the response, and in the background.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use lock_axum::{LockScopeLayer, Locked, Locks};
use lock_tests::http::{Gate, Keeper, gate};
use lock_tests::{Proxy, RedisServer};
use lock_tests::{free, is_held, queued};
use tokio::time::Instant;

use crate::support::{ByOrder, ask, get, send};

async fn early(order: Locked<ByOrder>, State(gate): State<Gate>) -> &'static str {
    order.release().await.unwrap();
    assert!(order.is_lost() && order.reenter().is_err());
    order.release().await.expect("twice is no error");
    gate.pass().await;
    "answered"
}

fn app(layer: LockScopeLayer) -> (Router, Keeper) {
    let (gate, keeper) = gate();
    let app = Router::new()
        .route("/early/{id}", any(early))
        .route("/{id}", any(async |_: Locked<ByOrder>| "answered"))
        .layer(layer)
        .with_state(gate);
    (app, keeper)
}

#[tokio::test]
async fn after_an_early_release_the_next_comes_in_while_the_handler_goes_on() {
    let locks = Locks::in_memory();
    let (app, mut keeper) = app(LockScopeLayer::new(locks.clone()));
    let guard = locks.lock("order:7").await.unwrap();
    let first = send(&app, get("/early/7"));
    queued(&locks, "order:7", 1).await;
    let next = tokio::spawn(locks.lock("order:7"));
    queued(&locks, "order:7", 2).await;
    drop(guard);
    keeper.entered().await;
    let next = next.await.unwrap().unwrap();
    // The loss of the lock by its next holder does not concern the first request, which has
    // released it.
    assert!(locks.force_release("order:7").await.unwrap());
    next.lost().await;
    keeper.let_one_on();
    let answer = first.await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "answered"));
}

#[tokio::test]
async fn what_is_lost_after_an_early_release_is_no_business_of_the_handler_that_shared_it() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let handler = async move |order: Locked<ByOrder>| {
        gate.pass().await; // the layer is watching now
        let kept = order.reenter().unwrap();
        order.release().await.unwrap();
        gate.pass().await;
        assert!(kept[0].is_lost());
    };
    let app = Router::new().route("/{id}", any(handler)).layer(LockScopeLayer::new(locks.clone()));
    let answer = send(&app, get("/7"));
    keeper.entered().await;
    keeper.let_one_on();
    keeper.finished().await;
    keeper.entered().await;
    assert!(locks.force_release("order:7").await.unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await; // it must not be stopped meanwhile
    keeper.let_one_on();
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn the_answer_waits_for_the_release_and_says_how_long_the_request_waited() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let (app, _keeper) = app(LockScopeLayer::new(locks.clone()).server_timing(true));
    let release = proxy.hold_request(|request| request.mentions("order:7"));
    let answer = send(&app, get("/7"));
    release.struck().await; // that was the acquire
    release.release();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 200);
    let timing = answer.header("server-timing").unwrap();
    let waited: f64 = timing.strip_prefix("lock;dur=").unwrap().parse().unwrap();
    assert!((0.0..30_000.0).contains(&waited), "{timing}");
    assert!(!is_held(&locks, "order:7").await, "Redis had said so before the answer went out");
    free(&locks, "order:7").await;
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_a_client_is_told_is_that_for_the_lock_and_no_more() {
    let locks = Locks::in_memory();
    let slow = async |_: Option<Locked<ByOrder>>| tokio::time::sleep(Duration::from_secs(1)).await;
    let layer =
        LockScopeLayer::new(locks.clone()).wait(Duration::from_millis(200)).server_timing(true);
    let app = Router::new().route("/{id}", any(slow)).layer(layer);
    for holds in [false, true] {
        let guard = match holds {
            true => Some(locks.lock("order:7").await.unwrap()),
            false => None,
        };
        let answer = ask(&app, get("/7")).await;
        let timing = answer.header("server-timing").unwrap();
        let (wait, position) = timing.split_once(", ").unwrap_or((timing, ""));
        let waited: f64 = wait.strip_prefix("lock;dur=").unwrap().parse().unwrap();
        assert_eq!(position, if holds { "lock-queue;desc=0" } else { "" });
        assert_eq!(waited >= 200.0, holds, "{timing}");
        assert!(waited < 1_000.0, "{timing}");
        drop(guard);
    }
}

#[tokio::test]
async fn in_the_background_the_answer_waits_for_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let layer = LockScopeLayer::new(locks.clone());
    for in_background in [true, false] {
        let layer = layer.clone();
        let layer = layer.release_in_background(in_background);
        let (gate, mut keeper) = gate();
        let handler = async move |_: Locked<ByOrder>| gate.pass().await;
        let app = Router::new().route("/{id}", any(handler)).layer(layer);
        let answer = send(&app, get("/7"));
        keeper.entered().await;
        proxy.hold_replies().await;
        // From here on, time passes only while every task waits. Without a reply from Redis to the
        // release, the response is sent after half a second in any case.
        tokio::time::pause();
        let begun = Instant::now();
        keeper.let_one_on();
        assert_eq!(answer.await.unwrap().status, 200);
        assert_eq!(begun.elapsed() == Duration::ZERO, in_background);
        tokio::time::resume();
        proxy.release_replies();
        free(&locks, "order:7").await;
    }
}
