//! The response future of `HttpLockLayer`'s service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::Body;
use pin_project::pin_project;
use tower::{BoxError, Service};

use crate::hold::section::{End, Failure};
use crate::http::body::LockBody;
use crate::http::extensions::InExtensions;
use crate::http::read_ahead::Beyond;
use crate::http::request_body::RequestBody;
use crate::http::respond::respond;
use crate::http::response_options::ResponseOptions;
use crate::lock::locking::Locking;
use crate::refusal::LockError;

/// The response future for [`HttpLock`](crate::http::HttpLock).
///
/// # Panics
/// Panics outside a tokio runtime with timers, if the request needs a lock.
///
/// # Cancel safety
/// Dropping the future while the request waits takes the request out of the queue. Dropping it
/// while the inner service runs drops the inner future, and releases the lock.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    #[pin]
    locking: Locking<S, Request<RequestBody<B>>, InExtensions>,
    /// How to respond to this request; `None` for a request that passes without a lock.
    response_options: Option<Arc<ResponseOptions>>,
    version: Version,
}

impl<S, B> HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    #[inline(always)]
    pub(crate) fn new(
        locking: Locking<S, Request<RequestBody<B>>, InExtensions>,
        response_options: Option<Arc<ResponseOptions>>,
        version: Version,
    ) -> Self {
        Self { locking, response_options, version }
    }
}

impl<S, B, R> Future for HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body,
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<LockBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(poll) = this.locking.as_mut().poll_passing(cx) {
            return poll.map_ok(|response| response.map(LockBody::open));
        }
        let end = match this.locking.as_mut().poll(cx) {
            Poll::Ready(end) => end,
            Poll::Pending => {
                let Some(response_options) = this.response_options else { return Poll::Pending };
                let Some(request) = this.locking.as_mut().waiting() else { return Poll::Pending };
                let error = ready!(poll_ahead(request, response_options, cx));
                this.locking.refuse(error)
            }
        };
        Poll::Ready(match (this.response_options, end.result) {
            (Some(response_options), result) => {
                let end = End { result, layer_holds: end.layer_holds };
                respond(end, response_options, *this.version)
            }
            (None, Ok(response)) => Ok(response.map(LockBody::open)),
            (None, Err(Failure::Inner(error))) => Err(error),
            (None, Err(Failure::Refused(_))) => {
                unreachable!("a request without a lock is not refused")
            }
        })
    }
}

/// Reads the body of a request that waits for a lock, so that a disconnect is detected and the
/// connection's window stays free. Pending while the request may wait. Ready with the refusal if
/// the body is too large to be read ahead, or has failed. There is no success value.
fn poll_ahead<B: Body>(
    request: &mut Request<RequestBody<B>>,
    response_options: &ResponseOptions,
    cx: &mut Context<'_>,
) -> Poll<LockError> {
    if request.body().is_end_stream() {
        return Poll::Pending;
    }
    let beyond = Beyond::of(request.version());
    request.body_mut().poll_ahead(&response_options.read_ahead, beyond, cx)
}

impl<S, B> fmt::Debug for HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLockFuture").field("state", &self.locking).finish_non_exhaustive()
    }
}
