//! The error of everything that a handler may call, as a response.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lock_tower::{Cause, KeyError, LockErrorKind, Refusals, RequestLocks};

/// Why a request is not served under its lock, or no longer; `?` makes it the answer of a handler.
///
/// ```
/// # use axum::extract::Path;
/// # use lock_axum::{Keys, LockError, Lockable, Locked};
/// # #[derive(serde::Deserialize)]
/// # struct Order { id: u64 }
/// # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
/// # async fn charge() {}
/// # async fn mail() {}
/// async fn pay(order: Locked<Path<Order>>) -> Result<&'static str, LockError> {
///     order.detach(charge()).await?;
///     order.release().await?; // the next request may have the lock
///     mail().await;
///     Ok("paid")
/// }
/// ```
///
/// As a response it is what the [`LockScopeLayer`](crate::LockScopeLayer) or
/// [`HttpLockLayer`](crate::HttpLockLayer) outside says, with the [typed
/// error](lock_tower::LockError) in its extensions; without a layer, problem+json.
#[derive(Debug, Clone)]
pub struct LockError {
    error: lock_tower::LockError,
    /// Those of the request, where they are known: their layer's refusals render the error.
    locks: Option<RequestLocks>,
}

impl LockError {
    pub(crate) fn new(error: impl Into<lock_tower::LockError>, locks: &RequestLocks) -> Self {
        Self { error: error.into(), locks: Some(locks.clone()) }
    }

    /// What a client can distinguish.
    pub fn cause(&self) -> Cause {
        self.error.cause()
    }

    /// The kind, as lockcore has it.
    pub fn kind(&self) -> LockErrorKind {
        self.error.kind()
    }

    /// How long to wait before trying again, as a hint. `None` if trying again is of no use.
    pub fn retry_after(&self) -> Option<Duration> {
        self.error.retry_after()
    }

    /// The status that the layer has for the cause. Without a layer, that of
    /// [`Refusals`](crate::Refusals).
    pub fn status(&self) -> StatusCode {
        let refusals = self.locks.as_ref().map(|locks| locks.refusals().status_of(self.cause()));
        refusals.unwrap_or_else(|| Refusals::new().status_of(self.cause()))
    }

    /// The error in the extensions of the response.
    pub fn get_ref(&self) -> &lock_tower::LockError {
        &self.error
    }
}

impl From<lock_tower::LockError> for LockError {
    fn from(error: lock_tower::LockError) -> Self {
        Self { error, locks: None }
    }
}

impl From<lockcore::LockError> for LockError {
    fn from(error: lockcore::LockError) -> Self {
        lock_tower::LockError::from(error).into()
    }
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        lock_tower::LockError::from(error).into()
    }
}

impl From<lockcore::KeyError> for LockError {
    fn from(error: lockcore::KeyError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl From<lockcore::ConfigError> for LockError {
    fn from(error: lockcore::ConfigError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl From<lockcore::DowngradeError> for LockError {
    /// Drops the guard, which releases the hold.
    fn from(error: lockcore::DowngradeError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let response = match &self.locks {
            Some(locks) => locks.refusals().respond(&self.error),
            None => self.error.to_response(),
        };
        // As axum logs its own rejections, so that one filter shows all.
        tracing::event!(
            target: "axum::rejection",
            tracing::Level::TRACE,
            status = response.status().as_u16(),
            body = %String::from_utf8_lossy(response.body()),
            rejection_type = std::any::type_name::<Self>(),
            "rejecting request",
        );
        response.map(Body::from)
    }
}
