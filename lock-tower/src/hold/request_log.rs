//! The log event for a finished request.

use std::time::Duration;

use tokio::time::Instant;

use crate::refusal::LockError;

const UNLOCKED: &str = "unlocked";

/// Times and outcome of a single request. Dropping the log emits the event, so that every outcome
/// is logged.
///
/// The key is in lockcore's own events, which can redact it. The token connects the events.
#[derive(Debug)]
pub(crate) struct RequestLog {
    asked: Instant,
    /// Set when the wait is over.
    waited: Option<Duration>,
    granted: Option<(Instant, u64)>,
    /// The longest queue ahead when the request was queued.
    position: Option<u64>,
    outcome: &'static str,
}

impl RequestLog {
    pub(crate) fn begin() -> Self {
        Self {
            asked: Instant::now(),
            waited: None,
            granted: None,
            position: None,
            outcome: "cancelled",
        }
    }

    /// Records a grant. Of several grants, the first counts.
    pub(crate) fn granted(&mut self, token: u64) {
        let (granted, _) = *self.granted.get_or_insert_with(|| (Instant::now(), token));
        self.waited.get_or_insert(granted - self.asked);
    }

    /// Records the number of waiters ahead when the request was queued. For several locks, the
    /// longest queue counts.
    pub(crate) fn queued(&mut self, position: Option<u64>) {
        self.position = self.position.max(position);
    }

    /// Returns the number of waiters ahead; `None` if the request was not queued.
    pub(crate) fn position(&self) -> Option<u64> {
        self.position
    }

    /// Adds a wait with any outcome; a request may have several.
    pub(crate) fn add_wait(&mut self, wait: Duration) {
        self.waited = Some(self.waited.unwrap_or_default() + wait);
    }

    /// Returns how long the request has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.unwrap_or_else(|| self.asked.elapsed())
    }

    /// Records that the request was served, or refused with this error.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        if self.outcome != UNLOCKED {
            self.outcome = refusal.map_or("served", |error| error.cause().code());
        }
    }

    /// Records that the request is served without the lock: the store is unavailable, and the layer
    /// fails open.
    pub(crate) fn unlocked(&mut self, error: &LockError) {
        self.outcome = UNLOCKED;
        tracing::warn!(%error, "serving a request without its lock");
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let wait_ms = self.waited().as_secs_f64() * 1e3;
        let hold_ms = self.granted.map(|(granted, _)| granted.elapsed().as_secs_f64() * 1e3);
        let token = self.granted.map(|(_, token)| token);
        let Self { position, outcome, .. } = self;
        tracing::debug!(wait_ms, hold_ms, position, token, outcome, "lock");
    }
}
