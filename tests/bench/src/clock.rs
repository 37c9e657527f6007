//! The machine-wide clock, ns.

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until that time.
pub(crate) fn sleep_until(time: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(time.saturating_sub(now())));
}
