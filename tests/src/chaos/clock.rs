//! The clocks: the machine-wide monotonic clock, and the server's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The most time between two readings of clocks, in µs. With more, the readings were interrupted,
/// and are repeated.
const CLOSE_US: i64 = 50;

/// Returns the machine's monotonic clock in microseconds: the same in all processes.
pub(super) fn now_us() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// Returns an instant in microseconds of the machine's monotonic clock, never later than the true
/// time.
pub(super) fn at_us(instant: Instant) -> i64 {
    let (before, now) = read_with(Instant::now);
    match instant.checked_duration_since(now) {
        Some(ahead) => before + micros(ahead),
        None => before - micros(now - instant),
    }
}

/// Returns how far the wall clock (on one machine also the server's clock) is ahead of the
/// monotonic clock, in µs.
pub(super) fn wall_ahead_us() -> i64 {
    let (before, wall) = read_with(SystemTime::now);
    micros(wall.duration_since(UNIX_EPOCH).expect("a clock after 1970")) - before
}

/// Reads another clock, with the monotonic clock just before it.
fn read_with<T>(other: impl Fn() -> T) -> (i64, T) {
    loop {
        let before = now_us();
        let reading = other();
        if now_us() - before <= CLOSE_US {
            return (before, reading);
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("less than an age")
}
