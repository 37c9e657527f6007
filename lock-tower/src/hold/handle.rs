//! The handle by which a handler sees a hold.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::{FencingToken, LockGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hold::record::HoldRecord;
use crate::hold::registry::{HoldRegistry, Location};
use crate::refusal::LockError;

/// The hold under which a request is served. In HTTP it is in the request's extensions.
///
/// It does not keep the lock: the layer does, until the response or the end of its body. A guard
/// from [`reenter`](Self::reenter) keeps it.
///
/// ```
/// # use lock_tower::LockHandle;
/// # /// Fails where no row was changed.
/// # async fn execute(_sql: &str, _parameters: [i64; 2]) -> Result<(), ()> { Ok(()) }
/// async fn pay<B>(request: http::Request<B>) -> Result<(), ()> {
///     let lock = request.extensions().get::<LockHandle>().expect("the layer put it there");
///     let hold = [lock.fencing_token().into(), 42];
///     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", hold).await?;
///     // Now read the row, and do the work.
///     execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", hold).await
/// }
/// ```
#[derive(Clone)]
pub struct LockHandle {
    request: Arc<HoldRegistry>,
    location: Location,
}

impl LockHandle {
    pub(crate) fn new(request: &Arc<HoldRegistry>, location: Location) -> Self {
        Self { request: Arc::clone(request), location }
    }

    /// The handles of all holds of a request, in the order in which they were acquired.
    pub(crate) fn all(request: &Arc<HoldRegistry>) -> impl Iterator<Item = Self> {
        request.locations().map(|location| Self::new(request, location))
    }

    /// The registry of the same request's holds.
    pub(crate) fn request(&self) -> &Arc<HoldRegistry> {
        &self.request
    }

    pub(crate) fn held(&self) -> &HoldRecord {
        self.request.record_at(&self.location)
    }

    /// The key of the lock, as the layer or extractor gave it.
    pub fn key(&self) -> Cow<'_, str> {
        self.held().key.given()
    }

    /// The number that proves this hold to the resource it protects. It is higher than that of
    /// every earlier lock, except in the cases that [`guide::fencing`](lockcore::guide::fencing)
    /// names. Reads that are held together have the same.
    ///
    /// Permits have none, since other requests hold some at the same time: theirs is 0, which a
    /// resource that checks tokens refuses. So is that of reads on a
    /// [quorum](lockcore::guide::quorum).
    pub fn fencing_token(&self) -> FencingToken {
        self.held().token
    }

    /// The time for which the request waited for this lock.
    pub fn waited(&self) -> Duration {
        self.held().waited
    }

    /// The number of waiters that were ahead when the request was queued for this lock; `None` if
    /// it was granted at once.
    pub fn position(&self) -> Option<u64> {
        self.held().position
    }

    /// Releases the lock before the response, and reports whether the hold lasted until then. A
    /// second release is no error.
    ///
    /// Other guards on the same hold keep it: those of an outer layer with the same key, and those
    /// from [`reenter`](Self::reenter). Detached work does not keep it. The layer no longer watches
    /// for a loss.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold ended before: the work under it may
    /// overlap with another request. [`Unavailable`](lockcore::LockErrorKind::Unavailable) if the
    /// store does not answer: then the lock is granted to the next waiter when its lease expires,
    /// at the latest.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// The release continues if this is dropped once it was polled.
    pub async fn release(&self) -> Result<(), LockError> {
        match self.held().release() {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }

    /// The time until which the hold is certain if no further renewal succeeds. The watchdog moves
    /// it forward.
    pub fn deadline(&self) -> Instant {
        self.held().with_guard(LockGuard::deadline).unwrap_or_else(|deadline| deadline)
    }

    /// Whether the hold can no longer be relied on: it was lost, or it was released.
    pub fn is_lost(&self) -> bool {
        self.held().with_guard(LockGuard::is_lost).unwrap_or(true)
    }

    /// Completes when the hold is lost. It never completes if the hold is released first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        match self.held().loss() {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// A token that is cancelled when the hold is lost. If the hold is already lost or released,
    /// the token is already cancelled. A release that comes later does not cancel it, unless it
    /// finds that the hold is lost. Pass it to work that must stop at a loss.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held().loss().unwrap_or_else(|| {
            let token = CancellationToken::new();
            token.cancel();
            token
        })
    }

    /// A guard on the same hold, for work that continues after the response. The lock is released
    /// with the last guard.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold was lost or has been released.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        Ok(self.held().with_guard(LockGuard::reenter).map_err(|_| LockError::lost())??)
    }

    /// Checks that the hold can still be relied on.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if it was lost or has been released.
    pub fn check(&self) -> Result<(), LockError> {
        match self.is_lost() {
            true => Err(LockError::lost()),
            false => Ok(()),
        }
    }

    /// The hold that the same request acquired before this one: in an outer layer, for the key
    /// before in a tuple, or earlier through the same [`RequestLocks`](crate::RequestLocks). A hold
    /// that was released may be left out.
    pub fn outer(&self) -> Option<LockHandle> {
        self.before().last()
    }

    /// The holds that the request acquired before this one.
    pub(crate) fn before(&self) -> impl Iterator<Item = LockHandle> {
        let number = self.held().number;
        Self::all(&self.request).take_while(move |other| other.held().number < number)
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("fencing_token", &self.fencing_token())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
