//! Instants that are a given time from now.

use std::time::Duration;

use tokio::time::Instant;

/// Returns the instant `time` from now, or a year from now if the clock cannot represent that
/// instant.
pub(crate) fn later(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 60 * 60))
}
