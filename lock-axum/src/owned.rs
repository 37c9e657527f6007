//! `OwnedLock`: an extractor that owns the lock guard, for work that outlives the response.

use std::fmt;
use std::ops::Deref;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use lock_tower::{LockError, RequestLocks};
use lockcore::{FencingToken, LockGuard};

use crate::lockable::Lockable;
use crate::rejection::LockedRejection;

/// An extractor that acquires the lock named by `E`, and holds it until the `OwnedLock` is dropped.
/// Use it for work that outlives the response, such as a WebSocket or a task.
///
/// **An `OwnedLock` is a guard in an argument.** An `async fn` keeps it until it returns, or moves
/// it elsewhere. A closure drops an unused argument *before* its body runs. For a lock for the
/// duration of the handler, use [`Locked`](crate::Locked).
///
/// An `OwnedLock` shares a lock that the request already holds through a layer or a
/// [`Locked`](crate::Locked). The reverse is not true: a [`Locked`](crate::Locked) with the same
/// key after the `OwnedLock` waits until the `OwnedLock` is released.
///
/// If the lock is lost, for example because the lease could not be renewed, the layer does not stop
/// the handler. Only the [`guards`](Self::guards) report the loss.
///
/// ```
/// # use axum::extract::Path;
/// # use lock_axum::{Keys, Lockable, OwnedLock};
/// # #[derive(serde::Deserialize)]
/// # struct Order { id: u64 }
/// # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
/// # async fn ship(id: u64) {}
/// async fn start(order: OwnedLock<Path<Order>>) -> &'static str {
///     tokio::spawn(async move {
///         ship(order.id).await;
///         order.release().await // or let it drop
///     });
///     "it will be shipped"
/// }
/// ```
#[must_use = "dropping this releases the lock"]
pub struct OwnedLock<E: Lockable> {
    source: E,
    /// One guard for each lock named by `E`, as sorted by `RequestLocks::guards`; never empty.
    guards: Vec<LockGuard>,
}

impl<E: Lockable> OwnedLock<E> {
    /// Returns a reference to the extractor that named the lock.
    pub fn source(&self) -> &E {
        &self.source
    }

    /// Returns the guards of all locks named by `E`: first of permits, then of reads, then of
    /// exclusive locks, each sorted by lock name. There are several if `E` names several locks, for
    /// example if `E` is a tuple.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Returns the fencing token of the lock, by which the protected resource refuses writes of
    /// earlier holders. With several [`guards`](Self::guards), this is the token of the last, which
    /// is an exclusive lock if there is one. Permits have no token: see
    /// [`LockGuard::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.guards.last().expect("at least one").fencing_token()
    }

    /// Returns the extractor that named the lock, and the guards. The lock stays held until the
    /// guards are dropped.
    pub fn into_parts(self) -> (E, Vec<LockGuard>) {
        (self.source, self.guards)
    }

    /// Releases the lock. Returns an error if the lock was lost before.
    ///
    /// # Errors
    /// The errors of [`LockGuard::release`]. With several guards, all are released, and the first
    /// error is returned.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers; the lock is released all the same.
    ///
    /// # Cancel safety
    /// The lock is released even if the returned future is dropped.
    pub async fn release(self) -> Result<(), LockError> {
        let releases: Vec<_> = self.guards.into_iter().rev().map(LockGuard::release).collect();
        let mut released = Ok(());
        for release in releases {
            released = released.and(release.await);
        }
        Ok(released?)
    }
}

impl<E: Lockable> Deref for OwnedLock<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.source
    }
}

impl<S, E> FromRequestParts<S> for OwnedLock<E>
where
    S: Send + Sync,
    E: Lockable + FromRequestParts<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let source = E::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let locks = RequestLocks::of(&parts.extensions).map_err(LockedRejection::Lock)?;
        lock(locks, source).await.map_err(LockedRejection::Lock)
    }
}

/// Extracts the lock name from the body. The body is read before the lock is acquired, so a slow
/// client does not hold the lock while it sends.
impl<S, E> FromRequest<S> for OwnedLock<E>
where
    S: Send + Sync,
    E: Lockable + FromRequest<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let locks = RequestLocks::of(request.extensions());
        let source = E::from_request(request, state).await.map_err(LockedRejection::Key)?;
        let locks = locks.map_err(LockedRejection::Lock)?;
        lock(locks, source).await.map_err(LockedRejection::Lock)
    }
}

/// Acquires the locks named by `source`, and wraps `source` and the guards in an [`OwnedLock`].
async fn lock<E: Lockable>(locks: RequestLocks, source: E) -> Result<OwnedLock<E>, LockError> {
    let guards = locks.guards(source.lock_key()).await?;
    Ok(OwnedLock { source, guards })
}

impl<E: Lockable + fmt::Debug> fmt::Debug for OwnedLock<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLock")
            .field("source", &self.source)
            .field("guards", &self.guards)
            .finish()
    }
}
