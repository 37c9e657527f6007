//! The clock of a node: the time since the node started.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in µs since the node started. Time during which the machine was suspended is
/// included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Creates the moment that is `micros` µs after the node's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the µs since the node's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment that is the duration `by` earlier, but not before the node's start.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

/// Adds a duration. The sum is at most the last possible moment.
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
