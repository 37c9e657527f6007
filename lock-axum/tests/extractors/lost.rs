//! Locks that are lost while their handler runs.

use axum::Router;
use axum::extract::MatchedPath;
use axum::routing::any;
use lock_axum::{Cause, LockScopeLayer, Locked, Locks, OnLost};
use lock_tests::http::gate;
use lock_tests::{free, queued};

use crate::support::{ByOrder, get, send};

/// A value that sends a message when it is dropped.
struct Dropped(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_handler_is_dropped_where_it_stands_and_the_next_comes_in() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let (sender, mut dropped) = tokio::sync::mpsc::unbounded_channel();
    let handler = async move |_: Locked<ByOrder>| {
        let _dropped = Dropped(sender);
        gate.pass().await;
    };
    let app = Router::new().route("/{id}", any(handler)).layer(LockScopeLayer::new(locks.clone()));
    let first = send(&app, get("/7"));
    keeper.entered().await;
    let second = send(&app, get("/7"));
    queued(&locks, "order:7", 1).await;
    assert!(locks.force_release("order:7").await.unwrap());
    let first = first.await.unwrap();
    assert!(first.status == 500 && first.body.contains("lock-lost"), "{first:?}");
    dropped.try_recv().expect("before the answer");
    assert!(!keeper.has_finished());
    keeper.entered().await;
    keeper.let_one_on();
    assert_eq!(second.await.unwrap().status, 200);
    free(&locks, "order:7").await;
}

#[tokio::test]
async fn a_loss_during_a_wait_is_503_in_the_extractor_that_waits_and_500_in_any_other() {
    async fn one(_: Locked<(MatchedPath, ByOrder)>) {}
    async fn two(_: Locked<MatchedPath>, _: Locked<ByOrder>) {}
    for (handler, status) in [(any(one), 503), (any(two), 500)] {
        let locks = Locks::in_memory();
        let _other = locks.lock("order:7").await.unwrap();
        let app = Router::new().route("/{id}", handler).layer(LockScopeLayer::new(locks.clone()));
        let answer = send(&app, get("/7"));
        queued(&locks, "order:7", 1).await;
        assert!(locks.force_release(":route:/{id}").await.unwrap());
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.cause), (status, Some(Cause::Lost)));
    }
}

#[tokio::test]
async fn a_handler_that_may_continue_sees_the_loss_of_any_of_its_locks_and_answers() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let handler = async move |orders: Locked<(ByOrder, MatchedPath)>| {
        gate.pass().await;
        orders.lost().await;
        assert!(orders.is_lost() && orders.reenter().is_err());
        assert!(orders.release().await.is_err(), "the work may have overlapped");
        "done all the same"
    };
    let layer = LockScopeLayer::new(locks.clone()).on_lost(OnLost::Continue);
    let app = Router::new().route("/{id}", any(handler)).layer(layer);
    for lost in [":route:/{id}", "order:7"] {
        let answer = send(&app, get("/7"));
        keeper.entered().await;
        assert!(locks.force_release(lost).await.unwrap());
        keeper.let_one_on();
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "done all the same"), "{lost}");
        free(&locks, "order:7").await;
        free(&locks, ":route:/{id}").await;
    }
}

#[tokio::test]
async fn the_loss_of_a_lock_that_was_taken_later_stops_the_handler_too() {
    for lost in [":route:/{id}", "order:7"] {
        let locks = Locks::in_memory();
        let (gate, mut keeper) = gate();
        let handler = async move |_: Locked<ByOrder>, _: Locked<MatchedPath>| {
            gate.pass().await;
        };
        let app =
            Router::new().route("/{id}", any(handler)).layer(LockScopeLayer::new(locks.clone()));
        let answer = send(&app, get("/7"));
        keeper.entered().await;
        assert!(locks.force_release(lost).await.unwrap());
        assert_eq!(answer.await.unwrap().status, 500, "{lost}");
        free(&locks, "order:7").await;
        free(&locks, ":route:/{id}").await;
    }
}
