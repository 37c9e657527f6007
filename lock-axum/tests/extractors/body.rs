//! Bodies that are read before the lock is taken, or under it.

use axum::extract::{FromRequestParts, Path};
use axum::routing::post as on_post;
use axum::{Json, Router};
use lock_axum::{
    BodyKeySource, KeyError, Keys, LockScopeLayer, Locked, LockedBody, Locks, Payload, PayloadKey,
};
use serde::Deserialize;

use crate::support::{ByOrder, Client, LIMIT, Order, ask, free, gate, is_held, post, serve};

#[derive(Deserialize)]
struct Transfer {
    from: u64,
    to: u64,
}

impl PayloadKey for Transfer {
    fn lock_key(&self) -> Result<Keys, KeyError> {
        Ok(Keys::one(format!("account:{}", self.from)).and(format!("account:{}", self.to)))
    }
}

fn names<K>(lock: &Locked<K>) -> String {
    lock.handles().iter().map(|handle| handle.key()).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn a_payload_names_its_locks() {
    let transfer = async |LockedBody { lock, body }: LockedBody<Payload, Json<Transfer>>| {
        format!("{} to {}: {}", body.from, body.to, names(&lock))
    };
    let app =
        Router::new().route("/", on_post(transfer)).layer(LockScopeLayer::new(Locks::in_memory()));
    let answer = ask(&app, post("/", r#"{"from":2,"to":1}"#)).await;
    assert_eq!(answer.body, "2 to 1: account:1,account:2");
}

#[cfg(feature = "form")]
#[tokio::test]
async fn so_does_a_form() {
    let transfer =
        async |LockedBody { lock, .. }: LockedBody<Payload, axum::Form<Transfer>>| names(&lock);
    let app =
        Router::new().route("/", on_post(transfer)).layer(LockScopeLayer::new(Locks::in_memory()));
    let mut request = post("/", "from=2&to=1");
    let form = "application/x-www-form-urlencoded".parse().unwrap();
    request.headers_mut().insert("content-type", form);
    assert_eq!(ask(&app, request).await.body, "account:1,account:2");
}

/// The account of the route, and that of the body.
struct Into(u64);

impl<S: Send + Sync> FromRequestParts<S> for Into {
    type Rejection = axum::extract::rejection::PathRejection;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        state: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self(Path::<Order>::from_request_parts(parts, state).await?.id))
    }
}

impl BodyKeySource<Json<u64>> for Into {
    fn lock_key(&self, body: &Json<u64>) -> Result<Keys, KeyError> {
        match body.0 == self.0 {
            true => Err(KeyError::new("from an account to itself")),
            false => Ok(Keys::one(format!("{}>{}", body.0, self.0))),
        }
    }
}

#[tokio::test]
async fn a_key_may_need_the_route_and_the_body() {
    let app = Router::new()
        .route("/{id}", on_post(async |locked: LockedBody<Into, Json<u64>>| names(&locked.lock)))
        .layer(LockScopeLayer::new(Locks::in_memory()));
    assert_eq!(ask(&app, post("/7", "3")).await.body, "3>7");
    assert_eq!(ask(&app, post("/7", "7")).await.status, 400);
}

#[tokio::test]
async fn a_slow_upload_holds_the_lock_only_where_the_lock_comes_before_the_body() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let [before, after] = [(); 2].map(|()| gate.clone());
    let app = Router::new()
        .route(
            "/before/{id}",
            on_post(async move |_: Locked<ByOrder>, _: String| before.pass().await),
        )
        .route(
            "/after/{id}",
            on_post(async move |_: LockedBody<ByOrder, String>| after.pass().await),
        )
        .layer(LockScopeLayer::new(locks.clone()));
    let address = serve(app).await;
    for (path, holds) in [("/before/7", true), ("/after/7", false)] {
        let head = "transfer-encoding: chunked\r\n\r\n";
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
        client.stream_end().await;
        keeper.entered().await;
        assert!(is_held(&locks, "order:7").await, "the handler runs under it in any case");
        keeper.let_one_on();
        client.until("200 OK").await;
        free(&locks, "order:7").await;
    }
}
