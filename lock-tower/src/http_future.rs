//! The future of an HTTP service behind a lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tower::{BoxError, Service};

use crate::answers::{Answers, server_timing};
use crate::body::LockBody;
use crate::carry::InExtensions;
use crate::error::LockError;
use crate::read_ahead::is_needed;
use crate::request_body::RequestBody;
use crate::section::{Outcome, Section};

/// The response of an [`HttpLock`](crate::HttpLock).
///
/// # Cancel safety
/// Dropping it while it waits leaves the queue; while the inner service runs, drops that and gives the lock back.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    #[pin]
    section: Section<S, Request<RequestBody<B>>, InExtensions>,
    /// None for a request that passes without a lock.
    answers: Option<Arc<Answers>>,
}

impl<S, B> HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    #[inline(always)]
    pub(crate) fn new(
        section: Section<S, Request<RequestBody<B>>, InExtensions>,
        answers: Option<Arc<Answers>>,
    ) -> Self {
        Self { section, answers }
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
        if let Some(poll) = this.section.as_mut().poll_passing(cx) {
            return poll.map_ok(|response| response.map(LockBody::open));
        }
        let outcome = match this.section.as_mut().poll(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                let Some(answers) = this.answers else { return Poll::Pending };
                let Some(request) = this.section.as_mut().waiting() else { return Poll::Pending };
                let error = ready!(poll_ahead(request, answers, cx));
                this.section.as_mut().refuse(error)
            }
        };
        let section = this.section.as_ref();
        let (Some(config), Some(answers)) = (section.config(), this.answers) else {
            return Poll::Ready(match outcome {
                Outcome::Served(response, _) => Ok(response.map(LockBody::open)),
                Outcome::Failed(error) => Err(error),
                Outcome::Refused(_) => unreachable!("what needs no lock is not refused"),
            });
        };
        let (mut response, waited) = match outcome {
            Outcome::Served(response, None) => match answers.refusals.rendered(&response) {
                Some(refusal) => (refusal.map(LockBody::refusal), section.waited()),
                None => (response.map(LockBody::open), section.waited()),
            },
            Outcome::Served(response, Some((hold, journal))) => {
                let waited = journal.waited();
                (
                    response.map(|body| LockBody::held(body, hold, journal, config, answers)),
                    Some(waited),
                )
            }
            Outcome::Refused(error) => {
                (answers.refusals.respond(&error).map(LockBody::refusal), section.waited())
            }
            Outcome::Failed(error) => return Poll::Ready(Err(error)),
        };
        if let Some(waited) = waited.filter(|_| answers.server_timing) {
            response.headers_mut().append("server-timing", server_timing(waited));
        }
        Poll::Ready(Ok(response))
    }
}

/// Reads the body of a request that waits, where it could be in the way of others. Ready if it is too large for that.
fn poll_ahead<B: Body>(
    request: &mut Request<RequestBody<B>>,
    answers: &Answers,
    cx: &mut Context<'_>,
) -> Poll<LockError> {
    match is_needed(request.version(), request.body()) {
        true => request.body_mut().poll_ahead(&answers.read_ahead, cx),
        false => Poll::Pending,
    }
}

impl<S, B> fmt::Debug for HttpLockFuture<S, B>
where
    S: Service<Request<RequestBody<B>>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLockFuture").field("state", &self.section).finish_non_exhaustive()
    }
}
