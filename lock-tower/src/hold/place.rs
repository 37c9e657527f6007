//! Slots for waiting requests on a connection.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use lockcore::Acquire;

use crate::refusal::LockError;

/// The number of waiting requests on a connection.
pub(crate) type Waiters = Arc<AtomicUsize>;

/// A request's slot, counted once the request is queued.
pub(crate) struct Place {
    waiters: Waiters,
    limit: usize,
    /// Completes when the current acquire is queued.
    queued: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    is_counted: bool,
}

impl Place {
    pub(crate) fn new(waiters: Waiters, limit: usize) -> Self {
        Self { waiters, limit, queued: None, is_counted: false }
    }

    /// Ready if the request is queued and the connection's limit is reached.
    pub(crate) fn poll(&mut self, acquire: &Acquire, cx: &mut Context<'_>) -> Poll<LockError> {
        if self.is_counted {
            return Poll::Pending;
        }
        let queued = self.queued.get_or_insert_with(|| {
            let mut positions = acquire.positions();
            // Closed: the acquire has ended and is ready.
            Box::pin(async move { drop(positions.wait_for(Option::is_some).await) })
        });
        ready!(queued.as_mut().poll(cx));
        self.is_counted = true;
        match self.waiters.fetch_add(1, Ordering::Relaxed) < self.limit {
            true => Poll::Pending,
            false => Poll::Ready(LockError::connection_full()),
        }
    }

    /// Drops the finished acquire.
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
