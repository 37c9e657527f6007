//! The extractor for a lock held until the response.

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

/// Runs the handler under the lock named by `E`, and gives the handler access to the hold.
///
/// The [`LockScopeLayer`](crate::LockScopeLayer) keeps the lock until the response or the end of
/// its body. Dropping a `Locked` does not release the lock. It derefs to `E`, which is any
/// [`Lockable`] extractor. An extractor that reads the body makes `Locked<Json<Order>>` the last
/// argument, and the lock is acquired after the body has been read.
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
///     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", hold).await?;
///     // Now read the row, and do the work.
///     execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", hold).await?;
///     Ok("paid")
/// }
/// ```
///
/// `Option<Locked<E>>` waits just as long. It is `None` if the wait times out, the queue is full or
/// the request is refused early.
///
/// `M` is the lock mode of `E`. [`ReadLocked`], [`WriteLocked`] and [`PermitLocked`] have other
/// modes.
pub struct Locked<E: Lockable, M: Mode<E> = AsKeys> {
    source: E,
    /// The handles in the order of acquisition; never empty.
    handles: Vec<LockHandle>,
    /// All locks of the request.
    locks: RequestLocks,
    mode: PhantomData<fn() -> M>,
}

/// Runs the handler under the read lock named by `E`: together with other reads, while no request
/// holds the lock or permits of that name. Everything else works as in [`Locked`].
///
/// Reads and locks are served in order of arrival: a read does not overtake a waiting lock.
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
/// A request with a read lock cannot lock the same name: it would wait for itself, so it is refused
/// at once with 500.
pub type ReadLocked<E> = Locked<E, Read>;

/// Runs the handler while no other request locks, reads or has permits of the name in `E`: an alias
/// of [`Locked`] for names that are also read-locked. See [`ReadLocked`].
pub type WriteLocked<E> = Locked<E, Write>;

/// Runs the handler under a permit of the name in `E`: at most as many requests run at a time as
/// the limit allows ([`Limited`](crate::Limited)). It works as [`Locked`] does, with two
/// differences: a wait that times out is refused with 429, and a permit has no [fencing
/// token](Locked::fencing_token).
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
/// For streamed responses, set [`hold_until_body_end`](crate::LockScopeLayer::hold_until_body_end).
/// For several permits, use a [`Locked`] with [`Keys`](crate::Keys::permits) for several permits.
pub type PermitLocked<E> = Locked<E, Permit>;

impl<E: Lockable, M: Mode<E>> Locked<E, M> {
    pub(crate) fn new(source: E, handles: Vec<LockHandle>, locks: RequestLocks) -> Self {
        Self { source, handles, locks, mode: PhantomData }
    }

    /// Returns the extractor with the key.
    pub fn source(&self) -> &E {
        &self.source
    }

    /// Returns the extractor that provided the key. The lock stays held.
    pub fn into_source(self) -> E {
        self.source
    }

    /// Returns the hold's handle. With several holds, the last in name order.
    pub fn handle(&self) -> &LockHandle {
        self.handles.last().expect("at least one")
    }

    /// Returns all handles, in name order: a tuple has several.
    pub fn handles(&self) -> &[LockHandle] {
        &self.handles
    }

    /// The fencing token of this hold, checked by the protected resource. It is higher than the
    /// token of every earlier lock, except in the cases listed in
    /// [`guide::fencing`](lockcore::guide::fencing). Concurrent reads share a token. With several
    /// [`handles`](Self::handles), this is the token of the last. Permits have token 0: see
    /// [`LockHandle::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.handle().fencing_token()
    }

    /// The time until which all holds are certain if no further renewal succeeds. The watchdog
    /// extends it.
    pub fn deadline(&self) -> tokio::time::Instant {
        self.handles.iter().map(LockHandle::deadline).min().expect("at least one")
    }

    /// Whether a hold can no longer be relied on, because it was lost or released.
    pub fn is_lost(&self) -> bool {
        self.handles.iter().any(LockHandle::is_lost)
    }

    /// Completes when a hold is lost. For handlers under
    /// [`OnLost::Continue`](crate::OnLost::Continue): otherwise the handler is dropped at the loss.
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
    /// The errors of [`LockHandle::release`]. With several holds, all are released, and the first
    /// error is returned.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// If this is dropped, a release already started continues. With several holds, the others are
    /// released with the response.
    pub async fn release(&self) -> Result<(), LockError> {
        let mut released = Ok(());
        for handle in self.handles.iter().rev() {
            released = released.and(handle.release().await);
        }
        released.map_err(|error| self.locks.refused(error))
    }

    /// Returns guards on the same holds, for work that continues after the response. A lock is
    /// released when the last guard is dropped.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost or has been released.
    pub fn reenter(&self) -> Result<Vec<LockGuard>, LockError> {
        let guards: Result<_, _> = self.handles.iter().map(LockHandle::reenter).collect();
        guards.map_err(|error| self.locks.refused(error))
    }

    /// Finishes `future` even if the client disconnects, under all locks of the request, including
    /// those from other arguments: see [`RequestLocks::detach`].
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold is lost, before or meanwhile, or if this
    /// hold has been released.
    ///
    /// # Panics
    /// Propagates a panic of `future`; panics outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to its end even if this is dropped.
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
        // For inner handlers and layers that look for the handle.
        parts.extensions.insert(locked.handle().clone());
        Ok(locked)
    }
}

/// Locks by a key in the body. The body is read first, so a slow client holds nothing meanwhile.
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

/// Acquires the locks; the layer keeps them.
pub(crate) async fn lock<E: Lockable, M: Mode<E>>(
    locks: RequestLocks,
    inner: E,
) -> Result<Locked<E, M>, LockError> {
    let handles = locks.lock(M::keys(&inner)).await?;
    Ok(Locked::new(inner, handles, locks))
}

/// Returns `None` for a timed-out wait, a full queue and an early refusal. All other errors reject
/// the request.
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
