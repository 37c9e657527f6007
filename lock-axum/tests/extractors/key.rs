//! Extractors that name locks, and the options of their keys.

use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts, MatchedPath, OriginalUri, Path, State};
use axum::routing::any;
use axum::{Extension, Router};
use http::request::Parts;
use lock_axum::{
    ByMatchedPath, HttpLockLayer, Keys, LockHandle, LockScopeLayer, Lockable, Locked, Locks,
    by_path, lock_by,
};
use lock_tests::http::gate;
use lock_tests::{LIMIT, free};

use crate::support::{ByOrder, ask, get, send};

fn scoped(router: Router) -> Router {
    router.layer(LockScopeLayer::new(Locks::in_memory()))
}

async fn name<K: Lockable>(lock: Locked<K>) -> String {
    lock.handle().key().into_owned()
}

/// A seat, locked as `seat:{hall}:{seat}`.
#[derive(serde::Deserialize)]
struct Seat {
    hall: u32,
    seat: String,
}

impl Lockable for Seat {
    fn lock_key(&self) -> Keys {
        Keys::one(format!("seat:{}:{}", self.hall, self.seat))
    }
}

#[tokio::test]
async fn the_parameters_of_a_route_have_one_name_for_all_spellings() {
    let app = scoped(
        Router::new()
            .route("/orders/{id}", any(name::<ByOrder>))
            .route("/halls/{hall}/{seat}", any(name::<Path<Seat>>)),
    );
    for path in ["/orders/42", "/orders/4%32", "/orders/042", "/orders/42?now"] {
        assert_eq!(ask(&app, get(path)).await.body, "order:42", "{path}");
    }
    assert_eq!(ask(&app, get("/halls/3/A%2F7")).await.body, "seat:3:A/7");
}

#[tokio::test]
async fn the_parameter_of_a_wildcard_route_has_two_paths_and_one_name_only_by_the_parameter() {
    let handler = async |Path(path): Path<String>, Extension(lock): Extension<LockHandle>| {
        format!("{path} under {}", lock.key())
    };
    let by_parameter = lock_by(|Path(path): Path<String>| format!("file:{path}"));
    let by_text = HttpLockLayer::new(Locks::in_memory(), by_path());
    let app = scoped(
        Router::new()
            .route("/files/{*path}", any(handler).layer(by_parameter))
            .route("/texts/{*path}", any(handler).layer(by_text)),
    );
    for path in ["a/b", "a%2Fb", "a%2fb"] {
        let answer = ask(&app, get(&format!("/files/{path}"))).await;
        assert_eq!(answer.body, "a/b under file:a/b", "{path}");
    }
    // The documented exception of `ByPath`.
    assert_eq!(ask(&app, get("/texts/a/b")).await.body, "a/b under /texts/a/b");
    assert_eq!(ask(&app, get("/texts/a%2fb")).await.body, "a/b under /texts/a%2Fb");
}

#[tokio::test]
async fn a_route_or_a_whole_path_may_be_the_name_also_in_nested_routers() {
    let inner = Router::new()
        .route("/path/{id}", any(name::<OriginalUri>))
        .route("/route/{id}", any(name::<MatchedPath>));
    let app = scoped(Router::new().nest("/api", inner.clone()).merge(inner));
    assert_eq!(ask(&app, get("/path/7")).await.body, "/path/7");
    assert_eq!(ask(&app, get("/api/path/7")).await.body, "/api/path/7");
    assert_eq!(ask(&app, get("/api/path/%37")).await.body, "/api/path/7", "in its one spelling");
    assert_eq!(ask(&app, get("/api/path/%2e%2e")).await.status, 400, "it has none");
    assert_eq!(ask(&app, get("/api/route/7")).await.body, ":route:/api/route/{id}");
    assert_eq!(ask(&app, get("/route/8")).await.body, ":route:/route/{id}");
}

#[derive(Clone)]
struct Tenant(&'static str);

#[derive(Clone)]
struct App {
    tenant: Tenant,
}

impl FromRef<App> for Tenant {
    fn from_ref(app: &App) -> Self {
        app.tenant.clone()
    }
}

/// A cart, locked by values from the state, a header and the route.
struct Cart {
    tenant: &'static str,
    user: String,
    order: u64,
}

impl<S> FromRequestParts<S> for Cart
where
    S: Send + Sync,
    Tenant: FromRef<S>,
{
    type Rejection = axum::response::Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        use axum::response::IntoResponse as _;
        let State(Tenant(tenant)) = State::from_request_parts(parts, state).await.unwrap();
        let order = ByOrder::from_request_parts(parts, state).await;
        let order = order.map_err(|refused| refused.into_response())?.id;
        Ok(Self { tenant, user: parts.headers["x-user"].to_str().unwrap().to_owned(), order })
    }
}

impl Lockable for Cart {
    fn lock_key(&self) -> Keys {
        Keys::one(format!("{}:{}:{}", self.tenant, self.user, self.order))
    }
}

#[tokio::test]
async fn a_source_of_ones_own_reads_state_headers_and_route() {
    let app = Router::new()
        .route("/carts/{id}", any(name::<Cart>))
        .layer(LockScopeLayer::new(Locks::in_memory()))
        .with_state(App { tenant: Tenant("acme") });
    let mut request = get("/carts/7");
    request.headers_mut().insert("x-user", "ada".parse().unwrap());
    assert_eq!(ask(&app, request).await.body, "acme:ada:7");
}

/// An extractor whose key sets every option.
struct Choosy;

impl<S: Sync> FromRequestParts<S> for Choosy {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self)
    }
}

impl Lockable for Choosy {
    fn lock_key(&self) -> Keys {
        let keys = Keys::one("choosy").label("who asks").queue_limit(1);
        keys.wait(Duration::from_millis(50)).lease(Duration::from_secs(5))
    }
}

#[tokio::test]
async fn a_request_may_have_its_own_wait_lease_label_and_queue_limit() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let handler = move |lock: Locked<Choosy>| async move {
        let left = lock.deadline() - tokio::time::Instant::now();
        assert!(left <= Duration::from_secs(5), "{left:?}");
        gate.pass().await;
    };
    let layer = LockScopeLayer::new(locks.clone()).wait_forever().lease(Duration::from_secs(60));
    let app = Router::new().route("/", any(handler)).layer(layer.label("the layer's"));
    let first = send(&app, get("/"));
    keeper.entered().await;
    let second = send(&app, get("/"));
    let waiter = lock_tests::eventually_some("somebody waits", LIMIT, async || {
        locks.inspect("choosy").await.unwrap().waiters.first().cloned()
    });
    assert!(format!("{:?}", waiter.await).contains("who asks"));
    assert_eq!(ask(&app, get("/")).await.status, 429, "one may wait");
    assert_eq!(second.await.unwrap().status, 423, "for 50 ms");
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 200);
    free(&locks, "choosy").await;
}

/// Responds with the key that the lock layer has locked.
async fn layered(request: axum::extract::Request) -> String {
    request.extensions().get::<LockHandle>().unwrap().key().into_owned()
}

#[tokio::test]
async fn the_layer_may_lock_the_whole_path_of_a_nested_router() {
    let inner = Router::new()
        .route("/{id}", any(layered))
        .layer(HttpLockLayer::new(Locks::in_memory(), by_path()));
    let app = Router::new().nest("/orders", inner.clone()).nest("/api/users", inner);
    assert_eq!(ask(&app, get("/orders/7")).await.body, "/orders/7");
    assert_eq!(ask(&app, get("/api/users/7")).await.body, "/api/users/7");
}

#[tokio::test]
async fn the_layer_may_lock_a_route_and_refuses_what_no_route_has_matched() {
    let layer = HttpLockLayer::new(Locks::in_memory(), ByMatchedPath::new());
    let inner = Router::new().route("/{id}", any(layered)).route_layer(layer.clone());
    let app = Router::new().nest("/orders", inner);
    assert_eq!(ask(&app, get("/orders/7")).await.body, ":route:/orders/{id}");
    assert_eq!(ask(&app, get("/orders/8")).await.body, ":route:/orders/{id}");
    let around = Router::new().fallback(async || "not found").layer(layer);
    assert_eq!(ask(&around, get("/nothing")).await.status, 400);
}

#[tokio::test]
async fn a_route_is_never_the_name_of_a_path() {
    let locks = Locks::in_memory();
    let by_route = HttpLockLayer::new(locks.clone(), ByMatchedPath::new());
    let by_path = HttpLockLayer::new(locks, by_path());
    let app = scoped(
        Router::new()
            .route("/orders/{id}", any(layered).layer(by_route))
            .route("/extracted/{id}", any(name::<MatchedPath>)),
    );
    let paths = Router::new().fallback(layered).layer(by_path);
    for (route, path) in
        [("/orders/7", "/orders/%7Bid%7D"), ("/extracted/7", "/extracted/%7Bid%7D")]
    {
        let route = ask(&app, get(route)).await.body;
        let path = ask(&paths, get(path)).await.body;
        assert!(path.starts_with('/') && !route.starts_with('/'), "{route} {path}");
    }
}
