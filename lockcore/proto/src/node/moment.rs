//! The node's own time.

use std::ops::Add;
use std::time::Duration;

/// µs since the node began, with the time for which the machine was suspended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment so many µs after the node's begin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// µs since the node's begin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The moment so much earlier, at the node's begin at the earliest.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

/// Adds a duration. A sum that would overflow is the last moment there is.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_neither_overflows_nor_precedes_the_begin() {
        let moment = Moment::from_micros(1_000);
        assert_eq!(moment + Duration::MAX, Moment::from_micros(u64::MAX));
        assert_eq!(moment.before(Duration::from_secs(1)), Moment::default());
        assert_eq!(moment.since(moment + Duration::from_micros(1)), Duration::ZERO);
        assert_eq!((moment + Duration::from_millis(2)).since(moment), Duration::from_millis(2));
    }
}
