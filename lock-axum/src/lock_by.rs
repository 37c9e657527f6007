//! `lock_by`: a layer that locks a route, with a key from a closure over extractors.
//!
//! # Implementation notes
//!
//! - The service has no lock guard: the `LockScopeLayer` outside keeps the guard until the response
//!   or the end of the response body, exactly as it does for the extractors.
//! - The inner service is polled for readiness under the lock, right before the call. So a request
//!   that waits for the lock does not occupy capacity that the inner service reserves when it is
//!   ready.
//! - The key comes from the request head alone. The body is not read, and reaches the handler
//!   unchanged.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::Request;
use http::request::Parts;
use lock_tower::{IntoKeys, Keys, LockError, RequestLocks};
use tower::{Layer, Service};

/// Returns a layer that locks a route by the key that the closure `key` returns. It needs no
/// struct, and no change to the handler.
///
/// ```
/// use axum::{Extension, Router, extract::Path, routing::post};
/// use lock_axum::{LockHandle, LockScopeLayer, Locks, lock_by};
///
/// async fn pay(Extension(lock): Extension<LockHandle>) -> String {
///     format!("paid under token {}", lock.fencing_token())
/// }
///
/// # fn app(locks: Locks) -> Router {
/// Router::new()
///     .route(
///         "/orders/{id}/pay",
///         post(pay).route_layer(lock_by(|Path(id): Path<u64>| format!("order:{id}"))),
///     )
///     .layer(LockScopeLayer::new(locks))
/// # }
/// ```
///
/// The closure takes one to four extractors that do not read the body, and returns an [`IntoKeys`]
/// type: a `String`, [`Keys`], or an `Option` or `Result` of these. With `None` the request passes
/// without a lock. If an extractor rejects the request, the rejection is the response. The
/// [`LockScopeLayer`](crate::LockScopeLayer) outside keeps the lock; without that layer the
/// response is 500. Waiting, refusals and the release of the lock are the same as with
/// [`Locked`](crate::Locked).
///
/// Add the layer with `route_layer`, as above. With `post(pay).layer(..)`, a `GET`, an `OPTIONS` or
/// a CORS preflight of the same path also waits for the lock before the 405 response. Around
/// `any(..)`, which serves every method, use `layer`: axum's `route_layer` panics there.
///
/// For extractors that need the router's state, use [`lock_by_with_state`].
pub fn lock_by<F, T>(key: F) -> LockBy<F, T, ()>
where
    F: KeyFn<T, ()>,
{
    lock_by_with_state((), key)
}

/// Returns a layer that locks a route as [`lock_by`] does, for a closure whose extractors read the
/// router's state. Pass the same `state` here and to `with_state`.
///
/// ```
/// use axum::extract::{Path, State};
/// use axum::{Router, routing::post};
/// use lock_axum::{LockScopeLayer, Locks, lock_by_with_state};
///
/// #[derive(Clone)]
/// struct App { tenant: &'static str }
///
/// # fn app(locks: Locks) -> Router {
/// let app = App { tenant: "acme" };
/// let key = |State(app): State<App>, Path(id): Path<u64>| format!("{}/order:{id}", app.tenant);
/// Router::new()
///     .route(
///         "/orders/{id}",
///         post(async || "changed").route_layer(lock_by_with_state(app.clone(), key)),
///     )
///     .layer(LockScopeLayer::new(locks))
///     .with_state(app)
/// # }
/// ```
pub fn lock_by_with_state<F, T, S>(state: S, key: F) -> LockBy<F, T, S>
where
    F: KeyFn<T, S>,
{
    LockBy { key, state, arguments: PhantomData }
}

/// A closure that takes one to four extractors and returns the lock key; see [`lock_by`]. No other
/// type implements this trait.
#[diagnostic::on_unimplemented(
    message = "`lock_by` needs a closure of one to four extractors that returns a key",
    label = "not a closure from extractors to a key",
    note = "like this: `lock_by(|Path(id): Path<u64>| format!(\"order:{{id}}\"))`",
    note = "its arguments are extractors that do not read the body, with their types written out; it returns a `String`, \
            `Keys`, or an `Option` or `Result` of these; what it captures is `Clone + Send + Sync`",
    note = "extractors that need the state: `lock_by_with_state(state, ..)`"
)]
pub trait KeyFn<T, S>: Clone + Send + Sync + 'static {
    #[doc(hidden)]
    fn keys(
        &self,
        parts: &mut Parts,
        state: &S,
        _: Sealed,
    ) -> impl Future<Output = Result<Option<Keys>, Response>> + Send;
}

mod sealed {
    /// An argument that only this crate can name, so that no other crate implements a trait with
    /// it.
    #[derive(Debug)]
    pub struct Sealed;
}
use sealed::Sealed;

macro_rules! key_fn {
    ($($extractor:ident),+) => {
        #[allow(non_snake_case, reason = "one name for a type and its value")]
        impl<F, K, S, $($extractor),+> KeyFn<($($extractor,)+), S> for F
        where
            F: Fn($($extractor),+) -> K + Clone + Send + Sync + 'static,
            K: IntoKeys,
            S: Send + Sync,
            $($extractor: FromRequestParts<S> + Send,)+
        {
            async fn keys(
                &self,
                parts: &mut Parts,
                state: &S,
                _: Sealed,
            ) -> Result<Option<Keys>, Response> {
                $(
                    let $extractor = $extractor::from_request_parts(parts, state).await;
                    let $extractor = $extractor.map_err(IntoResponse::into_response)?;
                )+
                let keys = self($($extractor),+).into_keys();
                keys.map_err(|error| match RequestLocks::of(&parts.extensions) {
                    Ok(locks) => locks.refused(error).into_response(),
                    Err(_) => LockError::from(error).into_response(),
                })
            }
        }
    };
}

key_fn!(A);
key_fn!(A, B);
key_fn!(A, B, C);
key_fn!(A, B, C, D);

/// A layer that locks a route by the key that a closure returns for each request. Created by
/// [`lock_by`] and [`lock_by_with_state`].
#[must_use = "a layer does nothing until it is added to a route"]
pub struct LockBy<F, T, S> {
    key: F,
    state: S,
    arguments: PhantomData<fn() -> T>,
}

impl<I, F: Clone, T, S: Clone> Layer<I> for LockBy<F, T, S> {
    type Service = LockByService<I, F, T, S>;

    fn layer(&self, inner: I) -> Self::Service {
        LockByService { inner, layer: self.clone() }
    }
}

impl<F: Clone, T, S: Clone> Clone for LockBy<F, T, S> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), state: self.state.clone(), arguments: PhantomData }
    }
}

impl<F, T, S> fmt::Debug for LockBy<F, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockBy").finish_non_exhaustive()
    }
}

/// A service that acquires the lock of each request, and then calls the inner service. Created by
/// [`LockBy`]. This service is always ready: it polls the inner service for readiness only once the
/// lock is held.
pub struct LockByService<I, F, T, S> {
    inner: I,
    layer: LockBy<F, T, S>,
}

impl<I, F, T, S> LockByService<I, F, T, S> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &I {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Unwraps the inner service.
    pub fn into_inner(self) -> I {
        self.inner
    }
}

/// The future of a [`LockByService`]: acquires the lock of the request, and then calls the inner
/// service. Dropping it leaves the queue.
#[must_use = "futures do nothing unless polled"]
pub struct LockByFuture<E>(Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>);

impl<E> Future for LockByFuture<E> {
    type Output = Result<Response, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<E> fmt::Debug for LockByFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockByFuture").finish_non_exhaustive()
    }
}

impl<I, F, T, S, B> Service<Request<B>> for LockByService<I, F, T, S>
where
    I: Service<Request<B>> + Clone + Send + 'static,
    I::Response: IntoResponse,
    I::Future: Send,
    F: KeyFn<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
    B: HttpBody + Send + 'static,
{
    type Response = Response;
    type Error = I::Error;
    type Future = LockByFuture<I::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        Poll::Ready(Ok(())) // the inner service is polled for readiness under the lock
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut inner = self.inner.clone();
        let layer = self.layer.clone();
        LockByFuture(Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match layer.key.keys(&mut parts, &layer.state, Sealed).await {
                Ok(Some(keys)) => {
                    if let Err(error) = lock(&mut parts, keys).await {
                        return Ok(error.into_response());
                    }
                }
                Ok(None) => {}
                Err(refused) => return Ok(refused),
            }
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(Request::from_parts(parts, body)).await.map(IntoResponse::into_response)
        }))
    }
}

/// Acquires the locks for `keys`. Inserts the last lock's handle into the request extensions,
/// where handlers extract it as `Extension<LockHandle>`.
async fn lock(parts: &mut Parts, keys: Keys) -> Result<(), LockError> {
    let locks = RequestLocks::of(&parts.extensions)?;
    let handles = locks.lock(keys).await?;
    let last = handles.into_iter().next_back().expect("at least one");
    parts.extensions.insert(last);
    Ok(())
}

impl<I: Clone, F: Clone, T, S: Clone> Clone for LockByService<I, F, T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<I: fmt::Debug, F, T, S> fmt::Debug for LockByService<I, F, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockByService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
