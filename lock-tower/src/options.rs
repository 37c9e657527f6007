//! The options of one acquisition: the layer's for all requests, a key's for its own.

use std::time::Duration;

pub(crate) use lockcore::Wait;
use lockcore::{LockOptions, LockRequest};

/// The longest wait by default: a request has a client that waits with it.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Options of an acquire. One that is not set is left to the next: key, layer, the defaults of the
/// `Locks`.
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

    /// Sets these options on `request`.
    pub(crate) fn apply(self, request: LockRequest) -> LockRequest {
        request.options(self.0)
    }
}
