//! The names of locks, as extractors give them.

use axum::Extension;
use axum::extract::{MatchedPath, OriginalUri, Path};
use lock_tower::Keys;
use lock_tower::key::canonical_path;
use serde_core::de::DeserializeOwned;

use crate::path::by_route;

/// Names the lock of a request: the parameters of a route, a body, a session.
///
/// [`Path`], `Query`, `Json`, `Form` and [`Extension`] pass on the key of the value in them. A
/// tuple names the locks of all its parts. [`OriginalUri`] is the whole path in its [one
/// spelling](canonical_path). [`MatchedPath`] is one lock for all requests of a route.
///
/// ```
/// use lock_axum::{Keys, Lockable};
///
/// #[derive(serde::Deserialize)]
/// struct Seat { hall: u32, seat: u32 }
///
/// impl Lockable for Seat {
///     fn lock_key(&self) -> Keys {
///         format!("hall:{}:seat:{}", self.hall, self.seat).into()
///     }
/// }
/// ```
///
/// Implement it for an extractor of your own to lock by the values that it has read:
///
/// ```
/// use axum::extract::FromRequestParts;
/// use http::{StatusCode, request::Parts};
/// use lock_axum::{Keys, Lockable, Locked};
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
/// impl Lockable for Wallet {
///     fn lock_key(&self) -> Keys {
///         format!("wallet:{}", self.owner).into()
///     }
/// }
///
/// async fn withdraw(wallet: Locked<Wallet>) -> String {
///     format!("{} withdraws", wallet.owner)
/// }
/// ```
///
/// A number or a string alone names no resource, so it is not lockable. Put it into a struct, such
/// as `struct Order(u64)`, or take [`lock_by`](crate::lock_by).
///
/// A client that chooses the key chooses which requests wait for it: see
/// [`ExtractKey`](lock_tower::ExtractKey).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which lock it needs",
    label = "not `Lockable`",
    note = "implement it: `impl Lockable for {Self} {{ fn lock_key(&self) -> Keys {{ format!(\"order:{{}}\", self.id).into() }} }}`",
    note = "a number or a string names nothing by itself: put it into a struct of yours, such as `struct Order(u64)`",
    note = "without a struct: `.route_layer(lock_by(|Path(id): Path<u64>| format!(\"order:{{id}}\")))`"
)]
pub trait Lockable {
    /// The key of the lock, or several, with options of this request's own if it has any. A name
    /// that cannot be a lock's and [`Keys::refused`] refuse the request: with 400, unless the layer
    /// sets another status.
    fn lock_key(&self) -> Keys;
}

// axum's own bound stands here, too: the compiler then names the missing `Deserialize`, and not
// only the handler that does not fit.
impl<T: Lockable + DeserializeOwned> Lockable for Path<T> {
    fn lock_key(&self) -> Keys {
        self.0.lock_key()
    }
}

impl<T: Lockable> Lockable for Extension<T> {
    fn lock_key(&self) -> Keys {
        self.0.lock_key()
    }
}

#[cfg(feature = "query")]
impl<T: Lockable + DeserializeOwned> Lockable for axum::extract::Query<T> {
    fn lock_key(&self) -> Keys {
        self.0.lock_key()
    }
}

#[cfg(feature = "json")]
impl<T: Lockable + DeserializeOwned> Lockable for axum::Json<T> {
    fn lock_key(&self) -> Keys {
        self.0.lock_key()
    }
}

#[cfg(feature = "form")]
impl<T: Lockable + DeserializeOwned> Lockable for axum::Form<T> {
    fn lock_key(&self) -> Keys {
        self.0.lock_key()
    }
}

/// Names the whole path that the client sent, also inside nested routers, in its [one
/// spelling](canonical_path).
impl Lockable for OriginalUri {
    fn lock_key(&self) -> Keys {
        canonical_path(self.path()).into()
    }
}

/// Names one lock for all requests of a route, with any parameters: `:route:/orders/{id}`.
impl Lockable for MatchedPath {
    fn lock_key(&self) -> Keys {
        by_route(self)
    }
}

macro_rules! tuple {
    ($first:ident $($part:ident $index:tt),+) => {
        /// Names the locks of all parts, which are acquired in an order that cannot deadlock.
        impl<$first: Lockable, $($part: Lockable),+> Lockable for ($first, $($part,)+) {
            fn lock_key(&self) -> Keys {
                self.0.lock_key()$(.join(self.$index.lock_key()))+
            }
        }
    };
}

tuple!(A B 1);
tuple!(A B 1, C 2);
tuple!(A B 1, C 2, D 3);
