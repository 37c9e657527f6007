//! `Limits`: when a quorum acquisition has to end.

use std::time::Duration;

use proto::Mode;
use tokio::time::Instant;

use crate::node::{SILENCE, later};
use crate::quorum::context::AcquireContext;

pub(super) struct Limits {
    pub(super) began: Instant,
    /// When the acquisition has to end: after the caller's wait limit, or after the request timeout
    /// if the request does not wait. `None` without a limit.
    pub(super) end: Option<Instant>,
    /// How long a request that is not queued waits for enough reachable primaries.
    pub(super) store_wait: Duration,
    /// How long a request without a limit waits for primaries.
    silence: Duration,
    leaves_in_outage: bool,
}

impl Limits {
    pub(super) fn new(context: &AcquireContext) -> Self {
        let AcquireContext { primaries, request, local, .. } = context;
        let (began, request_timeout) = (Instant::now(), primaries.terms.request_timeout);
        let wait = match request.mode {
            Mode::Try => Some(request_timeout),
            Mode::Wait => request.options.wait,
        };
        Self {
            began,
            end: wait.map(|wait| later(began, wait)),
            store_wait: local.store_wait.unwrap_or(request_timeout),
            silence: request.options.lease.max(SILENCE),
            leaves_in_outage: local.leaves_in_outage,
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns when a wait for primaries that begins at `from` has to end.
    pub(super) fn of_wait(&self, from: Instant) -> Instant {
        self.end.unwrap_or_else(|| later(from, self.silence))
    }

    /// Returns when the acquisition ends if too few primaries for a guard can be used: at the end
    /// of `store_wait` after `since`, or later if the request was queued (`has_queued`). `from` is
    /// the begin of this wait of the request.
    pub(super) fn of_outage(&self, from: Instant, since: Instant, has_queued: bool) -> Instant {
        let end = self.of_wait(from);
        if has_queued && !self.leaves_in_outage {
            return end;
        }
        end.min(later(since, self.store_wait))
    }
}
