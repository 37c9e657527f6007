//! Critical sections that finish although their client has gone.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project::pin_project;
use tokio::task::{JoinError, JoinHandle};
use tower::{Layer, Service};

use crate::config::OnLost;
use crate::error::LockError;
use crate::handle::LockHandle;
use crate::keep::Keep;
use crate::loss::Loss;
use crate::scope::RequestLocks;

/// Finishes a handler that runs under a lock even if the client goes away; put it *inside* an
/// [`HttpLockLayer`](crate::HttpLockLayer).
///
/// Servers drop a handler when its client disconnects, so one that does two writes may do only the first. With
/// this layer a request that has its lock runs in a task of its own, with the lock until its end.
/// [`Locks::shutdown`](lockcore::Locks::shutdown) waits for it. One that still waits for its lock is dropped as
/// ever, and one without a lock runs as if this layer were not there. When the hold is lost, the task stops
/// too, unless the layer says [`Continue`](crate::OnLost::Continue).
///
/// The handler may still give the lock back early, and its [`LockHandle`] goes on seeing it after the client has gone.
/// Locks that are taken further inside are not had yet where this layer stands: there it is [`RequestLocks::detach`].
///
/// A panic of the handler is passed on to the server. A response that the client no longer takes is dropped.
///
/// ```
/// # use std::convert::Infallible;
/// # use http::{Request, Response};
/// # use http_body_util::Empty;
/// # use lock_tower::{ByPath, DetachLayer, HttpLockLayer, RequestBody};
/// # use tower::{ServiceBuilder, service_fn};
/// # fn build(locks: lockcore::Locks) {
/// let service = ServiceBuilder::new()
///     .layer(HttpLockLayer::new(locks, ByPath::new()))
///     .layer(DetachLayer::new())
///     .service(service_fn(async |_: Request<RequestBody<String>>| {
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
        // If it is lost already, the layer outside is about to say so.
        let handle = request.extensions().get::<LockHandle>();
        let keeps = handle.and_then(|handle| handle.keep_all().ok());
        let future = self.inner.call(request);
        match keeps {
            Some(keeps) => DetachFuture::Begun(Some(Kept { future, keeps })),
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
    Begun(Option<Kept<F>>),
    #[doc(hidden)]
    Detached(Option<JoinHandle<Option<Result<T, E>>>>),
}

/// What is detached, with what it keeps.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "nobody gets it")]
pub struct Kept<F> {
    /// Goes first, and the locks before the response does.
    future: F,
    keeps: Vec<Keep>,
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
                    let kept = begun.take().expect("taken when the state ends");
                    let task = tokio::spawn(kept.finish());
                    self.set(Self::Detached(Some(task)));
                }
                DetachProjection::Detached(Some(task)) => {
                    match ended(ready!(Pin::new(task).poll(cx))) {
                        Some(Some(result)) => return Poll::Ready(result),
                        Some(None) | None => self.set(Self::Detached(None)),
                    }
                }
                // Stopped, for the hold is lost: the layer outside answers. Or the runtime is ending.
                DetachProjection::Detached(None) => return Poll::Pending,
            }
        }
    }
}

impl LockHandle {
    /// Finishes `future` even if the client goes away: runs it in a task of its own, with this lock and those that the
    /// request had before it, until its end.
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
        detach(Kept { future, keeps: self.keep_all()? }).await
    }
}

impl RequestLocks {
    /// As [`LockHandle::detach`], with all locks that have been taken here, and those that the request had before.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost: before, then `future` was not begun; or meanwhile,
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
        detach(Kept { future, keeps: self.keep_all()? }).await
    }
}

async fn detach<F>(kept: Kept<F>) -> Result<F::Output, LockError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match ended(tokio::spawn(kept.finish()).await) {
        Some(output) => output.ok_or_else(LockError::lost),
        None => std::future::pending().await, // the runtime is ending, and this future with it
    }
}

impl<F: Future> Kept<F> {
    /// None if it was stopped, for a hold is lost whose layer says so.
    async fn finish(self) -> Option<F::Output> {
        let Self { future, keeps } = self;
        let stopping = keeps.iter().map(Keep::handle).filter(|lock| lock.on_lost() == OnLost::Stop);
        tokio::select! {
            biased;
            () = Loss::new(stopping) => None,
            output = future => Some(output),
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

impl<F, T, E> fmt::Debug for DetachFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlocked(_) => "DetachFuture::Unlocked",
            Self::Begun(_) => "DetachFuture::Begun",
            Self::Detached(_) => "DetachFuture::Detached",
        })
    }
}
