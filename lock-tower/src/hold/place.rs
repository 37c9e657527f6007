//! The number of waiting requests on a connection, and the limit for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use lockcore::Acquire;

use crate::refusal::LockError;

/// The number of requests on a connection that wait for a lock, shared by the connection and these
/// requests.
pub(crate) type Waiters = Arc<AtomicUsize>;

/// Counts a request among the waiting requests on its connection, from the time at which the
/// request is queued until this value is dropped.
pub(crate) struct Place {
    waiters: Waiters,
    /// The maximum number of requests on the connection that may wait at the same time.
    limit: usize,
    /// A future that completes when the current acquire is queued on the store; `None` before the
    /// first poll and between two acquires.
    queued: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    /// True if `waiters` includes this request.
    is_counted: bool,
}

impl Place {
    pub(crate) fn new(waiters: Waiters, limit: usize) -> Self {
        Self { waiters, limit, queued: None, is_counted: false }
    }

    /// Counts the request once `acquire` is queued on the store. Pending while the request may
    /// wait. Ready with the refusal if the limit of waiting requests was already reached. There is
    /// no success value.
    pub(crate) fn poll(&mut self, acquire: &Acquire, cx: &mut Context<'_>) -> Poll<LockError> {
        if self.is_counted {
            return Poll::Pending;
        }
        let queued = self.queued.get_or_insert_with(|| {
            let mut positions = acquire.positions();
            // A closed channel means that the acquire has ended, so that its future is ready.
            Box::pin(async move { drop(positions.wait_for(Option::is_some).await) })
        });
        ready!(queued.as_mut().poll(cx));
        self.is_counted = true;
        match self.waiters.fetch_add(1, Ordering::Relaxed) < self.limit {
            true => Poll::Pending,
            false => Poll::Ready(LockError::connection_full()),
        }
    }

    /// Stops watching an acquire that has completed, so that the request's next acquire can be
    /// watched. The request stays counted.
    pub(crate) fn end_acquire(&mut self) {
        self.queued = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_counted {
            self.waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("waiters", &self.waiters)
            .field("is_counted", &self.is_counted)
            .finish_non_exhaustive()
    }
}
