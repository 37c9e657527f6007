//! The clock of an in-memory store, based on tokio's clock, which tests can pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::time::Instant;

/// A clock that shows the wall-clock time at its creation plus the time since then.
#[derive(Debug)]
pub(super) struct StoreClock {
    started: Instant,
    started_us: AtomicU64,
}

impl Default for StoreClock {
    fn default() -> Self {
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { started: Instant::now(), started_us: (since_epoch.as_micros() as u64).into() }
    }
}

impl StoreClock {
    /// Returns the current time, in µs since the epoch.
    pub(super) fn now_us(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.started);
        self.started_us.load(Ordering::Relaxed) + passed.as_micros() as u64
    }

    #[cfg(test)]
    pub(super) fn set_forward(&self, by: std::time::Duration) {
        self.started_us.fetch_add(by.as_micros() as u64, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn set_back(&self, by: std::time::Duration) {
        self.started_us.fetch_sub(by.as_micros() as u64, Ordering::Relaxed);
    }
}
