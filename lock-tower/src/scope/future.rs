//! The response future of `LockScopeLayer`'s service.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, Version};
use http_body::Body;
use pin_project::pin_project;
use tower::BoxError;

use crate::hold::section::{Section, Step};
use crate::http::body::LockBody;
use crate::http::request_body::PollAhead;
use crate::http::respond::respond;
use crate::http::response_options::ResponseOptions;

/// The response future for [`LockScope`](crate::scope::LockScope).
///
/// # Panics
/// Panics outside a tokio runtime with timers, if the request acquires a lock.
///
/// # Cancel safety
/// Dropping the future drops the inner service's future, takes the request out of the queue if it
/// waits, and releases the locks.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct LockScopeFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    #[pin]
    section: Section<F>,
    /// The request body, kept for the waits of extractors that come after the handler has dropped
    /// the body; `None` if it is empty, and after the response.
    body: Option<Arc<dyn PollAhead>>,
    response_options: Arc<ResponseOptions>,
    version: Version,
    response: PhantomData<fn() -> (T, E)>,
}

impl<F, T, E> LockScopeFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    pub(crate) fn new(
        section: Section<F>,
        body: Option<Arc<dyn PollAhead>>,
        response_options: Arc<ResponseOptions>,
        version: Version,
    ) -> Self {
        Self { section, body, response_options, version, response: PhantomData }
    }
}

impl<F, R, E> Future for LockScopeFuture<F, Response<R>, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<LockBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.section.poll(cx);
        if let Some(body) = this.body {
            body.end_if_unread();
        }
        let Step::End(end) = ready!(polled);
        *this.body = None;
        Poll::Ready(respond(end, this.response_options, *this.version))
    }
}

impl<F, T, E> fmt::Debug for LockScopeFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockScopeFuture").finish_non_exhaustive()
    }
}
