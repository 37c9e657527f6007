//! Response bodies that keep the lock, polled by the test.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use lock_tower::http::LockBody;
use lock_tower::{HttpLockLayer, LockHandle};
use lockcore::Locks;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

async fn whole(locks: &Locks) -> Response<LockBody<Full<Bytes>>> {
    let layer =
        HttpLockLayer::new(locks.clone(), |_: &Request<String>| "a").hold_until_body_end(true);
    let service = layer.layer(service_fn(|request: Request<_>| async move {
        let lock = request.extensions().get::<LockHandle>().unwrap().clone();
        let mut response = Response::new(Full::from("whole"));
        response.extensions_mut().insert(lock);
        Ok::<_, BoxError>(response)
    }));
    service.oneshot(Request::new(String::new())).await.unwrap()
}

#[tokio::test]
async fn the_last_frame_comes_after_the_lock_is_released() {
    let locks = Locks::in_memory();
    let mut response = whole(&locks).await;
    let lock = response.extensions().get::<LockHandle>().unwrap().clone();
    assert!(!lock.is_lost() && !response.body().is_end_stream());
    assert_eq!(response.body().size_hint().exact(), Some(5));
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "whole");
    // The body still exists, so the lock was not released because the body was dropped.
    assert!(lock.is_lost() && response.body().is_end_stream());
    assert!(locks.try_lock("a").await.unwrap().is_some());
    assert!(response.body_mut().frame().await.is_none());
}

#[tokio::test]
async fn a_body_dropped_unread_releases_the_lock() {
    let locks = Locks::in_memory();
    let response = whole(&locks).await;
    assert!(locks.try_lock("a").await.unwrap().is_none());
    drop(response);
    lock_tests::free(&locks, "a").await;
}

#[test]
fn a_default_body_is_the_inner_default() {
    let body = LockBody::<Full<Bytes>>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
}
