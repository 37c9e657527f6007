//! Options with nothing left open: what an acquisition runs by.

use std::time::Duration;

use super::{ConfigError, LockOptions, MAX_LEASE, MIN_LEASE, Wait};

/// What options leave open. The only place where a default stands.
const DEFAULTS: Terms = Terms {
    lease: Duration::from_secs(30),
    renewal: Renewal::Watchdog,
    wait: None,
    queue_limit: 1_000,
    max_hold: None,
};

/// What an acquisition runs by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub(crate) lease: Duration,
    pub(crate) renewal: Renewal,
    /// `None` waits without a limit.
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

impl Terms {
    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
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
}

impl LockOptions {
    /// With the defaults for what is left open.
    pub(crate) fn terms(self) -> Terms {
        let max_hold = self.max_hold.or(DEFAULTS.max_hold);
        Terms {
            lease: self.lease.unwrap_or(match max_hold {
                Some(max_hold) => DEFAULTS.lease.min(max_hold).max(MIN_LEASE),
                None => DEFAULTS.lease,
            }),
            renewal: self.renewal.unwrap_or(DEFAULTS.renewal),
            wait: match self.wait {
                Some(Wait::AtMost(wait)) => Some(wait),
                Some(Wait::Forever) => None,
                None => DEFAULTS.wait,
            },
            queue_limit: self.queue_limit.unwrap_or(DEFAULTS.queue_limit),
            max_hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_is_the_default() {
        assert_eq!(LockOptions::new().terms(), DEFAULTS);
        let lease = Duration::from_secs(7);
        let terms = LockOptions::new().fixed_lease(lease).terms();
        assert_eq!(terms, Terms { lease, renewal: Renewal::Fixed, ..DEFAULTS });
        assert_eq!(terms.lease_ms(), 7_000);
    }

    #[test]
    fn a_lease_that_is_left_open_is_no_longer_than_the_hold_may_be() {
        let lease = |max_hold| LockOptions::new().max_hold(max_hold).terms().lease;
        assert_eq!(lease(Duration::from_secs(5)), Duration::from_secs(5));
        assert_eq!(lease(Duration::from_secs(50)), DEFAULTS.lease);
    }
}
