//! `LockedBody`: an extractor that takes the key from the request head, and acquires the lock after
//! it has read the body.

use axum::extract::{FromRequest, FromRequestParts, Request};
use lock_tower::RequestLocks;

use crate::lockable::Lockable;
use crate::locked::{Locked, lock};
use crate::mode::{AsKeys, Mode};
use crate::rejection::LockedBodyRejection;

/// An extractor that reads the body as `E`, then acquires the lock named by `K`. So a slow client
/// does not hold the lock while it sends the body.
///
/// `E` must read the whole body, as `String`, `Bytes`, `Json` and `Form` do. `Multipart`, `Body`
/// and `Request` only wrap it: then the handler reads it under the lock. Read the body in an
/// extractor of your own instead, which implements [`Lockable`], and take it as a
/// [`Locked`](crate::Locked).
///
/// For a key in the body, use [`Locked<Json<T>>`](Locked). For a key that depends on both head and
/// body, write an extractor that reads both and implements [`Lockable`].
///
/// ```
/// use axum::{Json, extract::Path};
/// use lock_axum::{Keys, Lockable, LockedBody};
///
/// #[derive(serde::Deserialize)]
/// struct Account { id: u64 }
///
/// impl Lockable for Account {
///     fn lock_key(&self) -> Keys {
///         format!("account:{}", self.id).into()
///     }
/// }
///
/// async fn deposit(LockedBody { lock, body: Json(cents) }: LockedBody<Path<Account>, Json<u64>>) -> String {
///     format!("{cents} for account {} under token {}", lock.id, lock.fencing_token())
/// }
/// ```
///
/// `M` is the lock mode: by default the mode set in the [`Keys`](crate::Keys), exclusive if none is
/// set. For the other modes, see [`mode`](crate::mode).
#[derive(Debug)]
pub struct LockedBody<K: Lockable, E, M: Mode<K> = AsKeys> {
    /// The lock, and the extractor `K` that named it.
    pub lock: Locked<K, M>,
    /// The body, as extracted by `E`.
    pub body: E,
}

impl<S, K, E, M> FromRequest<S> for LockedBody<K, E, M>
where
    S: Send + Sync,
    K: Lockable + FromRequestParts<S> + Send,
    E: FromRequest<S> + Send,
    M: Mode<K>,
{
    type Rejection = LockedBodyRejection<K::Rejection, E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let key =
            K::from_request_parts(&mut parts, state).await.map_err(LockedBodyRejection::Key)?;
        let locks = RequestLocks::of(&parts.extensions).map_err(LockedBodyRejection::Lock)?;
        let request = Request::from_parts(parts, body);
        let body = E::from_request(request, state).await.map_err(LockedBodyRejection::Body)?;
        let lock = lock(locks, key).await.map_err(LockedBodyRejection::Lock)?;
        Ok(Self { lock, body })
    }
}
