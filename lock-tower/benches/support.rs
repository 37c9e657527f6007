//! Services and layers for the bench and the allocation test.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use lock_tower::http::{HttpLock, RequestBody};
use lock_tower::lock::Lock;
use lock_tower::{HttpLockLayer, LockError, LockLayer};
use lockcore::{LockKey, Locks};
use tower::{Layer as _, Service};

/// Returns the output of a future that is ready at the first poll, as all futures here, so that no
/// executor is measured.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a store in an in-memory store responds at once"),
    }
}

pub(crate) fn key() -> LockKey {
    LockKey::new("bench").expect("a name")
}

/// Acquires and releases a lock with lockcore alone, to measure the cost outside the layer.
pub(crate) fn hold(locks: &Locks, key: &LockKey) {
    let guard = now(locks.lock(key)).expect("free");
    now(guard.release()).expect("held");
}

pub(crate) type Plain = fn(u64) -> std::future::Ready<Result<u64, LockError>>;

pub(crate) fn plain() -> tower::util::ServiceFn<Plain> {
    tower::service_fn(|number| std::future::ready(Ok(black_box(number) + 1)))
}

pub(crate) fn call<S: Service<u64>>(service: &mut S) {
    drop(black_box(now(service.call(black_box(1)))));
}

pub(crate) fn plain_locked(
    locks: &Locks,
    key: Option<LockKey>,
) -> Lock<tower::util::ServiceFn<Plain>, impl Fn(&u64) -> Option<LockKey>> {
    LockLayer::new(locks.clone(), move |_: &u64| key.clone()).layer(plain())
}

pub(crate) type HttpResult = Result<Response<Empty<Bytes>>, Infallible>;
pub(crate) type Http<B> = fn(Request<B>) -> std::future::Ready<HttpResult>;

pub(crate) type HttpInner = tower::util::ServiceFn<Http<RequestBody<String>>>;

pub(crate) fn http<B>() -> tower::util::ServiceFn<Http<B>> {
    tower::service_fn(|request| {
        black_box(&request);
        std::future::ready(Ok(Response::new(Empty::new())))
    })
}

pub(crate) fn call_http<S: Service<Request<String>>>(service: &mut S, request: Request<String>) {
    drop(black_box(now(service.call(request))));
}

pub(crate) fn http_locked(
    locks: &Locks,
    key: Option<LockKey>,
) -> HttpLock<HttpInner, impl Fn(&Request<String>) -> Option<LockKey>> {
    HttpLockLayer::new(locks.clone(), move |_: &Request<String>| key.clone()).layer(http())
}

/// Returns a request as servers, routers and other layers leave it: the extension map already
/// exists.
pub(crate) fn with_extension() -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(7u8);
    request
}
