//! The handle through which a handler sees a hold.

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
/// The handle does not keep the lock: the layer does, until the response or the end of the response
/// body. A guard from [`reenter`](Self::reenter) also keeps the lock.
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

    /// Returns the handles of all holds of a request, in acquisition order.
    pub(crate) fn all(request: &Arc<HoldRegistry>) -> impl Iterator<Item = Self> {
        request.locations().map(|location| Self::new(request, location))
    }

    /// The request's hold registry.
    pub(crate) fn request(&self) -> &Arc<HoldRegistry> {
        &self.request
    }

    pub(crate) fn held(&self) -> &HoldRecord {
        self.request.record_at(&self.location)
    }

    /// Returns the lock key, as the layer or extractor specified it.
    pub fn key(&self) -> Cow<'_, str> {
        self.held().key.given()
    }

    /// Returns the fencing token of this hold, to be checked by the protected resource. The token
    /// is higher than the tokens of all earlier holds, except in the cases listed in
    /// [`guide::fencing`](lockcore::guide::fencing). Concurrent reads share a token.
    ///
    /// Permits have none, because several are held at the same time: their token is 0, which a
    /// resource that checks tokens refuses. The same applies to reads on a
    /// [quorum](lockcore::guide::quorum).
    pub fn fencing_token(&self) -> FencingToken {
        self.held().token
    }

    /// Returns how long the request waited for this lock.
    pub fn waited(&self) -> Duration {
        self.held().waited
    }

    /// Returns the number of waiters ahead when the request was queued for this lock; `None` if it
    /// was granted at once.
    pub fn position(&self) -> Option<u64> {
        self.held().position
    }

    /// Releases the lock before the response, and reports whether the hold lasted until then. A
    /// second release is not an error.
    ///
    /// Other guards keep the hold: guards from an outer layer with the same key, and guards from
    /// [`reenter`](Self::reenter). Detached work does not keep it. The layer stops watching for a
    /// loss.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold ended earlier: the work under it may
    /// overlap with another request. [`Unavailable`](lockcore::LockErrorKind::Unavailable) if the
    /// store does not respond: then the lock is granted to the next waiter when the lease expires,
    /// at the latest.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, the release continues even if the returned future is dropped.
    pub async fn release(&self) -> Result<(), LockError> {
        match self.held().release() {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }

    /// Returns the time until which the hold is certain if no further renewal succeeds. The
    /// watchdog moves it forward.
    pub fn deadline(&self) -> Instant {
        self.held().with_guard(LockGuard::deadline).unwrap_or_else(|deadline| deadline)
    }

    /// Whether the hold can no longer be relied on: it was lost or released.
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

    /// Returns a token that is cancelled when the hold is lost. If the hold is already lost or
    /// released, the token is already cancelled. A later release does not cancel the token, unless
    /// the release discovers a loss. Pass the token to work that must stop at a loss.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held().loss().unwrap_or_else(|| {
            let token = CancellationToken::new();
            token.cancel();
            token
        })
    }

    /// Returns another guard on the hold, for work that continues after the response. The lock is
    /// released with the last guard.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold was lost or released.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        Ok(self.held().with_guard(LockGuard::reenter).map_err(|_| LockError::lost())??)
    }

    /// Checks whether the hold can still be relied on.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold was lost or released.
    pub fn check(&self) -> Result<(), LockError> {
        match self.is_lost() {
            true => Err(LockError::lost()),
            false => Ok(()),
        }
    }

    /// Returns the same request's previous hold: from an outer layer, for the previous tuple key,
    /// or acquired earlier through the same [`RequestLocks`](crate::RequestLocks). Released holds
    /// may be skipped.
    pub fn outer(&self) -> Option<LockHandle> {
        self.before().last()
    }

    /// Returns the request's earlier holds.
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
