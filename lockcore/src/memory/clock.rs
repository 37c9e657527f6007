//! The server's time, from tokio's clock: it can be paused, and never runs backwards.

use std::time::SystemTime;

use tokio::time::Instant;

/// The wall clock once, and from then on what has passed since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    started_us: u64,
}

impl Default for Clock {
    fn default() -> Self {
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { started: Instant::now(), started_us: since_epoch.as_micros() as u64 }
    }
}

impl Clock {
    /// µs since the epoch.
    pub(super) fn now_us(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.started);
        self.started_us + passed.as_micros() as u64
    }
}
