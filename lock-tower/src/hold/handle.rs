//! `LockHandle`, with which a handler reads and releases its lock.

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

/// A handle to the lock under which a request is served. In HTTP it is in the request's extensions.
/// If a layer acquires several locks for a request, this is the handle of an exclusive lock; of a
/// read if no lock is exclusive, and of permits if there are only permits. Of several equal
/// demands, the name that sorts last decides. [`outer`](Self::outer) returns the handles of the
/// others.
///
/// The handle itself does not keep the lock: the layer does, until the response or the end of the
/// response body. To keep the lock for longer, take a guard with [`reenter`](Self::reenter).
///
/// ```
/// # use lock_tower::LockHandle;
/// # async fn execute(_sql: &str, _parameters: [i64; 2]) -> Result<(), ()> { Ok(()) }
/// async fn pay<B>(request: http::Request<B>) -> Result<(), ()> {
///     let lock = request.extensions().get::<LockHandle>().expect("the layer put it there");
///     let hold = [lock.fencing_token().into(), 42];
///     // `execute` fails if no row changed: then a later holder exists.
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

    /// Returns handles to all of a request's locks, in order.
    pub(crate) fn all(request: &Arc<HoldRegistry>) -> impl Iterator<Item = Self> {
        request.locations().map(|location| Self::new(request, location))
    }

    /// Returns the registry of all locks of the same request.
    pub(crate) fn request(&self) -> &Arc<HoldRegistry> {
        &self.request
    }

    /// Returns the registry's record of this lock, which contains the guard and the key.
    pub(crate) fn held(&self) -> &HoldRecord {
        self.request.record_at(&self.location)
    }

    /// Returns the key of this lock, as the extractor returned it.
    pub fn key(&self) -> Cow<'_, str> {
        self.held().key.given()
    }

    /// Returns the fencing token of this lock. Store it with the protected data before you read the
    /// data, and write only while this token is still stored there. The token is higher than the
    /// tokens of all earlier holders, except in the cases listed in
    /// [`guide::fencing`](lockcore::guide::fencing). Concurrent reads share a token.
    ///
    /// Permits have no fencing token, because several are held at the same time. The method then
    /// returns [`FencingToken::NONE`], the number 0, which a resource that checks tokens refuses.
    /// The same applies to reads on a [quorum](lockcore::guide::quorum).
    pub fn fencing_token(&self) -> FencingToken {
        self.held().token
    }

    /// Returns how long the request waited for this lock.
    pub fn waited(&self) -> Duration {
        self.held().waited
    }

    /// Returns the number of waiters ahead when the request was queued for this lock; `None` if the
    /// lock was granted at once.
    pub fn position(&self) -> Option<u64> {
        self.held().position
    }

    /// Releases the lock now instead of with the response. `Ok` means that the lock was held until
    /// now, or had already been released.
    ///
    /// The lock stays held while other guards exist: from an outer layer with the same key, or from
    /// [`reenter`](Self::reenter). Detached work does not prevent the release. The layer no longer
    /// stops the handler if the lock is lost after the release.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the lock was lost before: the handler's work may
    /// overlap with another request, so the layer refuses the request, unless it is set to
    /// [`Continue`](crate::OnLost::Continue).
    /// [`Unavailable`](lockcore::LockErrorKind::Unavailable) if the store does not respond: then
    /// the lock is granted to the next waiter when the lease expires, at the latest.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, the release continues even if the returned future is dropped.
    pub async fn release(&self) -> Result<(), LockError> {
        self.held().release().await
    }

    /// Returns the time until which the lock is certainly held, even if no further renewal
    /// succeeds. Each renewal moves it forward. After a release, the last value stays.
    pub fn deadline(&self) -> Instant {
        self.held().with_guard(LockGuard::deadline).unwrap_or_else(|deadline| deadline)
    }

    /// Returns true if the lock was lost or released, so that another request may hold it now.
    pub fn is_lost(&self) -> bool {
        self.held().with_guard(LockGuard::is_lost).unwrap_or(true)
    }

    /// Completes when the lock is lost. Never completes if the lock is released first, unless
    /// another guard keeps the lock and loses it.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        match self.held().loss() {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns a token that is cancelled when the lock is lost. Pass it to work that must stop
    /// then. If the lock was already lost or released, the token is already cancelled. A later
    /// release does not cancel the token, unless the release discovers a loss.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held().loss().unwrap_or_else(|| {
            let token = CancellationToken::new();
            token.cancel();
            token
        })
    }

    /// Returns another guard on this lock, for work that continues after the response. The lock is
    /// released when the last guard is dropped.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the lock was already lost or released.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        Ok(self.held().with_guard(LockGuard::reenter).map_err(|_| LockError::lost())??)
    }

    /// Checks that the lock is still held, for use with `?`.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the lock was lost or released.
    pub fn check(&self) -> Result<(), LockError> {
        match self.is_lost() {
            true => Err(LockError::lost()),
            false => Ok(()),
        }
    }

    /// Returns the handle of the lock before this lock: of an outer layer, of an earlier call of
    /// the same [`RequestLocks`](crate::RequestLocks), or of the same call. The locks of a call are
    /// in the order of [`RequestLocks::lock`](crate::RequestLocks::lock). Returns `None` for the
    /// request's first lock. A released lock may be skipped, and the handle is then of an even
    /// earlier lock.
    pub fn outer(&self) -> Option<LockHandle> {
        self.before().last()
    }

    /// Returns handles to the locks before this lock, in order.
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
