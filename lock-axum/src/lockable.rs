//! `Lockable`: extractors that name the lock of a request.

use axum::Extension;
use axum::extract::{MatchedPath, OriginalUri, Path};
use lock_tower::Keys;
use lock_tower::key::canonical_path;
use serde_core::de::DeserializeOwned;

use crate::path::by_route;

/// A type that names the lock of a request, from values that an extractor has read: route
/// parameters, a body, a session.
///
/// [`Path`], `Query`, `Json`, `Form` and [`Extension`] take the name from the value inside. A tuple
/// locks the names of all its parts. [`OriginalUri`] locks the whole path in [canonical
/// form](canonical_path), so that different spellings of a path are one lock. [`MatchedPath`] is
/// one lock for a whole route.
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
/// Implement it for your own extractor to lock by values it has read:
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
/// A number or a string alone does not identify a resource, so neither is lockable. Put it into a
/// struct, such as `struct Order(u64)`, or use [`lock_by`](crate::lock_by).
///
/// If a client chooses the key, it can make requests of other clients wait. Put the client's
/// identity into such a key, such as `user:7/cart`: see [`ExtractKey`](lock_tower::ExtractKey).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not define a lock key",
    label = "not `Lockable`",
    note = "implement it: `impl Lockable for {Self} {{ fn lock_key(&self) -> Keys {{ format!(\"order:{{}}\", self.id).into() }} }}`",
    note = "a number or a string alone is not a lock key: put it into your own struct, such as \
        `struct Order(u64)`",
    note = "without a struct: `.route_layer(lock_by(|Path(id): Path<u64>| format!(\"order:{{id}}\")))`"
)]
pub trait Lockable {
    /// Returns the key of the lock, or several keys. The methods of [`Keys`] also set options for
    /// this request, such as the maximum wait.
    ///
    /// If a key is not a valid lock name, or if the result is [`Keys::refused`], the request is
    /// rejected with 400, or with the status that the layer sets instead.
    fn lock_key(&self) -> Keys;
}

// Repeats the bound `DeserializeOwned` of axum's own impl, so that the compiler reports a missing
// `Deserialize` and not only the mismatched handler.
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

/// Locks the whole path sent by the client, also inside nested routers, in [canonical
/// form](canonical_path).
impl Lockable for OriginalUri {
    fn lock_key(&self) -> Keys {
        canonical_path(self.path()).into()
    }
}

/// Locks the whole route, whatever the path parameters. The key is like `:route:/orders/{id}`.
impl Lockable for MatchedPath {
    fn lock_key(&self) -> Keys {
        by_route(self)
    }
}

macro_rules! tuple {
    ($first:ident $($part:ident $index:tt),+) => {
        /// Locks the names of all parts, sorted by name, so that requests with the same names
        /// cannot deadlock.
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
