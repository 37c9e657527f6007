//! What one request's way through the lock looks like from outside: one event at its end.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::LockError;

const UNLOCKED: &str = "unlocked";

/// Times and outcome of one request; told when it is dropped, so that no way out is forgotten.
///
/// The key is in lockcore's own events, which can redact it: the token ties them together.
#[derive(Debug)]
pub(crate) struct Journal {
    asked: Instant,
    /// Known when the wait is over.
    waited: Option<Duration>,
    granted: Option<(Instant, u64)>,
    outcome: &'static str,
}

impl Journal {
    pub(crate) fn begin() -> Self {
        Self { asked: Instant::now(), waited: None, granted: None, outcome: "cancelled" }
    }

    /// Of several grants, the first counts.
    pub(crate) fn granted(&mut self, token: u64) {
        let (granted, _) = *self.granted.get_or_insert_with(|| (Instant::now(), token));
        self.waited.get_or_insert(granted - self.asked);
    }

    /// One of the waits of a request that may have several is over, whatever came of it.
    #[cfg(feature = "http")]
    pub(crate) fn add_wait(&mut self, wait: Duration) {
        self.waited = Some(self.waited.unwrap_or_default() + wait);
    }

    /// The time in which the request has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.unwrap_or_else(|| self.asked.elapsed())
    }

    /// It stays told if that was without the lock.
    pub(crate) fn served(&mut self) {
        if self.outcome != UNLOCKED {
            self.outcome = "served";
        }
    }

    pub(crate) fn refused(&mut self, error: &LockError) {
        self.outcome = error.cause().code();
    }

    /// Served without the lock: the store is away, and the layer was told to fail open.
    pub(crate) fn unlocked(&mut self, error: &LockError) {
        self.outcome = UNLOCKED;
        tracing::warn!(%error, "serving a request without its lock");
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let wait_ms = self.waited().as_secs_f64() * 1e3;
        let hold_ms = self.granted.map(|(granted, _)| granted.elapsed().as_secs_f64() * 1e3);
        let token = self.granted.map(|(_, token)| token);
        tracing::debug!(wait_ms, hold_ms, token, outcome = self.outcome, "lock");
    }
}
