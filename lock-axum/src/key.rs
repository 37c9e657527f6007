//! Which extractors know what to lock.

use axum::extract::{MatchedPath, OriginalUri, Path};
use lock_tower::{KeyError, Keys, canonical_path};

use crate::path::by_route;

/// An extractor that knows which lock its request needs.
///
/// Implement it for a type of your own to lock what it has read, from wherever that is:
///
/// ```
/// use axum::extract::FromRequestParts;
/// use http::{StatusCode, request::Parts};
/// use lock_axum::{KeyError, Keys, LockKeySource, Locked};
///
/// struct Wallet { owner: String }
///
/// impl<S: Sync> FromRequestParts<S> for Wallet {
///     type Rejection = (StatusCode, &'static str);
///
///     async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
///         let owner = parts.headers.get("x-user").and_then(|owner| owner.to_str().ok());
///         let owner = owner.ok_or((StatusCode::UNAUTHORIZED, "who are you?"))?;
///         Ok(Self { owner: owner.to_owned() })
///     }
/// }
///
/// impl LockKeySource for Wallet {
///     fn lock_key(&self) -> Result<Keys, KeyError> {
///         Ok(Keys::one(format!("wallet:{}", self.owner)))
///     }
/// }
///
/// async fn withdraw(wallet: Locked<Wallet>) -> String {
///     format!("{}'s turn", wallet.owner)
/// }
/// ```
///
/// Who chooses the key chooses whom to wait for: see [`ExtractKey`](lock_tower::ExtractKey).
pub trait LockKeySource {
    /// The lock, or several, with options of this request's own if it has any.
    ///
    /// # Errors
    /// [`KeyError`] refuses the request, with 400 unless the layer says otherwise.
    fn lock_key(&self) -> Result<Keys, KeyError>;
}

/// The parameters of a route that name a lock: `Locked<Path<T>>`.
///
/// The type's form makes spellings one: a `u64` is the same from `42`, `4%32` and `042`. A `String` is
/// percent-decoded, nothing more.
///
/// ```
/// use lock_axum::{KeyError, Keys, PathKey};
///
/// #[derive(serde::Deserialize)]
/// struct Seat { hall: u32, seat: u32 }
///
/// impl PathKey for Seat {
///     fn lock_key(&self) -> Result<Keys, KeyError> {
///         Ok(Keys::one(format!("hall:{}:seat:{}", self.hall, self.seat)))
///     }
/// }
/// ```
pub trait PathKey {
    /// As [`LockKeySource::lock_key`].
    ///
    /// # Errors
    /// [`KeyError`] refuses the request.
    fn lock_key(&self) -> Result<Keys, KeyError>;
}

impl<T: PathKey> LockKeySource for Path<T> {
    fn lock_key(&self) -> Result<Keys, KeyError> {
        self.0.lock_key()
    }
}

/// The whole path as the client sent it, also inside nested routers, in its [one spelling](canonical_path).
impl LockKeySource for OriginalUri {
    fn lock_key(&self) -> Result<Keys, KeyError> {
        canonical_path(self.path()).map(Keys::one)
    }
}

/// One lock for all requests of a route, whatever its parameters: `:route:/orders/{id}`.
impl LockKeySource for MatchedPath {
    fn lock_key(&self) -> Result<Keys, KeyError> {
        Ok(by_route(self))
    }
}

macro_rules! tuple {
    ($($source:ident $index:tt),+) => {
        /// All their locks, taken in an order that cannot deadlock.
        impl<$($source: LockKeySource),+> LockKeySource for ($($source,)+) {
            fn lock_key(&self) -> Result<Keys, KeyError> {
                let keys = [$(self.$index.lock_key()?),+];
                Ok(keys.into_iter().reduce(Keys::join).expect("a tuple has parts"))
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
