//! `IdempotencyFuture`: the future that completes with the service's response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tower::util::Oneshot;
use tower::{BoxError, Service, ServiceExt as _};

use crate::request_body::ReadBody;
use crate::response_body::ResponseBody;

type Serving<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

/// The future that completes with the response of an [`Idempotency`](crate::Idempotency) service.
///
/// # Panics
/// Propagates handler panics. Panics outside a tokio runtime with timers.
///
/// # Cancel safety
/// Dropping the future while the request waits for the lock removes the request from the queue, and
/// nothing is stored. Once the lock is granted, the handler runs to completion and the response is
/// stored, even if the future is dropped. [`Locks::shutdown`](lockcore::Locks::shutdown) waits for
/// the handler. For a request without a key, dropping the future drops the handler.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct IdempotencyFuture<S, B, R>
where
    S: Service<Request<ReadBody<B>>>,
    R: Body<Error: Into<BoxError>>,
{
    #[pin]
    kind: Kind<Oneshot<S, Request<ReadBody<B>>>, R, S::Error>,
}

#[pin_project(project = Projection)]
enum Kind<F, R: Body<Error: Into<BoxError>>, E> {
    Passing(#[pin] F),
    Keyed(Serving<R, E>),
    Refused(Option<Response<Bytes>>),
}

impl<S, B, R> IdempotencyFuture<S, B, R>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>>,
    R: Body<Error: Into<BoxError>>,
{
    pub(crate) fn passing(inner: S, request: Request<B>) -> Self {
        Self { kind: Kind::Passing(inner.oneshot(request.map(ReadBody::passing))) }
    }

    pub(crate) fn keyed(
        serving: impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>> + Send + 'static,
    ) -> Self {
        Self { kind: Kind::Keyed(Box::pin(serving)) }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self { kind: Kind::Refused(Some(response)) }
    }
}

impl<S, B, R> Future for IdempotencyFuture<S, B, R>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>>,
    R: Body<Error: Into<BoxError>>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            Projection::Passing(future) => {
                future.poll(cx).map_ok(|response| response.map(ResponseBody::passing))
            }
            Projection::Keyed(serving) => serving.as_mut().poll(cx),
            Projection::Refused(response) => {
                let response = response.take().expect("the future was polled after completion");
                Poll::Ready(Ok(response.map(ResponseBody::whole)))
            }
        }
    }
}

impl<S, B, R> fmt::Debug for IdempotencyFuture<S, B, R>
where
    S: Service<Request<ReadBody<B>>>,
    R: Body<Error: Into<BoxError>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Passing(_) => "IdempotencyFuture(passing)",
            Kind::Keyed(_) => "IdempotencyFuture(keyed)",
            Kind::Refused(_) => "IdempotencyFuture(refused)",
        })
    }
}
