//! `DetachLayer`: handlers under a lock that finish even if the client disconnects.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project::pin_project;
use tower::{Layer, Service};

use crate::hold::detach::{Detached, Keepers, Running};
use crate::http::request_locks::{Unlocked, holds};
use crate::inner::inner;

/// Lets a handler that holds a lock finish, even if the client disconnects. Put this layer *inside*
/// an [`HttpLockLayer`](crate::HttpLockLayer).
///
/// Servers drop a handler when the client disconnects, so a handler with two writes may do only the
/// first. With this layer a request with a lock runs in a separate task, and holds the lock until
/// the task ends. [`Locks::shutdown`](lockcore::Locks::shutdown) waits for the task. When the lock
/// is lost, the task is stopped too, unless the outer layer is set to
/// [`Continue`](crate::OnLost::Continue). A request that still waits for a lock, or needs none, is
/// dropped at a disconnect, as without this layer. A request that
/// [`fail_open`](crate::HttpLockLayer::fail_open) serves without its lock finishes, too,
/// but [`Locks::shutdown`](lockcore::Locks::shutdown) does not wait for it.
///
/// The handler can still release the lock early. Its [`LockHandle`](crate::LockHandle) remains
/// valid after a client disconnect. This layer does not keep locks that are acquired further
/// inside: for these use [`RequestLocks::detach`](crate::RequestLocks::detach). A
/// [`LockScopeLayer`](crate::LockScopeLayer) outside this layer ends with a disconnect: a handler
/// that waits for one of its locks, or requests one later, then gets an error, and may stop half
/// way. For a handler that needs such a lock, add another `LockScopeLayer` inside this layer.
///
/// A handler panic propagates to the server. If the client has disconnected, the response is
/// dropped.
///
/// ```
/// # use std::convert::Infallible;
/// # use http::{Request, Response};
/// # use http_body_util::Empty;
/// # use lock_tower::{ByPath, DetachLayer, HttpLockLayer};
/// # use lock_tower::http::RequestBody;
/// # use tower::{ServiceBuilder, service_fn};
/// # fn build(locks: lockcore::Locks) {
/// let service = ServiceBuilder::new()
///     .layer(HttpLockLayer::new(locks, ByPath::new()))
///     .layer(DetachLayer::new())
///     .service(service_fn(async |_: Request<RequestBody<String>>| {
///         // the first write, and the second write even if the client disconnects in between
///         Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
///     }));
/// # let _ = service;
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct DetachLayer {
    _private: (),
}

impl DetachLayer {
    /// Creates the layer, which has no options.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for DetachLayer {
    type Service = Detach<S>;

    fn layer(&self, inner: S) -> Detach<S> {
        Detach { inner }
    }
}

/// A service that lets handlers with a lock finish, even if the client disconnects; made by
/// [`DetachLayer`].
#[derive(Debug, Clone)]
pub struct Detach<S> {
    inner: S,
}

impl<S> Detach<S> {
    inner!();
}

impl<S, B> Service<Request<B>> for Detach<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = DetachFuture<S::Future, S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // If a lock is already lost, the outer layer is about to refuse the request.
        let keepers = holds(request.extensions()).and_then(|holds| Keepers::all_of(holds).ok());
        let is_unlocked = request.extensions().get::<Unlocked>().is_some();
        let future = self.inner.call(request);
        DetachFuture(match keepers.filter(|keepers| is_unlocked || !keepers.is_empty()) {
            Some(keepers) => DetachState::Begun(Some(Detached::new(future, keepers))),
            None => DetachState::Attached(future),
        })
    }
}

/// The response future for [`Detach`]. If the handler is stopped because a lock is lost, this
/// future stays pending: the outer lock layer then refuses the request and drops the future.
///
/// # Cancel safety
/// Once polled, a handler under a lock runs to completion even if this future is dropped.
///
/// # Panics
/// Propagates the handler's panic. Panics outside a tokio runtime.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct DetachFuture<F, T, E>(#[pin] DetachState<F, T, E>);

#[pin_project(project = DetachProjection)]
enum DetachState<F, T, E> {
    Attached(#[pin] F),
    Begun(Option<Detached<F>>),
    Detached(Option<Running<Result<T, E>>>),
}

impl<F, T, E> Future for DetachFuture<F, T, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            match state.as_mut().project() {
                DetachProjection::Attached(future) => return future.poll(cx),
                DetachProjection::Begun(begun) => {
                    let detached = begun.take().expect("taken when the state ends");
                    state.set(DetachState::Detached(Some(detached.spawn())));
                }
                DetachProjection::Detached(Some(task)) => match ready!(Pin::new(task).poll(cx)) {
                    Some(Some(result)) => return Poll::Ready(result),
                    Some(None) | None => state.set(DetachState::Detached(None)),
                },
                // The task was stopped because a lock is lost, so the outer layer responds. Or the
                // runtime is shutting down.
                DetachProjection::Detached(None) => return Poll::Pending,
            }
        }
    }
}

impl<F, T, E> fmt::Debug for DetachFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            DetachState::Attached(_) => "DetachFuture(attached)",
            DetachState::Begun(_) => "DetachFuture(begun)",
            DetachState::Detached(_) => "DetachFuture(detached)",
        })
    }
}
