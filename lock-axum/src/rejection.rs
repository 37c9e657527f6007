//! The rejections of extractors, by the lock or by the inner extractor.

use std::error::Error;
use std::fmt;

use axum::response::{IntoResponse, Response};
use lock_tower::LockError;

/// Rejection from [`Locked`](crate::Locked) or [`OwnedLock`](crate::OwnedLock).
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<K> {
    /// The inner extractor rejected the request.
    Key(K),
    /// The lock was not acquired.
    Lock(LockError),
}

/// Rejection from [`LockedBody`](crate::LockedBody).
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedBodyRejection<K, E> {
    /// The inner extractor rejected the request.
    Key(K),
    /// The body cannot be read.
    Body(E),
    /// The lock was not acquired.
    Lock(LockError),
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
