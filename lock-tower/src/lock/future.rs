//! The response future of `LockLayer`'s service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower::Service;

use crate::hold::section::{End, Failure};
use crate::lock::carry::CarryHandle;
use crate::lock::locking::Locking;
use crate::refusal::LockError;

/// The response future for [`Lock`](crate::lock::Lock).
///
/// # Panics
/// Panics outside a tokio runtime with timers, if the request needs a lock.
///
/// # Cancel safety
/// Dropping the future while the request waits takes the request out of the queue. Dropping it
/// while the inner service runs drops the inner future, and releases the lock.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture<S, Req, C = ()>
where
    S: Service<Req>,
{
    #[pin]
    locking: Locking<S, Req, C>,
}

impl<S, Req, C> LockFuture<S, Req, C>
where
    S: Service<Req>,
{
    #[inline(always)]
    pub(crate) fn new(locking: Locking<S, Req, C>) -> Self {
        Self { locking }
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
        let mut locking = self.project().locking;
        if let Some(poll) = locking.as_mut().poll_passing(cx) {
            return poll;
        }
        let End { result, mut layer_holds } = ready!(locking.poll(cx));
        layer_holds.end(match &result {
            Err(Failure::Refused(error)) => Some(error),
            Ok(_) | Err(Failure::Inner(_)) => None,
        });
        Poll::Ready(result.map_err(|failure| match failure {
            Failure::Inner(error) => error,
            Failure::Refused(error) => error.into(),
        }))
    }
}

impl<S, Req, C> fmt::Debug for LockFuture<S, Req, C>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").field("state", &self.locking).finish()
    }
}
