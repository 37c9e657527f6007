//! The future of a service whose requests may take locks.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project::pin_project;
use tower::BoxError;

use crate::hold::section::{Section, Step};
use crate::http::answer::answer;
use crate::http::answers::Answers;
use crate::http::body::LockBody;

/// The response of a [`LockScope`](crate::LockScope).
///
/// # Cancel safety
/// Dropping it drops the inner service's future, leaves the queue in which that waits, and releases
/// what it holds.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct LockScopeFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    #[pin]
    section: Section<F>,
    answers: Arc<Answers>,
    response: PhantomData<fn() -> (T, E)>,
}

impl<F, T, E> LockScopeFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    pub(crate) fn new(section: Section<F>, answers: Arc<Answers>) -> Self {
        Self { section, answers, response: PhantomData }
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
        Poll::Ready(match ready!(this.section.poll(cx)) {
            Step::End(end) => answer(end, this.answers),
        })
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
