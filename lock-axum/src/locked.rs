//! `Locked`: an extractor that runs the handler under a lock.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::{
    FromRequest, FromRequestParts, OptionalFromRequest, OptionalFromRequestParts, Request,
};
use http::request::Parts;
use lock_tower::{Cause, LockError, LockHandle, RequestLocks};
use lockcore::{FencingToken, LockGuard};

use crate::lockable::Lockable;
use crate::mode::{AsKeys, Mode, Permit, Read, Write};
use crate::rejection::LockedRejection;

/// An extractor that runs the handler under the lock named by `E`, and gives the handler access to
/// this lock.
///
/// The [`LockScopeLayer`](crate::LockScopeLayer) keeps the lock until the response, or until the
/// end of the response body. Dropping a `Locked` does not release the lock. `E` is any [`Lockable`]
/// extractor, and a `Locked` derefs to it. If `E` reads the body, such as in `Locked<Json<Order>>`,
/// the `Locked` must be the last argument, and the lock is acquired after the body has been read.
///
/// ```
/// # use axum::extract::Path;
/// # use axum::http::StatusCode;
/// # use lock_axum::{Keys, Lockable, Locked};
/// # #[derive(serde::Deserialize)]
/// # struct Order { id: u64 }
/// # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
/// # async fn execute(_sql: &str, _parameters: [u64; 2]) -> Result<(), StatusCode> { Ok(()) }
/// async fn pay(order: Locked<Path<Order>>) -> Result<&'static str, StatusCode> {
///     let hold = [order.fencing_token().get(), order.id];
///     // `execute` fails if no row changed: then a later holder exists.
///     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", hold).await?;
///     // Now read the row, and do the work.
///     execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", hold).await?;
///     Ok("paid")
/// }
/// ```
///
/// `Option<Locked<E>>` waits just as long. It is `None` if the wait times out, the queue is full or
/// the request is refused early: then the handler runs without the lock, and without `E`. If `E`
/// reads the body, the body is lost: acquire the lock in the handler, with
/// [`RequestLocks`](crate::RequestLocks).
///
/// `M` is the lock mode: by default exclusive. [`ReadLocked`], [`WriteLocked`] and [`PermitLocked`]
/// are aliases for the other modes.
pub struct Locked<E: Lockable, M: Mode<E> = AsKeys> {
    source: E,
    /// The handles of the locks named by `E`, as sorted by `RequestLocks::lock`; never empty.
    handles: Vec<LockHandle>,
    /// Access to all locks of the request, also from other extractors and layers:
    /// [`detach`](Self::detach) runs its future under all of them. Also turns errors into refusals
    /// of the layer.
    locks: RequestLocks,
    mode: PhantomData<fn() -> M>,
}

/// An extractor that runs the handler under the read lock named by `E`. Handlers with read locks
/// run concurrently, but not while a request holds the exclusive lock or permits with that name.
/// Everything else works as in [`Locked`].
///
/// Read locks and exclusive locks are granted in order of arrival: a read lock does not overtake an
/// exclusive lock that waits.
///
/// ```
/// # use axum::extract::Path;
/// # use axum::{Router, routing::get};
/// # use lock_axum::{Keys, Lockable, LockedBody, ReadLocked, WriteLocked, mode};
/// # #[derive(serde::Deserialize)]
/// # struct Document { id: u64 }
/// # impl Lockable for Document { fn lock_key(&self) -> Keys { format!("doc:{}", self.id).into() } }
/// # async fn load(_id: u64) -> String { String::new() }
/// # async fn store(_id: u64, _text: String) {}
/// # async fn erase(_id: u64) {}
/// async fn show(document: ReadLocked<Path<Document>>) -> String {
///     load(document.id).await
/// }
///
/// async fn remove(document: WriteLocked<Path<Document>>) {
///     erase(document.id).await;
/// }
///
/// // With a body, which is read before the lock is requested:
/// async fn replace(put: LockedBody<Path<Document>, String, mode::Write>) {
///     store(put.lock.id, put.body).await;
/// }
/// # let _: Router = Router::new().route("/{id}", get(show).put(replace).delete(remove));
/// ```
///
/// A request with a read lock cannot also acquire the exclusive lock with the same name. It would
/// wait for itself, so it is refused at once with 500.
pub type ReadLocked<E> = Locked<E, Read>;

/// An extractor that runs the handler under the exclusive lock named by `E`. Meanwhile no other
/// request holds this lock, a read lock or permits with the same name. Use it for names that other
/// handlers lock with [`ReadLocked`]. A plain [`Locked`] does the same unless the
/// [`Keys`](crate::Keys) set another mode.
pub type WriteLocked<E> = Locked<E, Write>;

/// An extractor that runs the handler under a permit for the name in `E`: only a limited number of
/// requests for this name run at a time. `E` returns the limit ([`Limited`](crate::Limited)). It
/// works as [`Locked`] does, with two differences: a wait that times out is refused with 429, and a
/// permit has no [fencing token](Locked::fencing_token).
///
/// ```
/// use axum::Extension;
/// use axum::body::Body;
/// use lock_axum::{Keys, Limited, Lockable, PermitLocked};
///
/// #[derive(Clone)]
/// struct Tenant { id: u64, at_once: u32 } // set by authentication, as a request extension
///
/// impl Lockable for Tenant {
///     fn lock_key(&self) -> Keys {
///         format!("tenant:{}", self.id).into()
///     }
/// }
///
/// impl Limited for Tenant {
///     fn permit_limit(&self) -> u32 {
///         self.at_once
///     }
/// }
///
/// # async fn ask_model(_tenant: u64) -> Body { Body::empty() }
/// async fn generate(tenant: PermitLocked<Extension<Tenant>>) -> Body {
///     ask_model(tenant.id).await
/// }
/// ```
///
/// To keep the permit until a streamed response has been sent, set
/// [`hold_until_body_end`](crate::LockScopeLayer::hold_until_body_end). To take several permits for
/// one request, use a [`Locked`] with [`Keys::permits`](crate::Keys::permits).
pub type PermitLocked<E> = Locked<E, Permit>;

impl<E: Lockable, M: Mode<E>> Locked<E, M> {
    pub(crate) fn new(source: E, handles: Vec<LockHandle>, locks: RequestLocks) -> Self {
        Self { source, handles, locks, mode: PhantomData }
    }

    /// Returns a reference to the extractor that named the lock.
    pub fn source(&self) -> &E {
        &self.source
    }

    /// Returns the extractor that named the lock. The lock stays held although the `Locked` is
    /// consumed, because the layer keeps it until the response.
    pub fn into_source(self) -> E {
        self.source
    }

    /// Returns the lock's handle. If `E` names several locks, this is the handle of an
    /// exclusive lock; of a read if no lock is exclusive, and of permits if there are only permits.
    /// Of several equal demands, the name that sorts last decides: look such a handle up in
    /// [`handles`](Self::handles), by its [`key`](LockHandle::key).
    pub fn handle(&self) -> &LockHandle {
        self.handles.last().expect("at least one")
    }

    /// Returns the handles of all locks named by `E`: first of permits, then of reads, then of
    /// exclusive locks, each sorted by lock name. There are several if `E` names several locks, for
    /// example if `E` is a tuple.
    pub fn handles(&self) -> &[LockHandle] {
        &self.handles
    }

    /// Returns the fencing token of the lock, by which the protected resource refuses writes of
    /// earlier holders. It is higher than the token of every earlier lock with this name, except in
    /// the cases listed in [`guide::fencing`](lockcore::guide::fencing). Concurrent reads share a
    /// token. If `E` names several locks, this is the token of the lock that
    /// [`handle`](Self::handle) returns. Permits have no token: see [`LockHandle::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.handle().fencing_token()
    }

    /// Returns the time until which all locks are certainly held, even if no further renewal
    /// succeeds. Each renewal of the leases moves it forward.
    pub fn deadline(&self) -> tokio::time::Instant {
        self.handles.iter().map(LockHandle::deadline).min().expect("at least one")
    }

    /// Returns true if a lock was lost or released, so that it no longer protects the handler.
    pub fn is_lost(&self) -> bool {
        self.handles.iter().any(LockHandle::is_lost)
    }

    /// Completes when a lock is lost. The release of a lock does not count as a loss. Useful only
    /// under [`OnLost::Continue`](crate::OnLost::Continue), because otherwise the layer drops the
    /// handler when a lock is lost.
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

    /// Releases the lock before the response. Returns an error if the lock was lost before.
    ///
    /// # Errors
    /// The errors of [`LockHandle::release`]. With several locks, all are released, and the first
    /// error is returned.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, a release that has started continues. With several locks,
    /// the others are released with the response.
    pub async fn release(&self) -> Result<(), LockError> {
        let mut released = Ok(());
        for handle in self.handles.iter().rev() {
            released = released.and(handle.release().await);
        }
        released.map_err(|error| self.locks.refused(error))
    }

    /// Returns another guard for each lock, for work that continues after the response. Each lock
    /// stays held until the layer's guard and all further guards are dropped.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a lock was lost or has been released.
    pub fn reenter(&self) -> Result<Vec<LockGuard>, LockError> {
        let guards: Result<_, _> = self.handles.iter().map(LockHandle::reenter).collect();
        guards.map_err(|error| self.locks.refused(error))
    }

    /// Runs `future` to its end even if the client disconnects, under all locks of the request,
    /// including those of other arguments: see [`RequestLocks::detach`]. After a disconnect,
    /// `future` can acquire no more locks with [`RequestLocks::lock`].
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a lock is lost before or while `future` runs, or
    /// if this lock has been released.
    ///
    /// # Panics
    /// Propagates a panic of `future`. Panics outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to its end even if the returned future is dropped.
    pub async fn detach<F>(&self, future: F) -> Result<F::Output, LockError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let held = self.handles.iter().try_for_each(LockHandle::check);
        held.map_err(|error| self.locks.refused(error))?; // even if the request has other holds
        self.locks.detach(future).await
    }
}

impl<E: Lockable, M: Mode<E>> Deref for Locked<E, M> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.source
    }
}

impl<S, E, M> FromRequestParts<S> for Locked<E, M>
where
    S: Send + Sync,
    E: Lockable + FromRequestParts<S> + Send,
    M: Mode<E>,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let inner = E::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let locks = RequestLocks::of(&parts.extensions).map_err(LockedRejection::Lock)?;
        let locked = lock(locks, inner).await.map_err(LockedRejection::Lock)?;
        // Inserted for handlers and inner layers that look for the handle in the extensions.
        parts.extensions.insert(locked.handle().clone());
        Ok(locked)
    }
}

/// Extracts the lock name from the body. The body is read before the lock is acquired, so a slow
/// client does not hold the lock while it sends.
impl<S, E, M> FromRequest<S> for Locked<E, M>
where
    S: Send + Sync,
    E: Lockable + FromRequest<S> + Send,
    M: Mode<E>,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let locks = RequestLocks::of(request.extensions());
        let inner = E::from_request(request, state).await.map_err(LockedRejection::Key)?;
        let locks = locks.map_err(LockedRejection::Lock)?;
        lock(locks, inner).await.map_err(LockedRejection::Lock)
    }
}

impl<S, E, M> OptionalFromRequestParts<S> for Locked<E, M>
where
    S: Send + Sync,
    E: Lockable + FromRequestParts<S> + Send,
    M: Mode<E>,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        optional(<Self as FromRequestParts<S>>::from_request_parts(parts, state).await)
    }
}

impl<S, E, M> OptionalFromRequest<S> for Locked<E, M>
where
    S: Send + Sync,
    E: Lockable + FromRequest<S> + Send,
    M: Mode<E>,
{
    type Rejection = LockedRejection<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Self::Rejection> {
        optional(<Self as FromRequest<S>>::from_request(request, state).await)
    }
}

/// Acquires the locks named by `inner`, in lock mode `M`. The layer keeps them until the response.
pub(crate) async fn lock<E: Lockable, M: Mode<E>>(
    locks: RequestLocks,
    inner: E,
) -> Result<Locked<E, M>, LockError> {
    let handles = locks.lock(M::keys(&inner)).await?;
    Ok(Locked::new(inner, handles, locks))
}

/// Converts the result of an extractor for an `Option` argument: a timed-out wait, a full queue and
/// an early refusal are `Ok(None)`. All other errors reject the request.
fn optional<T, R>(locked: Result<T, LockedRejection<R>>) -> Result<Option<T>, LockedRejection<R>> {
    match locked {
        Ok(locked) => Ok(Some(locked)),
        Err(LockedRejection::Lock(error))
            if matches!(
                error.cause(),
                Cause::Busy | Cause::LimitReached | Cause::QueueFull | Cause::WaitTooLong
            ) =>
        {
            Ok(None)
        }
        Err(rejection) => Err(rejection),
    }
}

impl<E: Lockable + fmt::Debug, M: Mode<E>> fmt::Debug for Locked<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked")
            .field("source", &self.source)
            .field("handles", &self.handles)
            .finish()
    }
}
