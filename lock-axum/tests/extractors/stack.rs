//! Which requests a layer locks, by its position in the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::Method;
use lock_axum::lockcore::MemoryStore;
use lock_axum::{HttpLockLayer, LockScopeLayer, Locked, Locks, lock_by};

use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::support::{ByOrder, ask};

/// Returns the statuses of four requests: to the handler, with another method, a CORS preflight,
/// and to an unknown path.
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

/// Sends this number of concurrent requests for one order, and returns their statuses.
async fn together(app: &Router, requests: usize) -> Vec<u16> {
    let send = || async {
        let request = Request::post("/orders/7").body(Body::empty()).unwrap();
        ask(app, request).await.status
    };
    futures_util::future::join_all((0..requests).map(|_| send())).await
}

fn by_order(wait: Duration) -> HttpLockLayer<impl Fn(&Request) -> &'static str + Clone> {
    HttpLockLayer::new(Locks::in_memory(), |_: &Request| "order:7").wait(wait)
}

/// The value that the handler writes. The transaction layer commits it after the handler.
#[derive(Debug, Clone, Default)]
struct Pending(Arc<AtomicU32>);

// B10: with the usual order of layers, 16 of 20 updates were lost.
#[tokio::test(start_paused = true)]
async fn a_transaction_is_committed_under_the_lock_where_its_layer_stands_inside() {
    for is_inside in [true, false] {
        let row = Arc::new(AtomicU32::new(0));
        let committed = Arc::clone(&row);
        let transaction = from_fn(move |mut request: Request, next: Next| {
            let row = Arc::clone(&committed);
            async move {
                let pending = Pending::default();
                request.extensions_mut().insert(pending.clone());
                let answer = next.run(request).await;
                sleep(Duration::from_millis(5)).await; // the commit
                row.store(pending.0.load(Ordering::SeqCst), Ordering::SeqCst);
                answer
            }
        });
        let read = Arc::clone(&row);
        let handler = async move |Extension(pending): Extension<Pending>| {
            let seen = read.load(Ordering::SeqCst);
            sleep(Duration::from_millis(1)).await;
            pending.0.store(seen + 1, Ordering::SeqCst);
        };
        let route = Router::new().route("/orders/{id}", on_post(handler));
        let lock = by_order(Duration::from_secs(60));
        let app = match is_inside {
            true => route.layer(transaction).layer(lock),
            false => route.layer(lock).layer(transaction),
        };
        assert_eq!(together(&app, 20).await, [200; 20]);
        let kept = row.load(Ordering::SeqCst);
        assert_eq!(kept == 20, is_inside, "{kept} of 20 updates are kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_kept_by_those_that_wait_where_its_layer_stands_inside() {
    for is_inside in [true, false] {
        let pool = Arc::new(Semaphore::new(2));
        let (outer, inner) = (Arc::clone(&pool), pool);
        let connection = from_fn(move |request: Request, next: Next| {
            let pool = Arc::clone(&outer);
            async move {
                let _one = pool.acquire().await.expect("open");
                let answer: Response = next.run(request).await;
                answer
            }
        });
        let handler = async move || {
            sleep(Duration::from_millis(1)).await;
            let _second = inner.acquire().await.expect("open");
            "served".into_response()
        };
        let route = Router::new().route("/orders/{id}", on_post(handler));
        let lock = by_order(Duration::from_secs(2));
        let app = match is_inside {
            true => route.layer(connection).layer(lock),
            false => route.layer(lock).layer(connection),
        };
        let statuses = together(&app, 6).await;
        assert_eq!(statuses.iter().all(|status| *status == 200), is_inside, "{statuses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_locks_the_name_of_its_gateway_waits_for_the_gateway() {
    for (namespace, expected) in [("shop", 423), ("gateway", 200)] {
        let store = MemoryStore::new();
        let scope = |namespace: &str| {
            let locks = Locks::builder().namespace(namespace).on_memory(&store).unwrap();
            LockScopeLayer::new(locks).wait(Duration::from_secs(5))
        };
        let by_order = || lock_by(|Path(id): Path<u64>| format!("order:{id}"));
        let upstream = Router::new()
            .route("/orders/{id}", on_post(async || "paid").route_layer(by_order()))
            .layer(scope("shop"));
        // Another process sees neither the gateway's extensions nor the gateway's hold.
        let forward = async move |request: Request| {
            let forwarded = Request::post(request.uri()).body(Body::empty()).unwrap();
            ask(&upstream, forwarded).await.status.to_string()
        };
        let gateway = Router::new()
            .route("/orders/{id}", on_post(forward).route_layer(by_order()))
            .layer(scope(namespace));
        let request = Request::post("/orders/42").body(Body::empty()).unwrap();
        assert_eq!(ask(&gateway, request).await.body, expected.to_string(), "{namespace}");
    }
}
