//! How the extractors refuse.

use std::error::Error;
use std::fmt;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Extensions, StatusCode};
use lock_tower::{LockError, Refusals, RequestLocks};

/// The lock was not had.
///
/// As a response it is what the [`LockScopeLayer`](crate::LockScopeLayer) says, with the typed [`LockError`] in its
/// extensions.
#[derive(Debug, Clone)]
pub struct LockRejection {
    error: LockError,
    refusals: Refusals,
}

impl LockRejection {
    pub(crate) fn new(error: LockError, refusals: &Refusals) -> Self {
        Self { error, refusals: refusals.clone() }
    }

    /// Why.
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.refusals.respond(&self.error).status()
    }

    /// The body of the response.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(self.refusals.respond(&self.error).body()).into_owned()
    }
}

/// The locks of the request, if the layer is there.
pub(crate) fn request_locks(extensions: &Extensions) -> Result<RequestLocks, LockRejection> {
    RequestLocks::of(extensions).map_err(|error| LockRejection::new(error, &Refusals::default()))
}

impl fmt::Display for LockRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for LockRejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl IntoResponse for LockRejection {
    fn into_response(self) -> Response {
        let response = self.refusals.respond(&self.error);
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

/// Why a [`Locked`](crate::Locked) or an [`OwnedLock`](crate::OwnedLock) refuses.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<K> {
    /// The source of the key refuses.
    Key(K),
    /// The lock was not had.
    Lock(LockRejection),
}

/// Why a [`LockedBody`](crate::LockedBody) refuses.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedBodyRejection<K, E> {
    /// The source of the key refuses.
    Key(K),
    /// The body cannot be read.
    Body(E),
    /// The lock was not had.
    Lock(LockRejection),
}

impl<K: IntoResponse> IntoResponse for LockedRejection<K> {
    fn into_response(self) -> Response {
        match self {
            Self::Key(rejection) => rejection.into_response(),
            Self::Lock(rejection) => rejection.into_response(),
        }
    }
}

impl<K: IntoResponse, E: IntoResponse> IntoResponse for LockedBodyRejection<K, E> {
    fn into_response(self) -> Response {
        match self {
            Self::Key(rejection) => rejection.into_response(),
            Self::Body(rejection) => rejection.into_response(),
            Self::Lock(rejection) => rejection.into_response(),
        }
    }
}

impl<K: fmt::Display> fmt::Display for LockedRejection<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(rejection) => rejection.fmt(f),
            Self::Lock(rejection) => rejection.fmt(f),
        }
    }
}

impl<K: fmt::Display, E: fmt::Display> fmt::Display for LockedBodyRejection<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(rejection) => rejection.fmt(f),
            Self::Body(rejection) => rejection.fmt(f),
            Self::Lock(rejection) => rejection.fmt(f),
        }
    }
}

impl<K: Error + 'static> Error for LockedRejection<K> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Key(rejection) => rejection,
            Self::Lock(rejection) => rejection,
        })
    }
}

impl<K: Error + 'static, E: Error + 'static> Error for LockedBodyRejection<K, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Key(rejection) => rejection,
            Self::Body(rejection) => rejection,
            Self::Lock(rejection) => rejection,
        })
    }
}
