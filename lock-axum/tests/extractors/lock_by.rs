//! `lock_by`: a lock around a route, with a key from a closure.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{any, post as on_post};
use axum::{Extension, Router};
use lock_axum::{
    Cause, KeyError, Keys, LockHandle, LockScopeLayer, Locks, lock_by, lock_by_with_state,
};
use lock_tests::http::gate;
use lock_tests::{free, is_held, queued};

use crate::support::{ask, get, post, send};

async fn named(lock: Option<Extension<LockHandle>>) -> String {
    lock.map_or_else(|| "none".to_owned(), |lock| lock.key().into_owned())
}

#[tokio::test]
async fn a_closure_of_extractors_names_the_lock_and_needs_no_struct() {
    #[derive(Clone)]
    struct Tenant(&'static str);

    let locks = Locks::in_memory();
    let order = lock_by(|Path(id): Path<u64>| format!("order:{id}"));
    let tenant = lock_by_with_state(
        Tenant("acme"),
        |State(Tenant(tenant)): State<Tenant>, Path(id): Path<u64>| format!("{tenant}:{id}"),
    );
    let some = lock_by(|Path(id): Path<u64>| (id > 9).then(|| Keys::one("many").and("more")));
    let bad = lock_by(|Path(id): Path<u64>| match id {
        7 => Err(KeyError::new("there is no order 7")),
        id => Ok(format!("order:{id}")),
    });
    let app = Router::new()
        .route("/orders/{id}", any(named).layer(order))
        .route("/tenants/{id}", any(named).layer(tenant))
        .route("/some/{id}", any(named).layer(some))
        .route("/bad/{id}", any(named).layer(bad))
        .layer(LockScopeLayer::new(locks.clone()));
    let answers = [
        ("/orders/7", 200, "order:7"),
        ("/orders/%37", 200, "order:7"),
        ("/tenants/7", 200, "acme:7"),
        ("/some/7", 200, "none"),
        ("/some/10", 200, "more"),
        ("/bad/8", 200, "order:8"),
    ];
    for (path, status, body) in answers {
        let answer = ask(&app, get(path)).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{path}");
        free(&locks, "order:7").await;
    }
    let refused = ask(&app, get("/bad/7")).await;
    assert_eq!((refused.status, refused.cause), (400, Some(Cause::BadKey)));
    assert!(refused.body.contains("there is no order 7"), "{refused:?}");
    let own = ask(&app, get("/orders/seven")).await;
    assert_eq!((own.status, own.cause), (400, None), "the extractor's own answer");
}

#[tokio::test]
async fn the_route_waits_holds_and_refuses_as_its_scope_says() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let pay = on_post(async move || gate.pass().await);
    let route = || pay.clone().layer(lock_by(|Path(id): Path<u64>| format!("order:{id}")));
    let scope = LockScopeLayer::new(locks.clone());
    let app = Router::new().route("/{id}", route()).layer(scope.clone());
    let first = send(&app, post("/7", ""));
    keeper.entered().await;
    assert!(is_held(&locks, "order:7").await);
    let second = send(&app, post("/7", ""));
    queued(&locks, "order:7", 1).await;
    let hasty = scope.wait(Duration::ZERO).status(Cause::Busy, http::StatusCode::CONFLICT);
    let hasty = Router::new().route("/{id}", route()).layer(hasty);
    assert_eq!(ask(&hasty, post("/7", "")).await.status, 409);
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 200);
    keeper.entered().await;
    keeper.let_one_on();
    assert_eq!(second.await.unwrap().status, 200);
    free(&locks, "order:7").await;

    let bare = Router::new().route("/{id}", route());
    let refused = ask(&bare, post("/7", "")).await;
    assert_eq!((refused.status, refused.cause), (500, Some(Cause::Misconfigured)));
}
