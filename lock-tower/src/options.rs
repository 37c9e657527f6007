//! Acquisition options: set by the layer for all requests, or by a key for a single request.

use std::time::Duration;

pub(crate) use lockcore::Wait;
use lockcore::{LockOptions, LockRequest};

/// The default maximum wait: every request has a waiting client.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Acquisition options. Unset options come from the next source: key, layer, `Locks` defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Options(pub(crate) LockOptions);

impl Options {
    /// Fills the unset options from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }

    pub(crate) fn wait(self) -> Wait {
        self.0.get_wait().unwrap_or(Wait::AtMost(DEFAULT_WAIT))
    }

    /// Applies these options to `request`.
    pub(crate) fn apply(self, request: LockRequest) -> LockRequest {
        request.options(self.0)
    }
}
