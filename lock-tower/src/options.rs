//! What one acquisition may be told: by the layer for all requests, by a key for its own.

use std::time::Duration;

use lockcore::LockRequest;

/// The longest wait unless something else is said: a request has a client that waits with it.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// lockcore's own default, needed where a shorter `max_hold` asks for a shorter lease.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// What is not set is left to the next: key, layer, the defaults of the `Locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Options {
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    pub(crate) queue_limit: Option<u32>,
    pub(crate) max_hold: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    AtMost(Duration),
    Forever,
}

impl Options {
    /// These, and where they are silent, `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            lease: self.lease.or(other.lease),
            wait: self.wait.or(other.wait),
            queue_limit: self.queue_limit.or(other.queue_limit),
            max_hold: self.max_hold.or(other.max_hold),
        }
    }

    pub(crate) fn wait(self) -> Wait {
        self.wait.unwrap_or(Wait::AtMost(DEFAULT_WAIT))
    }

    /// Everything but the wait, which several keys share.
    pub(crate) fn apply(self, mut request: LockRequest) -> LockRequest {
        let shortened = self.max_hold.map(|max_hold| max_hold.min(DEFAULT_LEASE));
        if let Some(lease) = self.lease.or(shortened) {
            request = request.lease(lease);
        }
        if let Some(queue_limit) = self.queue_limit {
            request = request.queue_limit(queue_limit);
        }
        if let Some(max_hold) = self.max_hold {
            request = request.max_hold(max_hold);
        }
        request
    }
}
