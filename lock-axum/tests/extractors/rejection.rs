//! Rejections by the extractors.

use std::error::Error;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::rejection::PathRejection;
use axum::routing::{any, post as on_post};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use lock_axum::{
    Cause, KeyError, Keys, LockError, LockScopeLayer, Lockable, Locked, LockedBody,
    LockedBodyRejection, LockedRejection, Locks, OwnedLock, Refusals,
};
use lock_tests::RedisServer;
use lock_tests::{free, is_held, queued};
use serde::Deserialize;

use crate::support::{Answer, ByOrder, ask, both, get, post};

const SHORT: Duration = Duration::from_millis(30);

/// The user of a session. A request without a session is refused with 401.
struct User(String);

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        let user = user.ok_or((StatusCode::UNAUTHORIZED, "who are you?"))?;
        Ok(Self(user.to_owned()))
    }
}

impl Lockable for User {
    fn lock_key(&self) -> Keys {
        Keys::one(format!("user:{}", self.0))
    }
}

#[derive(Deserialize)]
struct Payment {
    order: u64,
}

impl Lockable for Payment {
    fn lock_key(&self) -> Keys {
        Keys::one(format!("order:{}", self.order))
    }
}

fn routes() -> Router {
    Router::new()
        .route("/orders/{id}", any(async |_: Locked<ByOrder>| "served"))
        .route("/owned/{id}", any(async |_: OwnedLock<ByOrder>| "served"))
        .route("/me", any(async |_: Locked<User>| "served"))
        .route("/pay", on_post(async |_: Locked<Json<Payment>>| "served"))
        .route("/mine", on_post(async |_: LockedBody<User, Json<Payment>>| "served"))
}

fn app(locks: &Locks, change: impl FnOnce(LockScopeLayer) -> LockScopeLayer) -> Router {
    routes().layer(change(LockScopeLayer::new(locks.clone()).wait(SHORT)))
}

/// Returns functions that create a request, for each of three kinds of extractors. Each request
/// locks order 7.
fn asking() -> [impl Fn() -> axum::extract::Request; 3] {
    let number = |number| {
        move || match number {
            0 => get("/orders/7"),
            1 => get("/owned/7"),
            _ => post("/pay", r#"{"order":7}"#),
        }
    };
    [number(0), number(1), number(2)]
}

/// Asserts that every kind of extractor refuses the request with this status and cause, called
/// directly and over a socket.
async fn refuse(app: &Router, status: u16, cause: Cause, waits: bool) {
    for request in asking() {
        let answers = both(app, request).await;
        assert_eq!(answers[0].cause, Some(cause), "the error rides in the extensions");
        for answer in &answers {
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(
                (&problem["code"], &problem["status"]),
                (&cause.code().into(), &status.into())
            );
            assert!(!answer.body.contains("order:7"), "the client is not told the key");
            let after = answer.header("retry-after").map(|after| after.parse::<u64>().unwrap());
            assert_eq!(after.is_some_and(|after| after >= 1), waits, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_lock_that_stays_held_is_423() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    refuse(&app(&locks, |layer| layer), 423, Cause::Busy, true).await;
    queued(&locks, "order:7", 0).await;
}

#[tokio::test]
async fn a_full_queue_is_429() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let _waiter = tokio::spawn(locks.lock("order:7"));
    queued(&locks, "order:7", 1).await;
    refuse(&app(&locks, |layer| layer.queue_limit(1)), 429, Cause::QueueFull, true).await;
}

#[tokio::test]
async fn redis_that_is_away_is_503() {
    let mut server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let app = app(&locks, |layer| layer);
    assert_eq!(ask(&app, get("/orders/7")).await.status, 200);
    server.kill();
    for request in asking() {
        for answer in both(&app, request).await {
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.body.contains("lock-unavailable"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_hold_that_is_lost_is_500_without_a_time_to_come_back() {
    let locks = Locks::in_memory();
    let inner = locks.clone();
    let lose = move |_: Locked<ByOrder>| {
        let inner = inner.clone();
        async move {
            inner.force_release("order:7").await.unwrap();
            std::future::pending::<()>().await;
        }
    };
    let app = Router::new().route("/{id}", any(lose)).layer(LockScopeLayer::new(locks.clone()));
    let answers = both(&app, || get("/7")).await;
    assert_eq!(answers[0].cause, Some(Cause::Lost));
    for answer in answers {
        assert_eq!((answer.status, answer.header("retry-after")), (500, None), "{answer:?}");
        assert!(answer.body.contains("lock-lost"), "{answer:?}");
    }
}

#[tokio::test]
async fn what_cannot_name_a_lock_is_400_and_says_why() {
    let app = app(&Locks::in_memory(), |layer| layer);
    for answer in both(&app, || get("/orders/400")).await {
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(
            answer.body.contains(r#""detail":"there is no order 400","code":"lock-key-invalid""#)
        );
    }
    let long = "x".repeat(5_000);
    let request = || {
        let mut request = get("/me");
        request.headers_mut().insert("x-user", long.parse().unwrap());
        request
    };
    for answer in both(&app, request).await {
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("lock-key-invalid") && !answer.body.contains("xx"));
    }
}

#[tokio::test]
async fn without_the_layer_every_extractor_is_500_and_tells_the_developer_not_the_client() {
    for request in asking() {
        for answer in both(&routes(), request).await {
            assert_eq!(answer.status, 500, "{answer:?}");
            let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(problem["detail"], "The server's locks are not set up correctly.");
            assert_eq!(problem["code"], "lock-misconfigured");
        }
    }
    let layered = routes().layer(LockScopeLayer::new(Locks::in_memory()));
    assert_eq!(ask(&layered, get("/orders/7")).await.status, 200);
}

#[tokio::test]
async fn an_option_out_of_its_range_is_500() {
    let app = app(&Locks::in_memory(), |layer| layer.lease(Duration::from_millis(1)));
    refuse(&app, 500, Cause::Misconfigured, false).await;
}

#[tokio::test]
async fn a_source_that_refuses_answers_itself_and_nothing_is_locked() {
    let locks = Locks::in_memory();
    let app = app(&locks, |layer| layer);
    for answer in both(&app, || get("/me")).await {
        assert_eq!((answer.status, answer.body.as_str()), (401, "who are you?"));
    }
    for answer in both(&app, || post("/mine", r#"{"order":7}"#)).await {
        assert_eq!((answer.status, answer.body.as_str()), (401, "who are you?"));
    }
    for answer in both(&app, || get("/orders/seven")).await {
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "axum's own");
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_answers_itself_before_anything_is_locked() {
    let locks = Locks::in_memory();
    let guard = locks.lock("order:7").await.unwrap(); // a waiter would get 423
    let app = app(&locks, |layer| layer);
    for (body, status) in [("{", 400), (r#"{"order":"seven"}"#, 422)] {
        for answer in both(&app, || post("/pay", body)).await {
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        }
    }
    let untyped = || axum::extract::Request::post("/pay").body("{}".into()).unwrap();
    for answer in both(&app, untyped).await {
        assert_eq!(answer.status, 415, "{answer:?}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn every_status_can_be_changed_and_so_can_all_of_the_answer() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let conflict = app(&locks, |layer| layer.status(Cause::Busy, StatusCode::CONFLICT));
    refuse(&conflict, 409, Cause::Busy, true).await;
    let refusals = Refusals::new().status(Cause::Busy, StatusCode::IM_A_TEAPOT);
    refuse(&app(&locks, |layer| layer.refusals(refusals)), 418, Cause::Busy, true).await;
    let own = app(&locks, |layer| {
        layer.respond_with(|error| http::Response::new(format!("{:?}", error.cause()).into()))
    });
    for request in asking() {
        for Answer { status, body, .. } in both(&own, request).await {
            assert_eq!((status, body.as_str()), (200, "Busy"));
        }
    }
}

#[tokio::test]
async fn an_optional_lock_is_none_when_busy_or_full_and_refuses_else() {
    let locks = Locks::in_memory();
    let optional = async |order: Option<Locked<ByOrder>>| order.is_some().to_string();
    let layered = |layer| Router::new().route("/{id}", any(optional)).layer(layer);
    let app = layered(LockScopeLayer::new(locks.clone()).wait(SHORT));
    assert_eq!(ask(&app, get("/7")).await.body, "true");
    let guard = locks.lock("order:7").await.unwrap();
    assert_eq!(ask(&app, get("/7")).await.body, "false");
    let waiter = tokio::spawn(locks.lock("order:7"));
    queued(&locks, "order:7", 1).await;
    let full = layered(LockScopeLayer::new(locks.clone()).queue_limit(1));
    assert_eq!(ask(&full, get("/7")).await.body, "false");
    drop(guard);
    drop(waiter.await.unwrap());
    free(&locks, "order:7").await;
    assert_eq!(ask(&full, get("/7")).await.body, "true", "it waits and holds as any other");
    assert!(!is_held(&locks, "order:7").await);

    assert_eq!(ask(&app, get("/400")).await.status, 400);
    assert_eq!(ask(&app, get("/seven")).await.status, 400);
    let bare = Router::new().route("/{id}", any(optional));
    assert_eq!(ask(&bare, get("/7")).await.status, 500);
}

type Refused = LockedRejection<PathRejection>;

/// An error with a source.
#[derive(Debug)]
struct NoSession(std::fmt::Error);

impl std::fmt::Display for NoSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no session")
    }
}

impl Error for NoSession {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_error_chain_of_a_rejection_says_each_thing_once() {
    let texts = |error: &dyn Error| -> Vec<String> {
        std::iter::successors(Some(error), |&error| error.source())
            .map(ToString::to_string)
            .collect()
    };
    let session = || NoSession(std::fmt::Error);
    let lock = || LockError::from(KeyError::new("no account"));
    let of_session = texts(&session());
    assert_eq!(of_session.len(), 2);
    type OfBody = LockedBodyRejection<NoSession, NoSession>;
    assert_eq!(texts(&LockedRejection::Key(session())), of_session);
    assert_eq!(texts(&OfBody::Key(session())), of_session);
    assert_eq!(texts(&OfBody::Body(session())), of_session);
    assert_eq!(texts(&LockedRejection::<NoSession>::Lock(lock())).len(), 1);
    assert_eq!(texts(&OfBody::Lock(lock())).len(), 1);
}

#[tokio::test]
async fn a_handler_may_look_at_the_rejection() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let look = async |order: Result<Locked<ByOrder>, Refused>| match order.unwrap_err() {
        LockedRejection::Lock(refused) => {
            assert_eq!(refused.cause(), Cause::Busy);
            assert!(!refused.to_string().is_empty());
            (refused.status(), refused.cause().code().to_owned())
        }
        LockedRejection::Key(path) => (path.status(), path.body_text()),
        _ => unreachable!("there are two kinds"),
    };
    let app = Router::new()
        .route("/{id}", any(look))
        .layer(LockScopeLayer::new(locks.clone()).wait(SHORT));
    let answer = ask(&app, get("/7")).await;
    assert!(answer.status == 423 && answer.body.contains("lock-busy"), "{answer:?}");
    let answer = ask(&app, get("/seven")).await;
    assert!(answer.status == 400 && answer.body.contains("Invalid URL"), "{answer:?}");
}
