//! The requests that a layer locks, by its place in the router.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::routing::post as on_post;
use http::Method;
use lock_axum::{HttpLockLayer, LockScopeLayer, Locked, Locks, lock_by};

use crate::support::{ByOrder, ask};

/// The statuses of: the handler, another method of its path, a CORS preflight, an unknown path.
async fn statuses(app: &Router) -> [u16; 4] {
    let request = |method, path| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("origin", "https://shop.example");
        request.header("access-control-request-method", "POST").body(Body::empty()).unwrap()
    };
    let mut statuses = [0; 4];
    let requests = [
        (Method::POST, "/orders/7"),
        (Method::GET, "/orders/7"),
        (Method::OPTIONS, "/orders/7"),
        (Method::POST, "/unknown"),
    ];
    for (status, (method, path)) in statuses.iter_mut().zip(requests) {
        *status = ask(app, request(method, path)).await.status;
    }
    statuses
}

#[tokio::test]
async fn a_layer_locks_what_it_sees_and_that_depends_on_where_it_stands() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let layer = HttpLockLayer::new(locks.clone(), |_: &Request| "order:7").wait(Duration::ZERO);
    let route = || Router::new().route("/orders/{id}", on_post(async || "served"));

    let around = route().layer(layer.clone());
    assert_eq!(statuses(&around).await, [423, 423, 423, 423]);

    let routes = route().route_layer(layer.clone());
    assert_eq!(statuses(&routes).await, [423, 423, 423, 404]);

    let path = on_post(async || "served").layer(layer.clone());
    let paths = Router::new().route("/orders/{id}", path);
    assert_eq!(statuses(&paths).await, [423, 423, 423, 404], "the 405 is inside");

    let method = on_post(async || "served").route_layer(layer);
    let methods = Router::new().route("/orders/{id}", method);
    assert_eq!(statuses(&methods).await, [423, 405, 405, 404]);

    let scope = LockScopeLayer::new(locks).wait(Duration::ZERO);
    let extracted = Router::new()
        .route("/orders/{id}", on_post(async |_: Locked<ByOrder>| "served"))
        .layer(scope.clone());
    assert_eq!(statuses(&extracted).await, [423, 405, 405, 404]);

    let alone = Router::new()
        .route("/orders/{id}", on_post(async |_: Locked<ByOrder>| "served"))
        .layer(HttpLockLayer::new(Locks::in_memory(), |_: &Request| "order:7"));
    assert_eq!(statuses(&alone).await, [500, 405, 405, 404], "no layer keeps its lock");

    let order = lock_by(|Path(id): Path<u64>| format!("order:{id}"));
    let path = on_post(async || "served").layer(order.clone());
    let paths = Router::new().route("/orders/{id}", path).layer(scope.clone());
    assert_eq!(statuses(&paths).await, [423, 423, 423, 404], "the 405 is inside");

    let method = on_post(async || "served").route_layer(order);
    let methods = Router::new().route("/orders/{id}", method).layer(scope);
    assert_eq!(statuses(&methods).await, [423, 405, 405, 404]);
}
