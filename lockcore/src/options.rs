//! What may be chosen for one acquisition, and the ranges of it.

#[cfg(feature = "serde")]
mod text;

use std::fmt;
use std::time::Duration;

/// The shortest lease.
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest lease: a day.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of one acquisition. Ranges are checked when the options are used, or by
/// [`check`](Self::check).
///
/// ```
/// use lockcore::LockOptions;
/// use std::time::Duration;
///
/// let options = LockOptions::new()
///     .lease(Duration::from_secs(10))
///     .wait(Duration::from_secs(5))
///     .queue_limit(100);
/// assert!(options.check().is_ok());
/// assert!(options.lease(Duration::ZERO).check().unwrap_err().to_string().contains("lease"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "text::Text", into = "text::Text"))]
pub struct LockOptions {
    pub(crate) lease: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) wait: Option<Duration>,
    pub(crate) queue_limit: u32,
    pub(crate) max_hold: Option<Duration>,
}

/// Whether the watchdog keeps a hold alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Renewed until released.
    Watchdog,
    /// Ends with its lease.
    Fixed,
}

impl LockOptions {
    /// A lease of 30 s that the watchdog renews, no wait limit, at most 1 000 waiters.
    pub const fn new() -> Self {
        Self {
            lease: Duration::from_secs(30),
            renewal: Renewal::Watchdog,
            wait: None,
            queue_limit: 1_000,
            max_hold: None,
        }
    }

    /// The lease: how long the lock stays taken after this process has died. The watchdog renews it
    /// while the guard lives. 100 ms to a day, in whole milliseconds; the default is 30 s.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.renewal = Renewal::Watchdog;
        self
    }

    /// A lease that is never renewed: the hold expires after `lease` even if the guard still lives.
    pub const fn fixed_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.renewal = Renewal::Fixed;
        self
    }

    /// How long to wait at most. Zero tries once. The default is to wait without a limit.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits without a limit. This is the default.
    pub const fn wait_forever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// How many waiters the queue may have at most, this one included. At least 1; the default is 1
    /// 000.
    pub const fn queue_limit(mut self, queue_limit: u32) -> Self {
        self.queue_limit = queue_limit;
        self
    }

    /// The longest hold. After it the guard is lost, the lease is no longer renewed, and the next
    /// waiter has the lock once the lease has expired. At least the lease. The default is no limit.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is out of its range, and the range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.lease < MIN_LEASE || self.lease > MAX_LEASE {
            return Err(ConfigError::new("lease", format!("{:?}", self.lease), "100 ms to 24 h"));
        }
        if self.queue_limit == 0 {
            return Err(ConfigError::new("queue_limit", "0", "1 or more"));
        }
        match self.max_hold {
            Some(max_hold) if max_hold < self.lease => {
                Err(ConfigError::new("max_hold", format!("{max_hold:?}"), "the lease or more"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// An option is out of its range: which option, and the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    option: &'static str,
    value: String,
    range: &'static str,
}

impl ConfigError {
    pub(crate) fn new(option: &'static str, value: impl Into<String>, range: &'static str) -> Self {
        Self { option, value: value.into(), range }
    }

    /// The name of the option.
    pub fn option(&self) -> &'static str {
        self.option
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: it must be {}", self.option, self.value, self.range)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_out_of_range_is_named_with_its_range() {
        let ms = Duration::from_millis;
        let cases = [
            (LockOptions::new().lease(ms(99)), "lease is 99ms: it must be 100 ms to 24 h"),
            (
                LockOptions::new().fixed_lease(MAX_LEASE + ms(1)),
                "lease is 86400.001s: it must be 100 ms to 24 h",
            ),
            (LockOptions::new().queue_limit(0), "queue_limit is 0: it must be 1 or more"),
            (LockOptions::new().max_hold(ms(5)), "max_hold is 5ms: it must be the lease or more"),
        ];
        for (options, message) in cases {
            let error = options.check().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(message.split(' ').next(), Some(error.option()));
        }
        assert!(LockOptions::new().lease(MIN_LEASE).check().is_ok());
        assert!(LockOptions::new().lease(MAX_LEASE).check().is_ok());
        assert!(LockOptions::new().lease(ms(500)).max_hold(ms(500)).check().is_ok());
    }

    #[test]
    fn a_lease_is_told_in_milliseconds() {
        assert_eq!(LockOptions::new().lease(Duration::from_secs(7)).lease_ms(), 7_000);
    }
}
