//! The log event of a request that needed a lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::refusal::LockError;

/// The outcome in the log event of a request that is served without its lock, because the layer is
/// set to `fail_open` and the store is unavailable.
const UNLOCKED: &str = "unlocked";

/// The data of the log event for a request that needs a lock: times, position, fencing token and
/// outcome. Dropping this value emits the event, so that a dropped request is logged, too.
///
/// The event does not contain the key: lockcore's own events do, and can redact it. The fencing
/// token in both kinds of events connects them.
#[derive(Debug)]
pub(crate) struct RequestLog {
    /// When the request first needed a lock. The first wait is measured from this time.
    asked: Instant,
    /// The sum of all waits that have ended; `None` until a wait is recorded.
    waited: Option<Duration>,
    /// The time and the fencing token of the first grant; `None` before. The event's `hold_ms` is
    /// measured from this time.
    granted: Option<(Instant, u64)>,
    /// The number of waiters ahead when the request was queued; for several locks, the largest.
    /// `None` if the request was never queued.
    position: Option<u64>,
    /// How the request ended, as the event reports it: `cancelled` until the request is served or
    /// refused.
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

    /// Records that a lock with this fencing token was granted. Only the first grant of a request
    /// is recorded.
    pub(crate) fn granted(&mut self, token: u64) {
        let (granted, _) = *self.granted.get_or_insert_with(|| (Instant::now(), token));
        self.waited.get_or_insert(granted - self.asked);
    }

    /// Records the number of waiters ahead when the request was queued. For several locks, the
    /// largest number is kept.
    pub(crate) fn queued(&mut self, position: Option<u64>) {
        self.position = self.position.max(position);
    }

    /// Returns the number of waiters ahead when the request was queued; `None` if it was not
    /// queued.
    pub(crate) fn position(&self) -> Option<u64> {
        self.position
    }

    /// Adds the duration of a wait that has ended: with the lock, with a refusal, or because the
    /// handler gave it up. A request may wait several times.
    pub(crate) fn add_wait(&mut self, wait: Duration) {
        self.waited = Some(self.waited.unwrap_or_default() + wait);
    }

    /// Returns how long the request has waited for locks in total. If no wait is recorded,
    /// returns the time since the request first needed a lock.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.unwrap_or_else(|| self.asked.elapsed())
    }

    /// Records the outcome: `served` if `refusal` is `None`, and otherwise the code of the error's
    /// cause. The outcome of a request served without its lock stays `unlocked`.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        if self.outcome != UNLOCKED {
            self.outcome = refusal.map_or("served", |error| error.cause().code());
        }
    }

    /// Records that the request is served without its lock, under `fail_open` in an outage, and
    /// logs a warning with the `error` of the store.
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
