//! The log events for rejections.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::any;
use http::StatusCode;
use http::request::Parts;
use lock_axum::{
    Cause, Keys, LockError, LockScopeLayer, Lockable, Locked, LockedBody, Locks, OwnedLock, lock_by,
};
use lockcore::{LockErrorKind, MemoryStore};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use crate::support::{ByOrder, ask, get};

/// A tracing subscriber that keeps the text of rejections, of errors, and of lock-tower's warnings.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

/// A second subscriber, which is always alive. With a single subscriber, tracing decides once, on
/// the thread that first logs an event, whether anyone listens, and that thread may have no
/// subscriber.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));

impl Log {
    /// Collects the log of this thread until the returned guard is dropped.
    fn here() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let log = Self::default();
        let here = tracing::subscriber::set_default(log.clone());
        (log, here)
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?};"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "axum::rejection"
            || *metadata.level() == Level::ERROR
            || metadata.target().starts_with("lock_tower") && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = format!("{};", event.metadata().level());
        event.record(&mut Text(&mut text));
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

// The runtime has one thread, so that the subscriber of this thread sees everything.
#[tokio::test]
async fn a_rejection_is_logged_as_axum_logs_its_own() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let app = Router::new()
        .route("/{id}", any(async |_: Locked<ByOrder>| ()))
        .layer(LockScopeLayer::new(locks.clone()).wait(Duration::ZERO));
    ask(&app, get("/7")).await;
    let events = std::mem::take(&mut *log.0.lock().unwrap());
    assert_eq!(events.len(), 1, "{events:?}");
    let kind = std::any::type_name::<LockError>();
    for part in ["TRACE;", "status=423;", "lock-busy", &format!("rejection_type=\"{kind}\"")] {
        assert!(events[0].contains(part), "{part}: {events:?}");
    }
}

#[tokio::test]
async fn a_rejection_is_logged_with_the_status_that_the_client_gets() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:7").await.unwrap();
    let by_order = lock_by(|Path(order): ByOrder| order.lock_key());
    let app = Router::new()
        .route("/locked/{id}", any(async |_: Locked<ByOrder>| ()))
        .route("/body/{id}", any(async |_: LockedBody<ByOrder, String>| ()))
        .route("/owned/{id}", any(async |_: OwnedLock<ByOrder>| ()))
        .route("/by/{id}", any(async || ()).layer(by_order))
        .layer(
            LockScopeLayer::new(locks.clone())
                .wait(Duration::ZERO)
                .status(Cause::Busy, StatusCode::CONFLICT)
                .status(Cause::BadKey, StatusCode::NOT_FOUND),
        );
    for (id, status) in [(7, 409), (400, 404)] {
        for kind in ["locked", "body", "owned", "by"] {
            let answer = ask(&app, get(&format!("/{kind}/{id}"))).await;
            assert_eq!(answer.status, status, "{kind}");
            let events = std::mem::take(&mut *log.0.lock().unwrap());
            assert_eq!(events.len(), 1, "{kind}: {events:?}");
            assert!(events[0].contains(&format!("status={status};")), "{kind}: {events:?}");
        }
    }
}

#[tokio::test]
async fn what_only_the_developer_can_mend_is_an_error_of_the_log() {
    let (log, _here) = Log::here();
    let app = Router::new().route("/{id}", any(async |_: Locked<ByOrder>| ()));
    let answer = ask(&app, get("/7")).await;
    assert!(!answer.body.contains("LockScopeLayer"), "{answer:?}");
    let events = std::mem::take(&mut *log.0.lock().unwrap());
    let errors: Vec<_> = events.iter().filter(|event| event.starts_with("ERROR;")).collect();
    assert_eq!(errors.len(), 1, "{events:?}");
    assert!(errors[0].contains(".layer(LockScopeLayer::new(locks))"), "{errors:?}");
}

/// Two names that the client chooses, each with a permit: only one is left if they are equal.
struct Pair;

impl<S: Sync> FromRequestParts<S> for Pair {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self)
    }
}

impl Lockable for Pair {
    fn lock_key(&self) -> Keys {
        Keys::one("a").permits(1, 1).join(Keys::one("a").permits(1, 1))
    }
}

#[tokio::test]
async fn a_name_that_a_client_chooses_twice_is_at_most_one_error_a_minute() {
    let (log, _here) = Log::here();
    let app = Router::new()
        .route("/", any(async |_: Locked<Pair>| ()))
        .layer(LockScopeLayer::new(Locks::in_memory()));
    for _ in 0..3 {
        assert_eq!(ask(&app, get("/")).await.status, 500);
    }
    let mut events = std::mem::take(&mut *log.0.lock().unwrap());
    events.retain(|event| !event.starts_with("TRACE;"));
    // Another test may have had the error of this minute.
    assert!(events.len() <= 1, "{events:?}");
}

// L11: each request was logged as a server configuration error.
#[tokio::test]
async fn a_name_that_another_program_has_is_one_warning_a_minute() {
    let (log, _here) = Log::here();
    let store = MemoryStore::new();
    store.refuse(Some(LockErrorKind::WrongType));
    let locks = Locks::builder().on_memory(&store).unwrap();
    let app = Router::new()
        .route("/{id}", any(async |_: Locked<ByOrder>| ()))
        .layer(LockScopeLayer::new(locks));
    for _ in 0..3 {
        assert_eq!(ask(&app, get("/7")).await.status, 500);
    }
    let mut events = std::mem::take(&mut *log.0.lock().unwrap());
    events.retain(|event| !event.starts_with("TRACE;"));
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("WARN;"), "{events:?}");
    assert!(events[0].contains("another program"), "{events:?}");
}
