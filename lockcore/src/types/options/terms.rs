//! Converts options to [`Terms`], in which every option has a value.

use std::time::Duration;

use proto::{ConfigError, Terms};

use super::{LockOptions, Wait};

impl LockOptions {
    /// Converts these options to [`Terms`], in which each unset option has its default. Unlike
    /// [`checked`](Self::checked), does not check ranges.
    pub(crate) fn terms(self) -> Terms {
        let defaults = Terms::default();
        // A hold whose end no clock reaches has none, such as `Duration::MAX`, also from a file.
        let ends = |max_hold: &Duration| u64::try_from(max_hold.as_micros()).is_ok();
        let max_hold = self.max_hold.or(defaults.max_hold).filter(ends);
        Terms {
            lease: self.lease.unwrap_or(match max_hold {
                Some(max_hold) => defaults.lease.min(max_hold).max(LockOptions::MIN_LEASE),
                None => defaults.lease,
            }),
            renewal: self.renewal.unwrap_or(defaults.renewal),
            wait: match self.wait {
                Some(Wait::AtMost(wait)) => Some(wait),
                Some(Wait::Forever) => None,
                None => defaults.wait,
            },
            queue_limit: self.queue_limit.unwrap_or(defaults.queue_limit),
            max_hold,
            when_busy: self.when_busy.unwrap_or(defaults.when_busy),
        }
    }

    /// Converts these options to [`Terms`], with defaults for unset options. Fails for an option
    /// out of range; the error names the first such option and the range.
    pub(crate) fn checked(self) -> Result<Terms, ConfigError> {
        let terms = self.terms();
        if terms.lease < LockOptions::MIN_LEASE || terms.lease > LockOptions::MAX_LEASE {
            return Err(ConfigError::new("lease", format!("{:?}", terms.lease), "100 ms to 24 h"));
        }
        if let Some(store_wait) = self.store_wait.filter(|wait| *wait < Duration::from_millis(1)) {
            let range = "at least 1 ms: without a wait for the store nothing is acquired";
            return Err(ConfigError::new("store_wait", format!("{store_wait:?}"), range));
        }
        if terms.queue_limit == 0 {
            return Err(ConfigError::new("queue_limit", "0", "1 or more"));
        }
        match terms.max_hold {
            Some(max_hold) if max_hold < terms.lease => {
                Err(ConfigError::new("max_hold", format!("{max_hold:?}"), "at least the lease"))
            }
            _ => Ok(terms),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Renewal;

    use super::*;

    #[test]
    fn what_is_left_open_is_the_default() {
        assert_eq!(LockOptions::new().terms(), Terms::default());
        let lease = Duration::from_secs(7);
        let terms = LockOptions::new().fixed_lease(lease).terms();
        assert_eq!(terms, Terms { lease, renewal: Renewal::Fixed, ..Terms::default() });
        assert_eq!(terms.lease_ms(), 7_000);
    }

    // A hold with an end is served alone.
    #[test]
    fn a_hold_that_may_last_for_ever_has_no_end() {
        let unlimited = LockOptions::new().max_hold(Duration::MAX);
        assert_eq!(unlimited.terms(), Terms::default());
        assert_eq!(
            unlimited.or(LockOptions::new().max_hold(Duration::ZERO)).terms().max_hold,
            None
        );
    }

    #[test]
    fn a_lease_that_is_left_open_is_no_longer_than_the_hold_may_be() {
        let lease = |max_hold| LockOptions::new().max_hold(max_hold).terms().lease;
        assert_eq!(lease(Duration::from_secs(5)), Duration::from_secs(5));
        assert_eq!(lease(Duration::from_secs(50)), Terms::default().lease);
    }

    #[test]
    fn a_lease_that_is_renewed_keeps_its_length() {
        let fixed = LockOptions::new().fixed_lease(Duration::from_secs(7));
        let renewed = LockOptions::new().lease(Duration::from_secs(7));
        assert_eq!(LockOptions::new().renewed().or(fixed).terms(), renewed.terms());
    }
}
