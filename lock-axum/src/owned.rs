//! An extractor that owns the guard, for work that outlives the response.

use std::fmt;
use std::ops::Deref;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use lock_tower::{LockError, RequestLocks};
use lockcore::{FencingToken, LockGuard};

use crate::lockable::Lockable;
use crate::rejection::LockedRejection;

/// A lock held until this is dropped: for a WebSocket or a task that outlives the response.
///
/// **It is a guard in an argument.** An `async fn` keeps it until it returns, or moves it
/// elsewhere. A closure drops an unused argument *before* the body runs. For a lock for the
/// duration of the handler, use [`Locked`](crate::Locked).
///
/// An `OwnedLock` shares a lock that the request already has from a layer or a
/// [`Locked`](crate::Locked). The reverse is not true: the same lock requested after the
/// `OwnedLock` waits until it is released.
///
/// The layer does not watch this hold for loss: the [`guards`](Self::guards) report it.
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
    /// The guards in the order of acquisition; never empty.
    guards: Vec<LockGuard>,
}

impl<E: Lockable> OwnedLock<E> {
    /// Returns the extractor with the key.
    pub fn source(&self) -> &E {
        &self.source
    }

    /// The guards, in name order: a tuple has several.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The fencing token of this hold, checked by the protected resource. With several
    /// [`guards`](Self::guards), this is the token of the last.
    pub fn fencing_token(&self) -> FencingToken {
        self.guards.last().expect("at least one").fencing_token()
    }

    /// The extractor that provided the key, and the guards.
    pub fn into_parts(self) -> (E, Vec<LockGuard>) {
        (self.source, self.guards)
    }

    /// Releases the lock, and reports whether the hold lasted until then.
    ///
    /// # Errors
    /// The errors of [`LockGuard::release`]. With several guards, all are released, and the first
    /// error is returned.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers; the lock is released all the same.
    ///
    /// # Cancel safety
    /// The release continues if this is dropped.
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

/// Locks by a key in the body. The body is read first, so a slow client holds nothing meanwhile.
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
