//! Refusals in other formats and with other statuses than the default.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use lock_tests::http::{Client, get, piece, serve, streamed, text};
use lock_tower::{ByPath, Cause, ExtractKeyExt as _, HttpLockLayer, LockError};
use lockcore::{LockGuard, Locks};
use tokio::sync::mpsc;
use tower::{ServiceBuilder, service_fn};

type Layer = HttpLockLayer<ByPath>;

/// Starts a server whose key `/a` is held. Returns the address, and the guard that holds the key.
async fn taken(change: impl FnOnce(Layer) -> Layer) -> (SocketAddr, LockGuard) {
    let locks = Locks::in_memory();
    let guard = locks.lock("/a").await.unwrap();
    let layer = change(HttpLockLayer::new(locks, ByPath::new()).wait(Duration::ZERO));
    let seen = |response: Response<_>| {
        let cause = response.extensions().get::<LockError>().map(LockError::cause);
        let mut response = response;
        if cause == Some(Cause::Busy) {
            response.headers_mut().insert("x-seen", http::HeaderValue::from_static("busy"));
        }
        response
    };
    let service = ServiceBuilder::new().map_response(seen).layer(layer).service(service_fn(
        |_: Request<_>| async move { Ok::<_, Infallible>(Response::new(text("served"))) },
    ));
    (serve(service).await, guard)
}

#[tokio::test]
async fn one_call_changes_a_status() {
    let (address, _guard) = taken(|layer| layer.status(Cause::Busy, StatusCode::CONFLICT)).await;
    let answer = get(address, "/a", "").await;
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains(r#""title":"Conflict","status":409"#), "{}", answer.body);
    assert_eq!(get(address, "//", "").await.status, 400, "the others stay");
}

#[tokio::test]
async fn a_closure_replaces_all_of_it_and_the_error_still_rides_along() {
    let (address, _guard) = taken(|layer| {
        layer.respond_with(|error| {
            let mut response = Response::new(Bytes::from(format!("sorry: {:?}", error.cause())));
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        })
    })
    .await;
    let answer = get(address, "/a", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (418, "sorry: Busy"));
    assert_eq!(answer.header("x-seen"), Some("busy"));
}

#[tokio::test]
async fn layers_outside_can_tell_a_refusal_from_an_answer() {
    let (address, _guard) = taken(|layer| layer).await;
    assert_eq!(get(address, "/a", "").await.header("x-seen"), Some("busy"));
    assert_eq!(get(address, "/b", "").await.header("x-seen"), None);
}

#[tokio::test]
async fn grpc_is_told_in_the_head_with_status_200() {
    let (address, _guard) = taken(HttpLockLayer::grpc).await;
    for (path, code) in [("/a", "14"), ("//", "3")] {
        let answer = get(address, path, "content-type: application/grpc\r\n").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        assert_eq!(answer.header("grpc-status"), Some(code));
        assert!(answer.header("grpc-message").is_some());
    }
}

// Otherwise a browser behind the same layer would take the refusal, a 200, for a success.
#[tokio::test]
async fn under_grpc_a_request_that_is_not_grpc_is_refused_with_its_status_as_problem_json() {
    let (address, _guard) =
        taken(|layer| layer.grpc().status(Cause::Busy, StatusCode::CONFLICT)).await;
    for content_type in ["", "content-type: application/json\r\n", "content-type: text/grpc\r\n"] {
        let answer = get(address, "/a", content_type).await;
        assert_eq!(answer.status, 409, "{content_type:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.body.contains(r#""code":"lock-busy""#), "{}", answer.body);
        assert_eq!(answer.header("grpc-status"), None);
    }
}

#[tokio::test]
async fn under_grpc_a_body_that_is_not_grpc_is_cut_off_when_its_lock_is_lost() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).grpc().hold_until_body_end(true);
    let (streams, mut started) = mpsc::unbounded_channel();
    let service = ServiceBuilder::new().layer(layer).service(service_fn(move |_: Request<_>| {
        let (pieces, body) = streamed();
        streams.send(pieces).unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let mut client = Client::send(serve(service).await, "GET /a", "te: trailers\r\n").await;
    let pieces = started.recv().await.unwrap();
    pieces.send(piece("half")).unwrap();
    client.until("half").await;
    locks.force_release("/a").await.unwrap();
    let rest = client.answer().await;
    assert_eq!(rest.head.trim(), "", "cut, not ended");
    drop(pieces);
}

#[tokio::test]
async fn a_refusal_of_head_has_no_body() {
    let (address, _guard) = taken(|layer| layer).await;
    let answer = Client::send(address, "HEAD /a", "").await.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (423, ""));
}

#[tokio::test]
async fn only_the_methods_named_are_locked() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("order:/a").await.unwrap();
    let key = ByPath::new().prefix("order").methods([Method::POST, Method::PUT]);
    let layer = HttpLockLayer::new(locks, key).wait(Duration::ZERO);
    let service =
        ServiceBuilder::new().layer(layer).service(service_fn(|_: Request<_>| async move {
            Ok::<_, Infallible>(Response::new(text("served")))
        }));
    let address = serve(service).await;
    for (method, status) in [("GET", 200), ("DELETE", 200), ("POST", 423), ("PUT", 423)] {
        let answer = Client::send(address, &format!("{method} /a"), "").await.answer().await;
        assert_eq!(answer.status, status, "{method}");
    }
}
