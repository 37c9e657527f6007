//! The errors of all methods that a handler may call: they pass through `?`, and become the layer's
//! refusals.

use std::time::Duration;

use axum::extract::Path;
use axum::routing::any;
use axum::{Extension, Router};
use http::StatusCode;
use lock_axum::{
    Cause, HttpLockLayer, LockError, LockHandle, LockScopeLayer, Locked, Locks, OnLost, OwnedLock,
    by_path,
};
use lockcore::{LockKey, LockOptions};

use crate::support::{ByOrder, ask, get};

/// Releases a lock by force, so that the holder has lost it.
async fn lose(locks: &Locks, key: &str) {
    assert!(locks.force_release(key).await.unwrap());
}

#[tokio::test]
async fn a_loss_that_a_handler_hands_on_is_the_refusal_of_its_layer() {
    let locks = Locks::in_memory();
    let handler = {
        let locks = locks.clone();
        async move |Path(call): Path<String>, order: Locked<Path<Call>>| {
            lose(&locks, &format!("call:{}", order.0.0)).await;
            order.lost().await;
            match call.as_str() {
                "release" => order.release().await?,
                "detach" => order.detach(async {}).await?,
                "handle" => order.handle().release().await?,
                "guard" => drop(order.handle().reenter()?),
                _ => drop(order.reenter()?),
            }
            Ok::<_, LockError>("not lost")
        }
    };
    let owned = {
        let locks = locks.clone();
        async move |order: OwnedLock<ByOrder>| {
            lose(&locks, "order:7").await;
            order.guards()[0].lost().await;
            order.release().await?;
            Ok::<_, LockError>("not lost")
        }
    };
    let layer = LockScopeLayer::new(locks.clone())
        .on_lost(OnLost::Continue)
        .status(Cause::Lost, StatusCode::CONFLICT);
    let app = Router::new()
        .route("/calls/{call}", any(handler))
        .route("/owned/{id}", any(owned))
        .layer(layer);
    for call in ["release", "detach", "handle", "guard", "reenter"] {
        let answer = ask(&app, get(&format!("/calls/{call}"))).await;
        assert_eq!((answer.status, answer.cause), (409, Some(Cause::Lost)), "{call}");
        assert!(answer.body.contains(r#""status":409"#), "{answer:?}");
    }
    assert_eq!(ask(&app, get("/owned/7")).await.status, 409);
}

#[derive(serde::Deserialize)]
struct Call(String);

impl lock_axum::Lockable for Call {
    fn lock_key(&self) -> lock_axum::Keys {
        format!("call:{}", self.0).into()
    }
}

#[tokio::test]
async fn the_layer_that_reads_the_key_renders_it_too_and_without_a_layer_it_is_a_problem() {
    let locks = Locks::in_memory();
    let handler = {
        let locks = locks.clone();
        async move |Extension(lock): Extension<LockHandle>| {
            lose(&locks, "/a").await;
            lock.lost().await;
            lock.release().await?;
            Ok::<_, LockError>("not lost")
        }
    };
    let layer = HttpLockLayer::new(locks.clone(), by_path()).on_lost(OnLost::Continue);
    for until_body_end in [false, true] {
        let layer = layer.clone().status(Cause::Lost, StatusCode::IM_A_TEAPOT);
        let layer = layer.hold_until_body_end(until_body_end);
        let app = Router::new().route("/a", any(handler.clone())).layer(layer);
        assert_eq!(ask(&app, get("/a")).await.status, 418);
    }
    let busy = async move || {
        let _guard = locks.lock("b").await?;
        drop(locks.key("b").wait(Duration::ZERO).lock().await?);
        Ok::<_, LockError>("not busy")
    };
    let answer = ask(&Router::new().route("/b", any(busy)), get("/b")).await;
    assert_eq!((answer.status, answer.cause), (423, Some(Cause::Busy)));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

// Once, the layer replaced the response whole: a browser found no CORS header.
#[tokio::test]
async fn a_status_and_headers_that_are_added_to_an_error_are_kept() {
    let locks = Locks::in_memory();
    let guard = locks.lock("b").await.unwrap();
    let busy = async move || {
        drop(locks.key("b").wait(Duration::ZERO).lock().await?);
        Ok::<_, LockError>(())
    };
    let with_status = busy.clone();
    let app = Router::new()
        .route(
            "/header",
            any(async move || busy().await.map_err(|error| ([("x-reason", "b")], error))),
        )
        .route(
            "/status",
            any(async move || with_status().await.map_err(|error| (StatusCode::CONFLICT, error))),
        )
        .layer(
            LockScopeLayer::new(Locks::in_memory()).status(Cause::Busy, StatusCode::IM_A_TEAPOT),
        );
    let answer = ask(&app, get("/header")).await;
    assert_eq!((answer.status, answer.header("x-reason")), (418, Some("b")));
    assert_eq!(answer.headers.get_all("content-type").iter().count(), 1);
    assert_eq!(answer.headers.get_all("retry-after").iter().count(), 1);
    assert!(answer.body.contains(r#""status":418"#), "{answer:?}");
    assert_eq!(ask(&app, get("/status")).await.status, 409);
    drop(guard);
}

#[tokio::test]
async fn the_errors_of_lockcore_are_answered_by_their_kind() {
    let locks = Locks::in_memory();
    let handler = {
        let locks = locks.clone();
        async move |Path(call): Path<String>| {
            match call.as_str() {
                "name" => drop(LockKey::new("")?),
                "options" => LockOptions::new().lease(Duration::ZERO).check()?,
                "downgrade" => {
                    let write = locks.write("order:7").await?;
                    assert!(locks.force_release("order:7").await?);
                    write.lost().await;
                    drop(write.downgrade().await?);
                }
                _ => {}
            }
            Ok::<_, LockError>("no error")
        }
    };
    let app = Router::new().route("/{call}", any(handler));
    let answers = [
        ("name", 400, Some(Cause::BadKey)),
        ("options", 500, Some(Cause::Misconfigured)),
        ("downgrade", 500, Some(Cause::Lost)),
        ("none", 200, None),
    ];
    for (call, status, cause) in answers {
        let answer = ask(&app, get(&format!("/{call}"))).await;
        assert_eq!((answer.status, answer.cause), (status, cause), "{call}");
    }
}
