//! The log event of one request, at its end.

use std::time::Duration;

use tokio::time::Instant;

use crate::refusal::LockError;

const UNLOCKED: &str = "unlocked";

/// Times and outcome of one request. Dropping the log emits the event, so that every outcome is
/// logged.
///
/// The key is in lockcore's own events, which can redact it. The token connects them.
#[derive(Debug)]
pub(crate) struct RequestLog {
    asked: Instant,
    /// Known when the wait is over.
    waited: Option<Duration>,
    granted: Option<(Instant, u64)>,
    /// The longest queue that it was put behind.
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

    /// Notes a grant. Of several grants, the first counts.
    pub(crate) fn granted(&mut self, token: u64) {
        let (granted, _) = *self.granted.get_or_insert_with(|| (Instant::now(), token));
        self.waited.get_or_insert(granted - self.asked);
    }

    /// Notes the number of waiters that were ahead when the request was queued. Of several locks,
    /// the longest queue counts.
    pub(crate) fn queued(&mut self, position: Option<u64>) {
        self.position = self.position.max(position);
    }

    /// The number of waiters that were ahead; `None` if the request was not queued.
    pub(crate) fn position(&self) -> Option<u64> {
        self.position
    }

    /// Adds one wait, of several that a request may have, with any outcome.
    pub(crate) fn add_wait(&mut self, wait: Duration) {
        self.waited = Some(self.waited.unwrap_or_default() + wait);
    }

    /// The time that the request has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.unwrap_or_else(|| self.asked.elapsed())
    }

    /// Notes that the request was served, or refused for this error.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        if self.outcome != UNLOCKED {
            self.outcome = refusal.map_or("served", |error| error.cause().code());
        }
    }

    /// Notes that the request is served without the lock: the store is unavailable, and the layer
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
