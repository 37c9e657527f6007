//! Layers that are there or not, as a flag says.

use http::{Request, Response};
use http_body_util::Full;
use lock_tower::{ByPath, HttpLockLayer, LockHandle, LockLayer, ServiceBuilderExt as _};
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

#[tokio::test]
async fn the_layer_for_http_is_switched_off_by_itself() {
    for is_on in [true, false] {
        let layer = HttpLockLayer::new(Locks::in_memory(), ByPath::new()).enabled(is_on);
        let service = ServiceBuilder::new().layer(layer).service(service_fn(
            |request: Request<_>| async move {
                let is_locked = request.extensions().get::<LockHandle>().is_some();
                Ok::<_, BoxError>(Response::new(Full::<bytes::Bytes>::from(is_locked.to_string())))
            },
        ));
        // A path that has no key is refused only where something is locked.
        for (path, served) in [("/a", true), ("//", !is_on)] {
            let request = Request::get(path).body(String::new()).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status().is_success(), served, "{path}");
        }
    }
}

#[tokio::test]
async fn all_layers_are_methods_of_a_service_builder() {
    let locks = Locks::in_memory();
    let service = ServiceBuilder::new()
        .lock_scope(locks.clone())
        .http_lock(locks.clone(), ByPath::new())
        .detach()
        .service(service_fn(|_: Request<_>| async move {
            Ok::<_, BoxError>(Response::new(Full::<bytes::Bytes>::from("served")))
        }));
    let request = Request::get("/a").body(String::new()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 200);
    let plain = ServiceBuilder::new().lock(locks, |_: &u8| "a");
    let plain = plain.service(service_fn(|n: u8| async move { Ok::<_, BoxError>(n) }));
    assert_eq!(plain.oneshot(7).await.unwrap(), 7);
}
