//! The trait bounds that axum, tonic and plain stacks demand of layers, services and futures. This
//! file compiles if they are met.

use std::convert::Infallible;
use std::rc::Rc;

use http::{Request, Response};
use http_body::Body;
use lock_tower::http::{Detach, HttpLock, LockBody, RequestBody};
use lock_tower::lock::{CarryHandle, Lock};
use lock_tower::{ByPath, DetachLayer, HttpLockLayer, LockError, LockHandle, LockLayer};
use lockcore::Locks;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt as _, service_fn};

type Route = BoxCloneSyncService<Request<RequestBody<String>>, Response<String>, Infallible>;

fn shared<T: Clone + Send + Sync + 'static>() {}
fn sent<T: Send + 'static>() {}

/// Demands the trait bounds of `axum::Router::layer`.
fn axum<L>()
where
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service: Service<Request<String>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<String>>>::Error: Into<Infallible> + 'static,
    <L::Service as Service<Request<String>>>::Future: Send + 'static,
{
}

/// Demands the trait bounds that tonic's server has for bodies.
fn tonic_body<B>()
where
    B: Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send + Sync,
{
}

#[test]
fn layers_services_and_bodies_are_what_axum_and_tonic_need() {
    shared::<LockLayer<ByPath>>();
    shared::<HttpLockLayer<ByPath>>();
    shared::<DetachLayer>();
    shared::<Lock<Route, ByPath>>();
    shared::<HttpLock<Route, ByPath>>();
    shared::<Detach<Route>>();
    shared::<LockHandle>();
    shared::<LockError>();
    sent::<<HttpLock<Route, ByPath> as Service<Request<String>>>::Future>();
    axum::<HttpLockLayer<ByPath>>();
    tonic_body::<LockBody<http_body_util::Full<bytes::Bytes>>>();
    tonic_body::<LockBody<http_body_util::combinators::BoxBody<bytes::Bytes, BoxError>>>();
}

#[tokio::test]
async fn a_plain_service_need_not_be_send() {
    let layer = LockLayer::new(Locks::in_memory(), |_: &Rc<str>| "a");
    let service = layer.layer(service_fn(|request: Rc<str>| async move {
        tokio::task::yield_now().await;
        Ok::<_, LockError>(Rc::clone(&request))
    }));
    assert_eq!(&*service.oneshot(Rc::from("x")).await.unwrap(), "x");
}

#[test]
fn nothing_and_closures_carry_handles() {
    fn carries<Req, C: CarryHandle<Req>>(_: C) {}
    carries::<String, _>(());
    carries::<Vec<LockHandle>, _>(|request: &mut Vec<LockHandle>, lock| request.push(lock));
}
