//! The extractor: a lock that lasts until the response.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;
use lock_tower::{Cause, KeyError, Keys, LockError, LockHandle, RequestLocks};
use lockcore::{FencingToken, LockGuard};

use crate::key::LockKeySource;
use crate::rejection::{LockRejection, LockedRejection, request_locks};

/// Runs the handler under the lock that `K` names, and is what the handler sees of it.
///
/// The [`LockScopeLayer`](crate::LockScopeLayer) keeps the lock, until the response or the end of its body; dropping
/// this changes nothing. It derefs to `K`.
///
/// ```
/// # use axum::extract::Path;
/// # use lock_axum::{KeyError, Keys, Locked, PathKey};
/// # #[derive(serde::Deserialize)]
/// # struct Order { id: u64 }
/// # impl PathKey for Order {
/// #     fn lock_key(&self) -> Result<Keys, KeyError> { Ok(Keys::one(format!("order:{}", self.id))) }
/// # }
/// # async fn execute(_sql: &str, _parameters: &[u64]) -> u64 { 1 }
/// async fn pay(order: Locked<Path<Order>>) -> String {
///     let sql = "UPDATE orders SET paid = true, token = $1 WHERE id = $2 AND token < $1";
///     let rows = execute(sql, &[order.fencing_token().get(), order.id]).await;
///     format!("{rows} paid")
/// }
/// ```
///
/// `Option<Locked<K>>` waits just as long; if the lock stays busy or its queue is full, it is `None`.
pub struct Locked<K> {
    source: K,
    /// In the order in which they were taken; never empty.
    handles: Vec<LockHandle>,
    /// All of the request.
    locks: RequestLocks,
}

impl<K> Locked<K> {
    pub(crate) fn new(source: K, handles: Vec<LockHandle>, locks: RequestLocks) -> Self {
        Self { source, handles, locks }
    }

    /// What the key was read from.
    pub fn source(&self) -> &K {
        &self.source
    }

    /// What the key was read from. The lock stays.
    pub fn into_source(self) -> K {
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

    /// The number that proves this hold to the resource it protects; higher than that of every earlier hold. Each of
    /// several [`handles`](Self::handles) has its own; this is the last one's.
    pub fn fencing_token(&self) -> FencingToken {
        self.handle().fencing_token()
    }

    /// Until when all holds are certain if no further renewal succeeds. The watchdog moves it forward.
    pub fn deadline(&self) -> tokio::time::Instant {
        self.handles.iter().map(LockHandle::deadline).min().expect("there is at least one")
    }

    /// Whether a hold can no longer be relied on: it was lost, or given back.
    pub fn is_lost(&self) -> bool {
        self.handles.iter().any(LockHandle::is_lost)
    }

    /// Completes when a hold is lost. Only of use under [`OnLost::Continue`](crate::OnLost::Continue): otherwise the
    /// handler is dropped then.
    ///
    /// # Cancel safety
    /// Can be dropped and called again at will.
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

    /// Gives the lock back before the response, and tells whether the hold lasted until then.
    ///
    /// # Errors
    /// As [`LockHandle::release`]; of several, all are given back and the first error is told.
    ///
    /// # Cancel safety
    /// The release goes on if this is dropped once it was polled.
    pub async fn release(&self) -> Result<(), LockError> {
        let mut released = Ok(());
        for handle in self.handles.iter().rev() {
            released = released.and(handle.release().await);
        }
        released
    }

    /// Guards on the same holds, for work that goes on after the response: a lock is given back with the last guard.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost or has been given back.
    pub fn reenter(&self) -> Result<Vec<LockGuard>, LockError> {
        self.handles.iter().map(LockHandle::reenter).collect()
    }

    /// Finishes `future` even if the client goes away, with all locks that the request has, also those of other
    /// arguments: see [`RequestLocks::detach`].
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost, before or meanwhile, or if this one has been given back.
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
        self.locks.detach(future).await
    }
}

impl<K> Deref for Locked<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.source
    }
}

impl<S, K> FromRequestParts<S> for Locked<K>
where
    S: Send + Sync,
    K: LockKeySource + FromRequestParts<S> + Send,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let source = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let keys = source.lock_key();
        let (handles, locks) = lock(parts, keys).await.map_err(LockedRejection::Lock)?;
        Ok(Self::new(source, handles, locks))
    }
}

impl<S, K> OptionalFromRequestParts<S> for Locked<K>
where
    S: Send + Sync,
    K: LockKeySource + FromRequestParts<S> + Send,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        match <Self as FromRequestParts<S>>::from_request_parts(parts, state).await {
            Ok(locked) => Ok(Some(locked)),
            Err(LockedRejection::Lock(refused))
                if matches!(refused.error().cause(), Cause::Busy | Cause::QueueFull) =>
            {
                Ok(None)
            }
            Err(rejection) => Err(rejection),
        }
    }
}

async fn lock(
    parts: &mut Parts,
    keys: Result<Keys, KeyError>,
) -> Result<(Vec<LockHandle>, RequestLocks), LockRejection> {
    let locks = request_locks(&parts.extensions)?;
    let refused = |error| LockRejection::new(error, locks.refusals());
    let handles = match keys {
        Ok(keys) => locks.lock(keys).await.map_err(refused)?,
        Err(error) => return Err(refused(error.into())),
    };
    // What asks for the same key further on shares the hold.
    parts.extensions.insert(handles.last().expect("there is at least one").clone());
    Ok((handles, locks))
}

impl<K: fmt::Debug> fmt::Debug for Locked<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked")
            .field("source", &self.source)
            .field("handles", &self.handles)
            .finish()
    }
}
