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
    granted: Option<(Instant, u64)>,
    outcome: &'static str,
}

impl Journal {
    pub(crate) fn begin() -> Self {
        Self { asked: Instant::now(), granted: None, outcome: "cancelled" }
    }

    /// Of several grants, the first counts.
    pub(crate) fn granted(&mut self, token: u64) {
        self.granted.get_or_insert_with(|| (Instant::now(), token));
    }

    /// The time from the request to the grant.
    pub(crate) fn waited(&self) -> Duration {
        let until = self.granted.map_or_else(Instant::now, |(granted, _)| granted);
        until.saturating_duration_since(self.asked)
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
