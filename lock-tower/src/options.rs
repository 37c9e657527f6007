//! The options of an acquisition, set by the layer for all requests, or with a key for a single
//! request.

use std::time::Duration;

pub(crate) use lockcore::Wait;
use lockcore::{LockOptions, LockRequest};

/// The maximum time that a request waits for its locks if neither an option nor the `Locks` sets
/// the wait. Not unlimited, because a client waits for the response.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Returns the maximum wait of `request`, or [`DEFAULT_WAIT`] if unset.
pub(crate) fn wait_of(request: &LockRequest) -> Wait {
    request.get_wait().unwrap_or(Wait::AtMost(DEFAULT_WAIT))
}

/// The options of an acquisition, such as wait and lease. An unset option is taken from the next
/// source: first the key, then the layer, then the defaults of the `Locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Options(pub(crate) LockOptions);

impl Options {
    /// Returns these options, with each unset option taken from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }

    /// Sets these options on `request`.
    pub(crate) fn apply(self, request: LockRequest) -> LockRequest {
        request.options(self.0)
    }
}
