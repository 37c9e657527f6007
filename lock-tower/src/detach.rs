//! Critical sections that finish although their client has gone.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use lockcore::LockGuard;
use pin_project::pin_project;
use tokio::task::{JoinError, JoinHandle};
use tower::{Layer, Service};

use crate::config::OnLost;
use crate::error::LockError;
use crate::handle::LockHandle;
use crate::loss::Loss;

/// Finishes a handler that runs under a lock even if the client goes away; put it *inside* an
/// [`HttpLockLayer`](crate::HttpLockLayer).
///
/// Servers drop a handler when its client disconnects, so one that does two writes may do only the first. With
/// this layer a request that has its lock runs in a task of its own, with the lock until its end.
/// [`Locks::shutdown`](lockcore::Locks::shutdown) waits for it. One that still waits for its lock is dropped as
/// ever, and one without a lock runs as if this layer were not there. When the hold is lost, the task stops
/// too, unless the layer says [`Continue`](crate::OnLost::Continue).
///
/// A panic of the handler is passed on to the server. A response that the client no longer takes is dropped.
///
/// ```
/// # use std::convert::Infallible;
/// # use http::{Request, Response};
/// # use http_body_util::Empty;
/// # use lock_tower::{ByPath, DetachLayer, HttpLockLayer};
/// # use tower::{ServiceBuilder, service_fn};
/// # fn build(locks: lockcore::Locks) {
/// let service = ServiceBuilder::new()
///     .layer(HttpLockLayer::new(locks, ByPath::new()))
///     .layer(DetachLayer::new())
///     .service(service_fn(async |_: Request<String>| {
///         // the first write; and, whoever hangs up meanwhile, the second
///         Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
///     }));
/// # let _ = service;
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "a layer does nothing until it is put on a service"]
pub struct DetachLayer {
    _private: (),
}

impl DetachLayer {
    /// The layer.
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

/// A service whose critical sections finish; made by [`DetachLayer`].
#[derive(Debug, Clone)]
pub struct Detach<S> {
    inner: S,
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
        let hold = request.extensions().get::<LockHandle>().and_then(|handle| {
            // Lost already: the layer outside is about to say so.
            Some((handle.reenter_all().ok()?, handle.on_lost() == OnLost::Stop))
        });
        let future = self.inner.call(request);
        match hold {
            Some((guards, stops)) => DetachFuture::Begun(Some((future, guards, stops))),
            None => DetachFuture::Unlocked(future),
        }
    }
}

/// The response of a [`Detach`].
///
/// # Cancel safety
/// Once polled, the handler of a request that has its lock runs to its end even if this is dropped.
///
/// # Panics
/// With the handler's panic; outside a tokio runtime.
#[pin_project(project = DetachProjection)]
#[must_use = "futures do nothing unless polled"]
pub enum DetachFuture<F, T, E> {
    #[doc(hidden)]
    Unlocked(#[pin] F),
    #[doc(hidden)]
    Begun(Option<(F, Vec<LockGuard>, bool)>),
    #[doc(hidden)]
    Detached(JoinHandle<Option<Result<T, E>>>),
}

impl<F, T, E> Future for DetachFuture<F, T, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                DetachProjection::Unlocked(future) => return future.poll(cx),
                DetachProjection::Begun(begun) => {
                    let (future, guards, stops) = begun.take().expect("taken when the state ends");
                    let task = tokio::spawn(finish(future, guards, stops));
                    self.set(Self::Detached(task));
                }
                DetachProjection::Detached(task) => {
                    return match ended(ready!(Pin::new(task).poll(cx))) {
                        Some(Some(result)) => Poll::Ready(result),
                        // Stopped, for the hold is lost: the layer outside answers. Or the runtime is ending.
                        Some(None) | None => Poll::Pending,
                    };
                }
            }
        }
    }
}

impl LockHandle {
    /// Finishes `future` even if the client goes away: runs it in a task of its own, with all locks that the request
    /// has until its end.
    ///
    /// [`DetachLayer`] does so for whole handlers; this is for the part of one that must not be done by halves. Before
    /// it, the handler can still be dropped. [`Locks::shutdown`](lockcore::Locks::shutdown) waits for it.
    ///
    /// ```
    /// # async fn charge() {}
    /// # async fn mark_as_paid(token: lockcore::FencingToken) {}
    /// # async fn pay(lock: lock_tower::LockHandle) -> Result<(), lock_tower::LockError> {
    /// let token = lock.fencing_token();
    /// lock.detach(async move {
    ///     charge().await;
    ///     mark_as_paid(token).await;
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold ended: before, then `future` was not begun; or meanwhile,
    /// then it was dropped where it stood, unless the layer says [`Continue`](OnLost::Continue).
    ///
    /// # Panics
    /// With the panic of `future`; outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to its end even if this is dropped.
    pub async fn detach<F>(&self, future: F) -> Result<F::Output, LockError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (guards, stops) = (self.reenter_all()?, self.on_lost() == OnLost::Stop);
        match ended(tokio::spawn(finish(future, guards, stops)).await) {
            Some(output) => output.ok_or_else(LockError::lost),
            None => std::future::pending().await, // the runtime is ending, and this future with it
        }
    }
}

/// What the task returned; `None` if the runtime ended it.
fn ended<T>(task: Result<T, JoinError>) -> Option<T> {
    match task {
        Ok(output) => Some(output),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

async fn finish<F: Future>(future: F, guards: Vec<LockGuard>, stops: bool) -> Option<F::Output> {
    // In this order: the guards go after the future, and before the response does.
    let guards = guards;
    let lost = async {
        match stops {
            true => Loss::new(guards.iter().map(LockGuard::cancellation_token)).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = lost => None,
        output = future => Some(output),
    }
}

impl<F, T, E> fmt::Debug for DetachFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlocked(_) => "DetachFuture::Unlocked",
            Self::Begun(_) => "DetachFuture::Begun",
            Self::Detached(_) => "DetachFuture::Detached",
        })
    }
}
