//! `when_busy`: what a request does if its key is busy.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::poll;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use lock_tower::{ByPath, Cause, HttpLockLayer, Keys, LockScopeLayer, RequestLocks};
use lockcore::{Locks, WhenBusy};
use tower::{Layer as _, ServiceExt as _, service_fn};

type Body = Empty<Bytes>;

fn request() -> Request<Body> {
    Request::get("/a").body(Body::new()).unwrap()
}

async fn answer(_: Request<impl Sized>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::new()))
}

#[tokio::test(start_paused = true)]
async fn a_superseded_request_is_answered_409_and_not_asked_to_try_again() {
    let locks = Locks::in_memory();
    let guard = locks.lock("/a").await.unwrap();
    let layer = HttpLockLayer::new(locks, ByPath::new()).when_busy(WhenBusy::KeepNewest);
    let http = layer.clone().layer(service_fn(answer));
    let grpc = layer.grpc().layer(service_fn(answer));
    let mut first = Box::pin(http.clone().oneshot(request()));
    assert!(poll!(first.as_mut()).is_pending());
    let mut call = request();
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let mut second = Box::pin(grpc.oneshot(call));
    assert!(poll!(second.as_mut()).is_pending());
    let refused = first.await.unwrap();
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(!refused.headers().contains_key("retry-after"));
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains(r#""code":"lock-superseded""#), "{body}");

    let mut third = Box::pin(http.oneshot(request()));
    assert!(poll!(third.as_mut()).is_pending());
    let refused = second.await.unwrap();
    assert_eq!(
        (&refused.headers()["grpc-status"], refused.status().as_u16()),
        (&"10".parse().unwrap(), 200)
    );
    drop(guard);
    assert_eq!(third.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_chooses_for_itself_within_a_scope() {
    let locks = Locks::in_memory();
    let guard = locks.lock("a").await.unwrap();
    let refused = service_fn(async |request: Request<_>| {
        let locks = request.extensions().get::<RequestLocks>().expect("in a scope");
        let refused = locks.lock(Keys::one("a").when_busy(WhenBusy::Refuse)).await;
        assert_eq!(refused.expect_err("it is held").cause(), Cause::Busy);
        Ok::<_, Infallible>(Response::new(Body::new()))
    });
    let layer = LockScopeLayer::new(locks).when_busy(WhenBusy::KeepNewest);
    let began = tokio::time::Instant::now();
    layer.layer(refused).oneshot(request()).await.unwrap();
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
    drop(guard);
}
