//! The future of a service behind a lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tower::Service;

use crate::carry::CarryHandle;
use crate::error::LockError;
use crate::section::{Outcome, Section};

/// The response of a [`Lock`](crate::Lock).
///
/// # Cancel safety
/// Dropping it while it waits leaves the queue; while the inner service runs, drops that and gives the lock back.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture<S, Req, C = ()>
where
    S: Service<Req>,
{
    #[pin]
    section: Section<S, Req, C>,
}

impl<S, Req, C> LockFuture<S, Req, C>
where
    S: Service<Req>,
{
    #[inline(always)]
    pub(crate) fn new(section: Section<S, Req, C>) -> Self {
        Self { section }
    }
}

impl<S, Req, C> Future for LockFuture<S, Req, C>
where
    S: Service<Req>,
    S::Error: From<LockError>,
    C: CarryHandle<Req>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut section = self.project().section;
        if let Some(poll) = section.as_mut().poll_passing(cx) {
            return poll;
        }
        section.poll(cx).map(|outcome| match outcome {
            Outcome::Served(response, _) => Ok(response),
            Outcome::Failed(error) => Err(error),
            Outcome::Refused(error) => Err(error.into()),
        })
    }
}

impl<S, Req, C> fmt::Debug for LockFuture<S, Req, C>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").field("state", &self.section).finish()
    }
}
