//! The rejections of the extractors in this crate.

use std::error::Error;
use std::fmt;

use axum::response::{IntoResponse, Response};
use lock_tower::LockError;

/// Why [`Locked`](crate::Locked) or [`OwnedLock`](crate::OwnedLock) rejected a request: the inner
/// extractor failed, or the lock was not acquired. The response is the response of the error
/// inside.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<K> {
    /// The inner extractor, which names the lock, rejected the request.
    Key(K),
    /// The lock was not acquired, for example because the wait has timed out.
    Lock(LockError),
}

/// Why [`LockedBody`](crate::LockedBody) rejected a request: an inner extractor failed, or the lock
/// was not acquired. The response is the response of the error inside.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedBodyRejection<K, E> {
    /// The extractor `K`, which names the lock, rejected the request.
    Key(K),
    /// The extractor `E` could not read the body.
    Body(E),
    /// The lock was not acquired, for example because the wait has timed out.
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

// The source is the source of the error inside: an error chain would repeat the text of that error.
impl<K: Error + 'static> Error for LockedRejection<K> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(rejection) => rejection.source(),
            Self::Lock(rejection) => rejection.source(),
        }
    }
}

impl<K: Error + 'static, E: Error + 'static> Error for LockedBodyRejection<K, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(rejection) => rejection.source(),
            Self::Body(rejection) => rejection.source(),
            Self::Lock(rejection) => rejection.source(),
        }
    }
}
