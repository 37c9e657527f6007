//! The extractor: a lock that lasts until the response.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use axum::extract::{
    FromRequest, FromRequestParts, OptionalFromRequest, OptionalFromRequestParts, Request,
};
use http::request::Parts;
use lock_tower::{Cause, LockHandle, RequestLocks};
use lockcore::{FencingToken, LockGuard};

use crate::error::LockError;
use crate::lockable::Lockable;
use crate::rejection::LockedRejection;

/// Runs the handler under the lock that `E` names, and is what the handler sees of it.
///
/// The [`LockScopeLayer`](crate::LockScopeLayer) keeps the lock, until the response or the end of
/// its body. Dropping this changes nothing. It derefs to `E`. `E` is any [`Lockable`] extractor,
/// also one that reads the body: `Locked<Json<Order>>` is then the last argument, and the lock is
/// acquired when the body has been read.
///
/// ```
/// # use axum::extract::Path;
/// # use lock_axum::{Keys, Lockable, Locked};
/// # #[derive(serde::Deserialize)]
/// # struct Order { id: u64 }
/// # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
/// # async fn execute(_sql: &str, _parameters: &[u64]) -> u64 { 1 }
/// async fn pay(order: Locked<Path<Order>>) -> String {
///     let sql = "UPDATE orders SET paid = true, token = $1 WHERE id = $2 AND token < $1";
///     let rows = execute(sql, &[order.fencing_token().get(), order.id]).await;
///     format!("{rows} paid")
/// }
/// ```
///
/// `Option<Locked<E>>` waits just as long. It is `None` if the wait times out or the queue is full.
pub struct Locked<E: Lockable> {
    source: E,
    /// In the order in which they were taken; never empty.
    handles: Vec<LockHandle>,
    /// All of the request.
    locks: RequestLocks,
}

impl<E: Lockable> Locked<E> {
    pub(crate) fn new(source: E, handles: Vec<LockHandle>, locks: RequestLocks) -> Self {
        Self { source, handles, locks }
    }

    /// What the key was read from.
    pub fn source(&self) -> &E {
        &self.source
    }

    /// What the key was read from. The lock stays.
    pub fn into_source(self) -> E {
        self.source
    }

    /// The hold. Of several, the last in the order of their names.
    pub fn handle(&self) -> &LockHandle {
        self.handles.last().expect("there is at least one")
    }

    /// The holds, in the order of their names: of a tuple of sources there are several.
    pub fn handles(&self) -> &[LockHandle] {
        &self.handles
    }

    /// The number that proves this hold to the resource it protects; higher than that of every
    /// earlier hold. Each of several [`handles`](Self::handles) has its own; this is that of the
    /// last.
    pub fn fencing_token(&self) -> FencingToken {
        self.handle().fencing_token()
    }

    /// Until when all holds are certain if no further renewal succeeds. The watchdog moves it
    /// forward.
    pub fn deadline(&self) -> tokio::time::Instant {
        self.handles.iter().map(LockHandle::deadline).min().expect("there is at least one")
    }

    /// Whether a hold can no longer be relied on: it was lost, or released.
    pub fn is_lost(&self) -> bool {
        self.handles.iter().any(LockHandle::is_lost)
    }

    /// Completes when a hold is lost. It is of use under
    /// [`OnLost::Continue`](crate::OnLost::Continue). Otherwise the handler is dropped then.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut losses: Vec<_> =
            self.handles.iter().map(|handle| Box::pin(handle.lost())).collect();
        std::future::poll_fn(|cx| {
            match losses.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready()) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }

    /// Releases the lock before the response, and reports whether the hold lasted until then.
    ///
    /// # Errors
    /// As [`LockHandle::release`]. Of several, all are released, and the first error is returned.
    ///
    /// # Cancel safety
    /// The release goes on if this is dropped once it was polled.
    pub async fn release(&self) -> Result<(), LockError> {
        let mut released = Ok(());
        for handle in self.handles.iter().rev() {
            released = released.and(handle.release().await);
        }
        released.map_err(|error| LockError::new(error, &self.locks))
    }

    /// Guards on the same holds, for work that continues after the response. A lock is released
    /// with its last guard.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost or has been released.
    pub fn reenter(&self) -> Result<Vec<LockGuard>, LockError> {
        let guards: Result<_, _> = self.handles.iter().map(LockHandle::reenter).collect();
        guards.map_err(|error| LockError::new(error, &self.locks))
    }

    /// Finishes `future` even if the client disconnects, under all locks that the request has, also
    /// those of other arguments: see [`RequestLocks::detach`].
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold is lost, before or meanwhile, or if this
    /// one has been released.
    ///
    /// # Panics
    /// With the panic of `future`.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to its end even if this is dropped.
    pub async fn detach<F>(&self, future: F) -> Result<F::Output, LockError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        drop(self.reenter()?); // these ones, whatever else the request has
        self.locks.detach(future).await.map_err(|error| LockError::new(error, &self.locks))
    }
}

impl<E: Lockable> Deref for Locked<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.source
    }
}

impl<S, E> FromRequestParts<S> for Locked<E>
where
    S: Send + Sync,
    E: Lockable + FromRequestParts<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let inner = E::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let locks = RequestLocks::of(&parts.extensions).map_err(LockedRejection::lock)?;
        let locked = lock(locks, inner).await.map_err(LockedRejection::Lock)?;
        // For handlers and layers further inside that look for it.
        parts.extensions.insert(locked.handle().clone());
        Ok(locked)
    }
}

/// For a body that names the lock. It is read first, so a slow client holds nothing meanwhile.
impl<S, E> FromRequest<S> for Locked<E>
where
    S: Send + Sync,
    E: Lockable + FromRequest<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let locks = RequestLocks::of(request.extensions());
        let inner = E::from_request(request, state).await.map_err(LockedRejection::Key)?;
        let locks = locks.map_err(LockedRejection::lock)?;
        lock(locks, inner).await.map_err(LockedRejection::Lock)
    }
}

impl<S, E> OptionalFromRequestParts<S> for Locked<E>
where
    S: Send + Sync,
    E: Lockable + FromRequestParts<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        optional(<Self as FromRequestParts<S>>::from_request_parts(parts, state).await)
    }
}

impl<S, E> OptionalFromRequest<S> for Locked<E>
where
    S: Send + Sync,
    E: Lockable + FromRequest<S> + Send,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Self::Rejection> {
        optional(<Self as FromRequest<S>>::from_request(request, state).await)
    }
}

/// Takes the locks, which stay with the layer.
pub(crate) async fn lock<E: Lockable>(
    locks: RequestLocks,
    inner: E,
) -> Result<Locked<E>, LockError> {
    match locks.lock(inner.lock_key()).await {
        Ok(handles) => Ok(Locked::new(inner, handles, locks)),
        Err(error) => Err(LockError::new(error, &locks)),
    }
}

/// A wait that timed out and a full queue are no lock. All else refuses.
fn optional<T, R>(locked: Result<T, LockedRejection<R>>) -> Result<Option<T>, LockedRejection<R>> {
    match locked {
        Ok(locked) => Ok(Some(locked)),
        Err(LockedRejection::Lock(error))
            if matches!(error.cause(), Cause::Busy | Cause::QueueFull) =>
        {
            Ok(None)
        }
        Err(rejection) => Err(rejection),
    }
}

impl<E: Lockable + fmt::Debug> fmt::Debug for Locked<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked")
            .field("source", &self.source)
            .field("handles", &self.handles)
            .finish()
    }
}
