//! A node's clock: tokio's clock, so that tests can pause it, plus the time for which the machine
//! was suspended. Tokio's clock does not count suspensions.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::node::Moment;
use tokio::time::{Instant, sleep_until};

/// The duration that is added instead of a longer one if an instant would overflow: thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Returns `at` plus `by`, or on overflow an instant thirty years after `at`, or `at` if that
/// overflows, too.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).or_else(|| at.checked_add(FAR)).unwrap_or(at)
}

/// Waits until this instant, or forever if it is `None`. The first poll creates the timer.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// Total time for which the machine was suspended since the clock was created, in µs, as last
    /// measured by `refreshed_now`.
    suspended: AtomicU64,
    boot: boot::BootClock,
    /// For tests: a simulated suspension that the next call of `refreshed_now` adds, in µs.
    #[cfg(test)]
    unseen: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            suspended: AtomicU64::new(0),
            boot: boot::BootClock::new(),
            #[cfg(test)]
            unseen: AtomicU64::new(0),
        }
    }

    /// Returns the current moment without a check for suspensions. After an unnoticed suspension
    /// the moment is too early, so a lease counted from it ends early rather than late.
    pub(crate) fn now(&self) -> Moment {
        let passed = Instant::now().saturating_duration_since(self.began);
        let suspended = Duration::from_micros(self.suspended.load(Ordering::Relaxed));
        Moment::default() + (passed + suspended)
    }

    /// Checks whether the machine was suspended, and returns the current moment. Every decision
    /// whether something has expired uses this.
    pub(crate) fn refreshed_now(&self) -> Moment {
        self.suspended.fetch_max(self.boot.ahead_us(), Ordering::Relaxed);
        #[cfg(test)]
        self.suspended.fetch_add(self.unseen.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.now()
    }

    /// Converts a moment to an instant of tokio's clock, for timers. If the machine is suspended
    /// before then, the timer fires too late, because tokio's clock stops meanwhile.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        let suspended = Duration::from_micros(self.suspended.load(Ordering::Relaxed));
        self.began + moment.before(suspended).since(Moment::default()).min(FAR)
    }

    /// For tests: simulates a suspension, which the next call of `refreshed_now` notices.
    #[cfg(test)]
    pub(crate) fn suspend(&self, time: Duration) {
        self.unseen.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot {
    use rustix::time::{ClockId, clock_gettime};

    /// The times of two clocks when this was created. `CLOCK_MONOTONIC` stops while the machine is
    /// suspended, and `CLOCK_BOOTTIME` continues, so the growing difference shows suspensions.
    #[derive(Debug)]
    pub(super) struct BootClock {
        monotonic: i64,
        boot: i64,
    }

    /// Returns the time of this clock, in ns.
    fn time(of: ClockId) -> i64 {
        let time = clock_gettime(of);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    impl BootClock {
        pub(super) fn new() -> Self {
            let monotonic = time(ClockId::Monotonic);
            Self { monotonic, boot: time(ClockId::Boottime) }
        }

        /// Returns how long the machine was suspended since this was created, in µs. The clocks are
        /// read in the reverse order of `new`, so the result may be too short but never too long.
        pub(super) fn ahead_us(&self) -> u64 {
            let passed = time(ClockId::Boottime) - self.boot;
            let ahead = passed - (time(ClockId::Monotonic) - self.monotonic);
            ahead.max(0) as u64 / 1_000
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod boot {
    /// A clock for systems other than Linux and Android, where suspensions are not detected.
    #[derive(Debug)]
    pub(super) struct BootClock;

    impl BootClock {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn ahead_us(&self) -> u64 {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_after_the_last_instant_ends_there_without_a_panic() {
        let seconds = |bit: u32| Duration::from_secs(1 << bit);
        let last = (0..64)
            .rev()
            .fold(Instant::now(), |last, bit| last.checked_add(seconds(bit)).unwrap_or(last));
        assert_eq!(later(last, seconds(0)), last);
        assert_eq!(later(Instant::now(), Duration::MAX).elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_a_paused_one_and_adds_suspensions() {
        let clock = Clock::new();
        tokio::time::advance(Duration::from_secs(3)).await;
        let before = clock.refreshed_now();
        assert_eq!(before.since(Moment::default()).as_secs(), 3);
        clock.suspend(Duration::from_secs(40));
        assert_eq!(clock.refreshed_now().since(before), Duration::from_secs(40));
        assert_eq!(clock.instant(clock.now()), Instant::now());
    }
}
