//! The source of moments: tokio's clock, so that tests can pause it, plus the time the machine was
//! suspended, unseen by timers.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::node::Moment;
use tokio::time::{Instant, sleep_until};

/// How far ahead to go when a sum would overflow: thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Returns `at` plus `by`, or a time far ahead on overflow.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + FAR)
}

/// Completes at this instant; never for `None`. The first poll creates the timer.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// How long the machine was suspended, in µs.
    suspended: AtomicU64,
    boot: boot::BootClock,
    /// A simulated suspension since the last look, in µs.
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

    /// Returns the current moment, never too late: a lease counted from it ends rather too early.
    pub(crate) fn now(&self) -> Moment {
        let passed = Instant::now().saturating_duration_since(self.began);
        let suspended = Duration::from_micros(self.suspended.load(Ordering::Relaxed));
        Moment::default() + (passed + suspended)
    }

    /// Returns the current moment after a check whether the machine was suspended: for every
    /// decision whether something has expired.
    pub(crate) fn look(&self) -> Moment {
        self.suspended.fetch_max(self.boot.ahead_us(), Ordering::Relaxed);
        #[cfg(test)]
        self.suspended.fetch_add(self.unseen.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.now()
    }

    /// Returns when tokio's clock shows this moment, if the machine is not suspended until then.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        let suspended = Duration::from_micros(self.suspended.load(Ordering::Relaxed));
        self.began + moment.before(suspended).since(Moment::default()).min(FAR)
    }

    /// Simulates a suspension of this length; the next look shows it.
    #[cfg(test)]
    pub(crate) fn suspend(&self, time: Duration) {
        self.unseen.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot {
    use rustix::time::{ClockId, clock_gettime};

    /// `CLOCK_BOOTTIME` next to `CLOCK_MONOTONIC`, which stops while the machine is suspended.
    #[derive(Debug)]
    pub(super) struct BootClock {
        monotonic: i64,
        boot: i64,
    }

    /// Returns the clock's time, in ns.
    fn time(of: ClockId) -> i64 {
        let time = clock_gettime(of);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    impl BootClock {
        pub(super) fn new() -> Self {
            let monotonic = time(ClockId::Monotonic);
            Self { monotonic, boot: time(ClockId::Boottime) }
        }

        /// Returns how far the boot clock ran ahead, rather less than more: here the clocks are
        /// read in reverse order.
        pub(super) fn ahead_us(&self) -> u64 {
            let passed = time(ClockId::Boottime) - self.boot;
            let ahead = passed - (time(ClockId::Monotonic) - self.monotonic);
            ahead.max(0) as u64 / 1_000
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod boot {
    /// A clock that does not detect suspensions.
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

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_a_paused_one_and_adds_suspensions() {
        let clock = Clock::new();
        tokio::time::advance(Duration::from_secs(3)).await;
        let before = clock.look();
        assert_eq!(before.since(Moment::default()).as_secs(), 3);
        clock.suspend(Duration::from_secs(40));
        assert_eq!(clock.look().since(before), Duration::from_secs(40));
        assert_eq!(clock.instant(clock.now()), Instant::now());
    }
}
