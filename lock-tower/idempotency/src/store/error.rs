//! Store errors.

use std::fmt;
use std::sync::Arc;

/// The error of a store operation. The text is for logs, not for clients.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: Arc<str>,
}

/// The kind of a [`StoreError`], which determines how the request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store is unavailable or full. The same request may succeed later.
    Unavailable,
    /// The stored value cannot be read as a record, because it has another type, is from a newer
    /// version, truncated, or too large. It stays unchanged.
    Malformed,
}

impl StoreError {
    /// Creates an error for a store that is currently unavailable. `detail` says why, for logs.
    pub fn unavailable(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Unavailable, detail: detail.to_string().into() }
    }

    /// Creates an error for an unreadable record. `detail` says what is wrong, for logs.
    pub fn malformed(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Malformed, detail: detail.to_string().into() }
    }

    /// Returns the kind of the error, which determines how the request is refused.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StoreErrorKind::Unavailable => write!(f, "the store is unavailable: {}", self.detail),
            StoreErrorKind::Malformed => write!(f, "the record is malformed: {}", self.detail),
        }
    }
}

impl std::error::Error for StoreError {}
