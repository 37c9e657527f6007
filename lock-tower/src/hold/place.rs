//! The slots of the waiting requests on a connection.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use lockcore::Acquire;

use crate::refusal::LockError;

/// The number of requests that wait for a lock, counted over one connection and shared by these
/// requests.
pub(crate) type Waiters = Arc<AtomicUsize>;

/// A request's slot among the waiting requests on its connection. It is occupied once the request
/// is queued, and free again when this value is dropped.
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

    /// Adds the request to `waiters` once `acquire` is queued on the store. There is no success
    /// value: the result is pending while the request may wait, and ready with the refusal if the
    /// connection's limit was already reached.
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

    /// Stops watching an acquire that has completed, so that the next acquire of the request can be
    /// watched. The slot stays occupied.
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
