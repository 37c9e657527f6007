//! The error of everything that a handler may call, as a response.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lock_tower::{Cause, KeyError, LockErrorKind, Refusals};

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
///     order.release().await?; // the next may come
///     mail().await;
///     Ok("paid")
/// }
/// ```
///
/// As a response it is what the [`LockScopeLayer`](crate::LockScopeLayer) or [`HttpLockLayer`](crate::HttpLockLayer)
/// outside says, with the [typed error](lock_tower::LockError) in its extensions; without a layer, problem+json.
#[derive(Debug, Clone)]
pub struct LockError(lock_tower::LockError);

impl LockError {
    /// What a client can tell apart.
    pub fn cause(&self) -> Cause {
        self.0.cause()
    }

    /// The kind, as lockcore has it.
    pub fn kind(&self) -> LockErrorKind {
        self.0.kind()
    }

    /// How long to wait before trying again, as a hint; `None` when trying again is no use.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// The status of the response, unless the layer says otherwise.
    pub fn status(&self) -> StatusCode {
        Refusals::new().status_of(self.cause())
    }

    /// The error that rides in the extensions of the response.
    pub fn get_ref(&self) -> &lock_tower::LockError {
        &self.0
    }
}

impl From<lock_tower::LockError> for LockError {
    fn from(error: lock_tower::LockError) -> Self {
        Self(error)
    }
}

impl From<lockcore::LockError> for LockError {
    fn from(error: lockcore::LockError) -> Self {
        Self(error.into())
    }
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let response = self.0.to_response();
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
