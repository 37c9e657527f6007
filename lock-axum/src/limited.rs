//! `Limited`: extractors that limit how many requests hold a permit at a time.

use axum::Extension;
use axum::extract::Path;
use serde_core::de::DeserializeOwned;

use crate::lockable::Lockable;

/// A [`Lockable`] type that also limits how many requests may hold a permit for the lock name at a
/// time. [`PermitLocked`](crate::PermitLocked) acquires one permit, up to this limit.
///
/// [`Path`], `Query`, `Json`, `Form` and [`Extension`] take the limit from the value inside. Your
/// own extractor can read it from anywhere: a tenant's plan, a session, the state.
///
/// ```
/// use lock_axum::{Keys, Limited, Lockable};
///
/// #[derive(Clone)]
/// struct Tenant { id: u64, is_paying: bool } // set by authentication, as a request extension
///
/// impl Lockable for Tenant {
///     fn lock_key(&self) -> Keys {
///         format!("tenant:{}", self.id).into()
///     }
/// }
///
/// impl Limited for Tenant {
///     fn permit_limit(&self) -> u32 {
///         if self.is_paying { 20 } else { 2 }
///     }
/// }
/// ```
///
/// A request is granted a permit if, with this permit, no more permits are in use than the
/// request's own limit allows. So all requests for a name should have the same limit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not define a permit limit",
    label = "not `Limited`",
    note = "implement it: `impl Limited for {Self} {{ fn permit_limit(&self) -> u32 {{ 10 }} }}`"
)]
pub trait Limited: Lockable {
    /// Returns the maximum number of permits for the lock name that may be in use at a time, from 1
    /// to 2^30 - 1. Any other value rejects the request with 500, and the reason is logged.
    fn permit_limit(&self) -> u32;
}

impl<T: Limited + DeserializeOwned> Limited for Path<T> {
    fn permit_limit(&self) -> u32 {
        self.0.permit_limit()
    }
}

impl<T: Limited> Limited for Extension<T> {
    fn permit_limit(&self) -> u32 {
        self.0.permit_limit()
    }
}

#[cfg(feature = "query")]
impl<T: Limited + DeserializeOwned> Limited for axum::extract::Query<T> {
    fn permit_limit(&self) -> u32 {
        self.0.permit_limit()
    }
}

#[cfg(feature = "json")]
impl<T: Limited + DeserializeOwned> Limited for axum::Json<T> {
    fn permit_limit(&self) -> u32 {
        self.0.permit_limit()
    }
}

#[cfg(feature = "form")]
impl<T: Limited + DeserializeOwned> Limited for axum::Form<T> {
    fn permit_limit(&self) -> u32 {
        self.0.permit_limit()
    }
}
