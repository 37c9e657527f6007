//! Layers switched on or off by a flag.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use lock_tower::{ByPath, HttpLockLayer, LockLayer, ServiceBuilderExt as _};
use lockcore::Locks;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};

#[tokio::test]
async fn a_layer_for_any_request_goes_into_option_layer() {
    for is_on in [true, false] {
        let locks = Locks::in_memory();
        let layer = LockLayer::new(locks.clone(), |_: &u8| "a");
        let inner = locks.clone();
        let service = ServiceBuilder::new().option_layer(is_on.then_some(layer)).service(
            service_fn(move |_: u8| {
                let locks = inner.clone();
                async move { Ok::<_, BoxError>(locks.status().holding == 1) }
            }),
        );
        assert_eq!(service.oneshot(1).await.unwrap(), is_on);
    }
}

/// Returns two values: whether a path without a key passes the layer, and whether the handler for a
/// path with a key runs under a lock.
macro_rules! seen {
    ($locks:expr, $layer:expr) => {{
        let locks = $locks.clone();
        let service =
            ServiceBuilder::new().layer($layer).service(service_fn(move |_: Request<_>| {
                let is_held = locks.status().holding == 1;
                let body = Full::<Bytes>::from(is_held.to_string());
                async move { Ok::<_, BoxError>(Response::new(body)) }
            }));
        let get = |path| service.clone().oneshot(Request::get(path).body(String::new()).unwrap());
        let passes = get("//").await.unwrap().status().is_success();
        let body = get("/a").await.unwrap().into_body().collect().await.unwrap().to_bytes();
        (passes, body == "true")
    }};
}

#[tokio::test]
async fn the_layers_for_http_are_switched_off_by_themselves() {
    for is_on in [true, false] {
        let locks = Locks::in_memory();
        let lock = HttpLockLayer::new(locks.clone(), ByPath::new()).enabled(is_on);
        assert_eq!(seen!(locks, lock), (!is_on, is_on));
        let permit = HttpLockLayer::permits(locks.clone(), ByPath::new(), 1).enabled(is_on);
        assert_eq!(seen!(locks, permit), (!is_on, is_on), "permits");
    }
}

#[tokio::test]
async fn all_layers_are_methods_of_a_service_builder() {
    let locks = Locks::in_memory();
    let inner = locks.clone();
    let service = ServiceBuilder::new()
        .lock_scope(locks.clone())
        .http_lock(locks.clone(), ByPath::new())
        .http_permit(locks.clone(), |_: &Request<_>| "all", 2)
        .detach()
        .service(service_fn(move |_: Request<_>| {
            let holding = inner.status().holding;
            async move { Ok::<_, BoxError>(Response::new(Full::<Bytes>::from(holding.to_string()))) }
        }));
    let request = Request::get("/a").body(String::new()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "2", "the lock, and a permit");
    let plain = ServiceBuilder::new().lock(locks, |_: &u8| "a");
    let plain = plain.service(service_fn(|n: u8| async move { Ok::<_, BoxError>(n) }));
    assert_eq!(plain.oneshot(7).await.unwrap(), 7);
}
