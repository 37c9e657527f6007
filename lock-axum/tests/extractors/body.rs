//! Request bodies that are read before the lock is acquired, or under it.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Path, Query, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post as on_post;
use axum::{Json, Router};
use lock_axum::{KeyError, Keys, LockScopeLayer, Lockable, Locked, LockedBody, Locks};
use lock_tests::http::{Client, gate};
use lock_tests::{LIMIT, free, is_held};
use serde::Deserialize;

use crate::support::{ByOrder, Order, ask, post, serve};

#[derive(Deserialize)]
struct Transfer {
    from: u64,
    to: u64,
}

impl Lockable for Transfer {
    fn lock_key(&self) -> Keys {
        Keys::one(format!("account:{}", self.from)).and(format!("account:{}", self.to))
    }
}

fn names<K: Lockable>(lock: &Locked<K>) -> String {
    lock.handles().iter().map(|handle| handle.key()).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn a_payload_names_its_locks() {
    let transfer = async |transfer: Locked<Json<Transfer>>| {
        format!("{} to {}: {}", transfer.from, transfer.to, names(&transfer))
    };
    let app =
        Router::new().route("/", on_post(transfer)).layer(LockScopeLayer::new(Locks::in_memory()));
    let answer = ask(&app, post("/", r#"{"from":2,"to":1}"#)).await;
    assert_eq!(answer.body, "2 to 1: account:1,account:2");
}

#[cfg(feature = "form")]
#[tokio::test]
async fn so_does_a_form() {
    let transfer = async |transfer: Locked<axum::Form<Transfer>>| names(&transfer);
    let app =
        Router::new().route("/", on_post(transfer)).layer(LockScopeLayer::new(Locks::in_memory()));
    let mut request = post("/", "from=2&to=1");
    let form = "application/x-www-form-urlencoded".parse().unwrap();
    request.headers_mut().insert("content-type", form);
    assert_eq!(ask(&app, request).await.body, "account:1,account:2");
}

/// A transfer from the account in the body to the account in the route.
struct Move {
    from: u64,
    to: u64,
}

impl<S: Send + Sync> FromRequest<S> for Move {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let read = <(Path<Order>, Json<u64>)>::from_request(request, state).await;
        let (to, Json(from)) = read.map_err(|refused| refused.into_response())?;
        Ok(Self { from, to: to.id })
    }
}

impl Lockable for Move {
    fn lock_key(&self) -> Keys {
        match self.from == self.to {
            true => KeyError::new("from an account to itself").into(),
            false => format!("{}>{}", self.from, self.to).into(),
        }
    }
}

#[tokio::test]
async fn a_key_may_need_the_route_and_the_body() {
    let app = Router::new()
        .route("/{id}", on_post(async |moved: Locked<Move>| names(&moved)))
        .layer(LockScopeLayer::new(Locks::in_memory()));
    assert_eq!(ask(&app, post("/7", "3")).await.body, "3>7");
    assert_eq!(ask(&app, post("/7", "7")).await.status, 400);
}

#[derive(Deserialize)]
struct Account(u64);

impl Lockable for Account {
    fn lock_key(&self) -> Keys {
        format!("account:{}", self.0).into()
    }
}

#[tokio::test]
async fn a_tuple_struct_names_a_number_and_a_tuple_locks_the_route_and_the_body() {
    let both = async |both: Locked<(ByOrder, Json<Account>)>| names(&both);
    let app = Router::new()
        .route("/{id}", on_post(both))
        .route(
            "/query",
            on_post(async |query: Option<Locked<Query<Order>>>| match query {
                Some(query) => names(&query),
                None => "busy".to_owned(),
            }),
        )
        .route(
            "/body",
            on_post(async |body: Option<Locked<Json<Account>>>| match body {
                Some(body) => names(&body),
                None => "busy".to_owned(),
            }),
        )
        .layer(LockScopeLayer::new(Locks::in_memory()).wait(std::time::Duration::ZERO));
    assert_eq!(ask(&app, post("/7", "3")).await.body, "account:3,order:7");
    assert_eq!(ask(&app, post("/query?id=7", "")).await.body, "order:7");
    assert_eq!(ask(&app, post("/body", "3")).await.body, "account:3");
}

#[tokio::test]
async fn a_slow_upload_holds_the_lock_only_where_the_lock_comes_before_the_body() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let [before, after, wraps] = [(); 3].map(|()| gate.clone());
    let app = Router::new()
        .route(
            "/before/{id}",
            on_post(async move |_: Locked<ByOrder>, _: String| before.pass().await),
        )
        .route(
            "/after/{id}",
            on_post(async move |_: LockedBody<ByOrder, String>| after.pass().await),
        )
        .route(
            "/wraps/{id}",
            on_post(async move |LockedBody { body, .. }: LockedBody<ByOrder, Body>| {
                to_bytes(body, usize::MAX).await.unwrap();
                wraps.pass().await;
            }),
        )
        .layer(LockScopeLayer::new(locks.clone()));
    let address = serve(app).await;
    for (path, holds) in [("/before/7", true), ("/after/7", false), ("/wraps/7", true)] {
        let head = "transfer-encoding: chunked\r\n";
        let mut client = Client::send(address, &format!("POST {path}"), head).await;
        client.chunk("one").await;
        if holds {
            let held = async || is_held(&locks, "order:7").await;
            lock_tests::eventually("it is held before the body has come", LIMIT, held).await;
        } else {
            for _ in 0..20 {
                client.chunk("another").await;
                tokio::time::sleep(std::time::Duration::from_millis(5)).await; // a slow client
                assert!(!is_held(&locks, "order:7").await);
            }
        }
        assert!(keeper.is_alone());
        client.end_chunks().await;
        keeper.entered().await;
        assert!(is_held(&locks, "order:7").await, "the handler runs under it in any case");
        keeper.let_one_on();
        client.until("200 OK").await;
        free(&locks, "order:7").await;
    }
}
