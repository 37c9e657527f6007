//! The futures of an acquisition: dropping one leaves the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use proto::LockErrorKind;
use tokio::sync::watch;

use crate::api::guard::LockGuard;
use crate::node::Attempt;
use crate::quorum::Climb;
use crate::types::error::LockError;

/// The reason of a request that does not wait.
const BUSY: &str = "it is busy, and this request does not wait";

/// Waits for a lock in order of arrival; made by [`Locks::lock`](crate::Locks::lock),
/// [`Locks::lock_timeout`](crate::Locks::lock_timeout) and
/// [`LockRequest::lock`](crate::LockRequest::lock). Reads and permits are acquired in the same way:
/// [`Locks::read`](crate::Locks::read), [`Locks::permit`](crate::Locks::permit).
///
/// Does nothing until it is polled.
///
/// # Errors
/// [`Timeout`](LockErrorKind::Timeout), [`QueueFull`](LockErrorKind::QueueFull),
/// [`WaitTooLong`](LockErrorKind::WaitTooLong) where it refuses early (both are told at a
/// [pace](crate::guide::overload#a-pace-for-refusals)),
/// [`Superseded`](LockErrorKind::Superseded) where only [the newest](crate::WhenBusy) waits,
/// [`Unavailable`](LockErrorKind::Unavailable) and every other [`LockErrorKind`] but `Lost`. While
/// the store is unavailable or read-only, it asks again, and ends with that error: one that is not
/// queued yet after its [`store_wait`](crate::LockOptions::store_wait), or at once where the store
/// has been away for as long; one that is queued when its wait is over, or without a limit once no
/// request of this `Locks` has succeeded for 15 s, or for the lease if that is longer.
///
/// # Panics
/// Outside a tokio runtime with timers.
///
/// # Cancel safety
/// Dropping it at any point leaves the queue, or releases the lock if it had just been granted.
/// Nothing stays behind. Its place in the queue is lost: a new acquire queues at the tail.
#[pin_project]
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the guard"]
pub struct Acquire {
    #[pin]
    pub(crate) way: Way,
    pub(crate) is_of_permits: bool,
}

impl Acquire {
    /// The number of waiters ahead, as the server last told it; 0 is next. `None` until the request
    /// is queued, and for one that is granted at once. Asks nothing of the server.
    ///
    /// The server tells the number when it queues the request, and again if the request loses its
    /// place and is queued anew. Waiters that are served since then are not subtracted: at most so
    /// many are ahead. Those of a [run](crate::LocksBuilder::run_limit) that their process has
    /// still to serve count. Of the run of another process, members that were served within the
    /// last second count as well, since the server is told of them once a second. The requests that
    /// keep a place alive do not tell the number, since a rank costs the server a look at the queue
    /// for each waiter: [`inspect`](crate::Locks::inspect) shows the present queue.
    pub fn position(&self) -> Option<u64> {
        match &self.way {
            Way::Node(attempt) => attempt.position(),
            Way::Quorum(climb) => *climb.positions.borrow(),
        }
    }

    /// The [position](Self::position), and each change of it, for a task that shows it. The channel
    /// closes when the acquisition has ended and its guard, if it has one, is dropped.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let acquire = locks.lock("seat:7");
    /// let mut positions = acquire.positions();
    /// tokio::spawn(async move {
    ///     while positions.changed().await.is_ok() {
    ///         println!("{:?} wait ahead", *positions.borrow_and_update());
    ///     }
    /// });
    /// let guard = acquire.await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn positions(&self) -> watch::Receiver<Option<u64>> {
        match &self.way {
            Way::Node(attempt) => attempt.positions(),
            Way::Quorum(climb) => climb.positions.clone(),
        }
    }
}

impl Future for Acquire {
    type Output = Result<LockGuard, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_of_permits = *this.is_of_permits;
        this.way.poll(cx).map(|outcome| {
            let busy = || LockError::with_detail(LockErrorKind::Timeout, BUSY);
            let guard = outcome.and_then(|guard| guard.ok_or_else(busy));
            guard.map_err(|error| error.of_permits(is_of_permits))
        })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("attempt", &self.way).finish()
    }
}

/// Tries to acquire a lock once; made by [`Locks::try_lock`](crate::Locks::try_lock). `None` means
/// that the lock is held, or that others wait for it.
///
/// # Errors
/// Every [`LockErrorKind`] but `Timeout` and `Lost`; it ends within the request timeout.
/// [`QueueFull`](LockErrorKind::QueueFull) if it was not even sent by then, since this `Locks` had
/// too many others to send.
///
/// # Panics
/// Outside a tokio runtime with timers.
///
/// # Cancel safety
/// As [`Acquire`].
#[pin_project]
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the guard"]
pub struct TryAcquire {
    #[pin]
    pub(crate) way: Way,
    pub(crate) is_of_permits: bool,
}

impl Future for TryAcquire {
    type Output = Result<Option<LockGuard>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_of_permits = *this.is_of_permits;
        this.way.poll(cx).map_err(|error| error.of_permits(is_of_permits))
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryAcquire").field("attempt", &self.way).finish()
    }
}

/// The way of an acquisition: by one node, or by a majority.
#[pin_project(project = WayProjection)]
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "on one server no acquire is to allocate more")]
pub(crate) enum Way {
    Node(#[pin] Attempt),
    Quorum(Climb),
}

impl Way {
    fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<LockGuard>, LockError>> {
        match self.project() {
            WayProjection::Node(attempt) => {
                attempt.poll(cx).map_ok(|guard| guard.map(LockGuard::of_node))
            }
            WayProjection::Quorum(climb) => {
                Pin::new(climb).poll(cx).map_ok(|hold| hold.map(LockGuard::of_quorum))
            }
        }
    }
}
