//! Store errors.

use std::fmt;
use std::sync::Arc;

/// Why a store operation failed. The text is for logs, not for clients.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: Arc<str>,
}

/// The kinds of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store is unavailable or full: the same request may succeed later.
    Unavailable,
    /// The stored value is not a record of this version: of another type, from a newer version,
    /// truncated, or too large. It is left unchanged.
    Malformed,
}

impl StoreError {
    /// Creates an error for a store that is currently unavailable.
    pub fn unavailable(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Unavailable, detail: detail.to_string().into() }
    }

    /// Creates an error for an unreadable record.
    pub fn malformed(detail: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::Malformed, detail: detail.to_string().into() }
    }

    /// Returns the kind.
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
