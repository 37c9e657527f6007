//! The error of a store.

use std::fmt;
use std::sync::Arc;

/// The reason why a store did not do a step. Its text is for logs, not for clients.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: Arc<str>,
}

/// The kinds of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot answer now, or has no room: the same request may succeed later.
    Unavailable,
    /// What the store has is no record of this version: it is of another type or a newer version,
    /// cut, or too large. It stays as it is.
    Malformed,
}

impl StoreError {
    /// An error of a store that cannot answer now.
    pub fn unavailable(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Unavailable, detail: detail.to_string().into() }
    }

    /// An error of a record that cannot be read.
    pub fn malformed(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Malformed, detail: detail.to_string().into() }
    }

    /// The kind.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StoreErrorKind::Unavailable => write!(f, "the store cannot answer: {}", self.detail),
            StoreErrorKind::Malformed => write!(f, "the record cannot be read: {}", self.detail),
        }
    }
}

impl std::error::Error for StoreError {}
