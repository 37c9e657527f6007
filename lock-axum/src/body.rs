//! The extractor that reads the body first, and may find the key in it.

use std::convert::Infallible;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use lock_tower::{KeyError, Keys};

use crate::key::LockKeySource;
use crate::locked::Locked;
use crate::rejection::{LockRejection, LockedBodyRejection, request_locks};

/// Reads the body as `E`, then waits for the lock: however slowly a client sends, it holds nothing meanwhile.
///
/// `K` is a source as in [`Locked`], one that looks at the body too ([`BodyKeySource`]), or [`Payload`].
///
/// ```
/// use axum::{Json, extract::Path};
/// use lock_axum::{KeyError, Keys, LockedBody, Payload, PayloadKey};
///
/// #[derive(serde::Deserialize)]
/// struct Transfer { from: u64, to: u64, cents: u64 }
///
/// impl PayloadKey for Transfer {
///     fn lock_key(&self) -> Result<Keys, KeyError> {
///         Ok(Keys::one(format!("account:{}", self.from)).and(format!("account:{}", self.to)))
///     }
/// }
///
/// async fn transfer(
///     LockedBody { lock, body: Json(transfer) }: LockedBody<Payload, Json<Transfer>>,
/// ) -> String {
///     format!("{} from {} to {} under {}", transfer.cents, transfer.from, transfer.to, lock.fencing_token())
/// }
/// ```
#[derive(Debug)]
pub struct LockedBody<K, E> {
    /// The lock.
    pub lock: Locked<K>,
    /// The body.
    pub body: E,
}

/// An extractor that knows, once the body has been read as `E`, which lock its request needs.
///
/// Every [`LockKeySource`] is one. Implement it for keys, or options, that need both.
pub trait BodyKeySource<E> {
    /// As [`LockKeySource::lock_key`].
    ///
    /// # Errors
    /// [`KeyError`] refuses the request.
    fn lock_key(&self, body: &E) -> Result<Keys, KeyError>;
}

impl<K: LockKeySource, E> BodyKeySource<E> for K {
    fn lock_key(&self, _: &E) -> Result<Keys, KeyError> {
        LockKeySource::lock_key(self)
    }
}

/// A payload that names a lock: `LockedBody<Payload, Json<T>>`.
///
/// The same with `Form<T>` and the feature `form`.
pub trait PayloadKey {
    /// As [`LockKeySource::lock_key`].
    ///
    /// # Errors
    /// [`KeyError`] refuses the request.
    fn lock_key(&self) -> Result<Keys, KeyError>;
}

/// Takes the key from the body alone, where that is a [`PayloadKey`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Payload;

impl<S: Sync> FromRequestParts<S> for Payload {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

#[cfg(feature = "json")]
impl<T: PayloadKey> BodyKeySource<axum::Json<T>> for Payload {
    fn lock_key(&self, body: &axum::Json<T>) -> Result<Keys, KeyError> {
        body.0.lock_key()
    }
}

#[cfg(feature = "form")]
impl<T: PayloadKey> BodyKeySource<axum::Form<T>> for Payload {
    fn lock_key(&self, body: &axum::Form<T>) -> Result<Keys, KeyError> {
        body.0.lock_key()
    }
}

impl<S, K, E> FromRequest<S> for LockedBody<K, E>
where
    S: Send + Sync,
    K: BodyKeySource<E> + FromRequestParts<S> + Send,
    E: FromRequest<S> + Send,
{
    type Rejection = LockedBodyRejection<K::Rejection, E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let source =
            K::from_request_parts(&mut parts, state).await.map_err(LockedBodyRejection::Key)?;
        let locks = request_locks(&parts.extensions).map_err(LockedBodyRejection::Lock)?;
        let request = Request::from_parts(parts, body);
        let body = E::from_request(request, state).await.map_err(LockedBodyRejection::Body)?;

        let refused =
            |error| LockedBodyRejection::Lock(LockRejection::new(error, locks.refusals()));
        let keys = source.lock_key(&body).map_err(|error| refused(error.into()))?;
        let handles = locks.lock(keys).await.map_err(refused)?;
        Ok(Self { lock: Locked::new(source, handles, locks), body })
    }
}
