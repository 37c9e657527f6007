//! The acquisition futures [`Acquire`] and [`TryAcquire`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use proto::LockErrorKind;
use tokio::sync::watch;

use crate::api::guard::LockGuard;
use crate::backend::Acquisition;
use crate::types::error::LockError;

/// The text of the `Timeout` error of an [`Acquire`] that finds the lock busy and may not wait,
/// because of a wait of zero or [`WhenBusy::Refuse`](crate::WhenBusy::Refuse).
const BUSY: &str = "this request does not wait";

/// The future that waits for a lock, a read or permits in order of arrival, and returns the guard.
/// Made by [`Locks::lock`](crate::Locks::lock),
/// [`Locks::lock_timeout`](crate::Locks::lock_timeout), [`Locks::read`](crate::Locks::read),
/// [`Locks::permit`](crate::Locks::permit) and the same methods of
/// [`LockRequest`](crate::LockRequest).
///
/// Sends nothing until polled. Once polled, poll it until it is ready, or drop it: on a
/// [quorum](crate::guide::quorum#limits) it may hold some primaries already, for which others wait.
///
/// # Errors
/// - [`Timeout`](LockErrorKind::Timeout): the lock was not granted within the wait.
/// - [`QueueFull`](LockErrorKind::QueueFull): the queue is at its limit. If more than a few hundred
///   requests are refused at once, the errors are returned at a [limited
///   pace](crate::guide::overload#a-pace-for-refusals).
/// - [`WaitTooLong`](LockErrorKind::WaitTooLong): with early refusal, the queue is too long for the
///   wait. Returned at the same pace.
/// - [`Superseded`](LockErrorKind::Superseded): with [`KeepNewest`](crate::WhenBusy::KeepNewest), a
///   newer request took the place of this request.
/// - [`Unavailable`](LockErrorKind::Unavailable): the store cannot be reached.
/// - Every other [`LockErrorKind`] but `Lost`.
///
/// While the store is unavailable or read-only, the request is retried, and finally fails with the
/// store's error. A request not yet queued fails after the
/// [`store_wait`](crate::LockOptions::store_wait), or at once if the store has already been away
/// that long. A queued request fails when the wait ends or, without a limit, once no request of
/// this `Locks` has succeeded for 15 s, or for the lease if that is longer.
///
/// # Panics
/// Outside a tokio runtime with timers.
///
/// # Cancel safety
/// Dropping the future at any point leaves the queue, or releases a lock that was just granted, and
/// nothing stays behind. The queue position is lost: a new acquire queues at the tail.
#[pin_project]
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the guard"]
pub struct Acquire {
    #[pin]
    pub(crate) acquisition: Acquisition,
    pub(crate) is_of_permits: bool,
}

impl Acquire {
    /// Returns the number of waiters ahead of this request, as last reported by the server; 0 means
    /// that this request is next. `None` until the request is queued, and if the lock is granted at
    /// once. Sends no request.
    ///
    /// The server reports the number when it queues the request, and again if the request loses
    /// this position and re-enqueues. Waiters served since then are not subtracted, so the number
    /// is an upper bound. Waiters that were granted the lock as a
    /// [batch](crate::LocksBuilder::batch_limit) count until their process has served them. If this
    /// is another process, they count for up to a second longer, because a process reports served
    /// members once a second. To show a position that falls, look up the request in the queue:
    /// [Your own position](crate::guide::observability#your-own-position). The requests that keep
    /// queue entries alive return no position, because the server would have to search the queue
    /// for each waiter.
    pub fn position(&self) -> Option<u64> {
        self.acquisition.position()
    }

    /// Returns a channel of the [position](Self::position), for a task that displays it. The
    /// channel closes when the acquisition ends: with a guard, with an error, or dropped.
    ///
    /// Copy the position out of the channel, as below. While a task keeps the value borrowed, for
    /// example while it prints, the task that publishes the next position blocks, and with it all
    /// responses to this `Locks`.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let acquire = locks.lock("seat:7");
    /// let mut positions = acquire.positions();
    /// tokio::spawn(async move {
    ///     while positions.changed().await.is_ok() {
    ///         let ahead = *positions.borrow_and_update();
    ///         println!("{ahead:?} wait ahead");
    ///     }
    /// });
    /// let guard = acquire.await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn positions(&self) -> watch::Receiver<Option<u64>> {
        self.acquisition.positions()
    }
}

impl Future for Acquire {
    type Output = Result<LockGuard, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_of_permits = *this.is_of_permits;
        this.acquisition.poll(cx).map(|outcome| {
            let busy = || LockError::with_detail(LockErrorKind::Timeout, BUSY);
            let hold = outcome.and_then(|hold| hold.ok_or_else(busy));
            hold.map(LockGuard).map_err(|error| error.of_permits(is_of_permits))
        })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("attempt", &self.acquisition).finish()
    }
}

/// The future that tries to acquire a lock, a read or permits once, without waiting in the queue.
/// Returns `Ok(None)` if other holds exclude the request, or if other requests wait in the queue.
/// Made by [`Locks::try_lock`](crate::Locks::try_lock),
/// [`Locks::try_read`](crate::Locks::try_read), [`Locks::try_permit`](crate::Locks::try_permit) and
/// the same methods of [`LockRequest`](crate::LockRequest).
///
/// # Errors
/// Every [`LockErrorKind`] but `Lost`, within the request timeout.
/// [`Timeout`](LockErrorKind::Timeout) if the server is slow: it responded, but not to this request
/// in time. [`QueueFull`](LockErrorKind::QueueFull) if this `Locks` had too many other requests to
/// send and did not send this request in time.
///
/// # Panics
/// Outside a tokio runtime with timers.
///
/// # Cancel safety
/// As for [`Acquire`]: dropping the future releases a lock that was just granted.
#[pin_project]
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the guard"]
pub struct TryAcquire {
    #[pin]
    pub(crate) acquisition: Acquisition,
    pub(crate) is_of_permits: bool,
}

impl Future for TryAcquire {
    type Output = Result<Option<LockGuard>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_of_permits = *this.is_of_permits;
        this.acquisition.poll(cx).map(|outcome| match outcome {
            Ok(hold) => Ok(hold.map(LockGuard)),
            Err(error) => Err(error.of_permits(is_of_permits)),
        })
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryAcquire").field("attempt", &self.acquisition).finish()
    }
}
