//! The options of one acquire, and their ranges.

mod setters;
mod terms;
#[cfg(feature = "serde")]
mod text;

use std::time::Duration;

use proto::{ConfigError, Renewal, WhenBusy};

/// The options of an acquisition. An option that a request does not set is that of the
/// [defaults](crate::LocksBuilder::defaults) of its `Locks`; one that these do not set has the
/// default below.
///
/// | option | default |
/// |---|---|
/// | [`lease`](Self::lease) | 30 s, renewed by the watchdog; the [`max_hold`](Self::max_hold) if that is shorter |
/// | [`wait`](Self::wait) | without a limit |
/// | [`store_wait`](Self::store_wait) | the [request timeout](crate::LocksBuilder::request_timeout); over Sentinel and on a Redis Cluster 8 s, if that is longer |
/// | [`queue_limit`](Self::queue_limit) | 1 000 |
/// | [`max_hold`](Self::max_hold) | no limit |
/// | [`when_busy`](Self::when_busy) | [`WhenBusy::Wait`] |
///
/// Ranges are checked when the options are used, or by [`check`](Self::check).
///
/// With the feature `serde`, a configuration file has the options by these names, with times in
/// milliseconds. `renew` is `false` for a fixed lease, `wait_forever` stands in place of `wait_ms`,
/// and `when_busy` is `"wait"`, `"refuse"` or `"keep_newest"`. An option that is left out stays
/// unset. Other names, and values out of their range, are errors:
///
/// ```json
/// { "lease_ms": 10000, "renew": true, "wait_ms": 5000, "store_wait_ms": 2000, "queue_limit": 100, "max_hold_ms": 60000 }
/// ```
///
/// ```
/// use lockcore::LockOptions;
/// use std::time::Duration;
///
/// let patient = LockOptions::new().wait(Duration::from_secs(60));
/// let short = LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::from_secs(5));
/// let both = patient.or(short);
/// assert_eq!(both, LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::from_secs(60)));
///
/// assert!(both.check().is_ok());
/// assert!(both.lease(Duration::ZERO).check().unwrap_err().to_string().contains("lease"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "text::Text", into = "text::Text"))]
pub struct LockOptions {
    lease: Option<Duration>,
    renewal: Option<Renewal>,
    wait: Option<Wait>,
    store_wait: Option<Duration>,
    queue_limit: Option<u32>,
    max_hold: Option<Duration>,
    when_busy: Option<WhenBusy>,
}

/// The longest wait of an acquisition. For lock-tower.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A limit; zero tries once.
    AtMost(Duration),
    /// No limit.
    Forever,
}

impl LockOptions {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease: a day.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Options of which none is set: all are left to the defaults of the `Locks`, and in the end to
    /// those [above](Self).
    pub const fn new() -> Self {
        Self {
            lease: None,
            renewal: None,
            wait: None,
            store_wait: None,
            queue_limit: None,
            max_hold: None,
            when_busy: None,
        }
    }

    /// Fills the unset options from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            lease: self.lease.or(other.lease),
            renewal: self.renewal.or(other.renewal),
            wait: self.wait.or(other.wait),
            store_wait: self.store_wait.or(other.store_wait),
            queue_limit: self.queue_limit.or(other.queue_limit),
            max_hold: self.max_hold.or(other.max_hold),
            when_busy: self.when_busy.or(other.when_busy),
        }
    }

    /// Sets the lease, the time for which the lock stays held after this process has died, and
    /// switches the watchdog on, which renews the lease while the guard lives. 100 ms to a day; a
    /// fraction of a millisecond is dropped.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self.renewal = Some(Renewal::Watchdog);
        self
    }

    /// Sets the lease and switches the watchdog off: the hold expires after `lease` even if the
    /// guard still lives. A waiter has its [claim](crate::guide::leases) first, then the lease. The
    /// range is that of [`lease`](Self::lease), and the one that is set later counts.
    pub const fn fixed_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self.renewal = Some(Renewal::Fixed);
        self
    }

    /// Sets the longest wait. Zero tries once.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(Wait::AtMost(wait));
        self
    }

    /// Waits without a limit.
    pub const fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// Sets the longest wait for the store: of a request that is not queued yet, since the store
    /// has not answered it. After it the request ends with the error of the store,
    /// [`Unavailable`](crate::LockErrorKind::Unavailable) as a rule. Once the store has been away
    /// for as long, further requests end so at once, until it is back: this is looked for once a
    /// second at least. A server counts as away while it is not connected, or has left a request
    /// without an answer for the [request timeout](crate::LocksBuilder::request_timeout) and has
    /// answered nothing since. One that answers, but refuses for now, is asked for as long for each
    /// request. While it answers others, a request that has not failed yet waits for its turn, and
    /// that time does not count.
    ///
    /// A request that is queued keeps its place until its [`wait`](Self::wait) ends, however long
    /// the store is away, unless it [leaves](crate::LockRequest::leave_in_outage).
    ///
    /// At least 1 ms. No request waits for longer than its `wait`, so a longer time, such as
    /// [`Duration::MAX`], leaves the store as long as the lock. A request that does not wait asks
    /// once: for the request timeout at most. A store in memory is never away.
    pub const fn store_wait(mut self, store_wait: Duration) -> Self {
        self.store_wait = Some(store_wait);
        self
    }

    /// Sets the most waiters that the queue may have, this one included. At least 1.
    ///
    /// Waiters of a [run](crate::LocksBuilder::run_limit) count until the server knows that they
    /// were served: after a second, or with the end of the run.
    pub const fn queue_limit(mut self, queue_limit: u32) -> Self {
        self.queue_limit = Some(queue_limit);
        self
    }

    /// Sets the longest hold. After it the guard is lost, the lease is no longer renewed, and the
    /// next waiter is granted the lock once the guard is dropped or the lease has expired. At least
    /// the lease; [`Duration::MAX`] is no limit.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets the course of a request whose lock is busy: it waits, ends at once, or waits only while
    /// no newer one does. [`guide::overload`](crate::guide::overload#a-busy-lock) compares them.
    pub const fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.when_busy = Some(when_busy);
        self
    }

    /// The wait, if it is set. For lock-tower.
    #[doc(hidden)]
    pub const fn get_wait(&self) -> Option<Wait> {
        self.wait
    }

    /// The wait for the store, if it is set.
    pub(crate) const fn get_store_wait(&self) -> Option<Duration> {
        self.store_wait
    }

    /// Checks the ranges, with the defaults for unset options.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is out of its range, and the range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.checked().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_out_of_range_is_named_with_its_range() {
        let ms = Duration::from_millis;
        let cases = [
            (LockOptions::new().lease(ms(99)), "lease is 99ms: it must be 100 ms to 24 h"),
            (
                LockOptions::new().fixed_lease(LockOptions::MAX_LEASE + ms(1)),
                "lease is 86400.001s: it must be 100 ms to 24 h",
            ),
            (LockOptions::new().queue_limit(0), "queue_limit is 0: it must be 1 or more"),
            (LockOptions::new().max_hold(ms(5)), "max_hold is 5ms: it must be the lease or more"),
            (
                LockOptions::new().store_wait(ms(0)),
                "store_wait is 0ns: it must be 1 ms or more: without a wait for the store nothing is acquired",
            ),
        ];
        for (options, message) in cases {
            let error = options.check().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(message.split(' ').next(), Some(error.option()));
        }
        assert!(LockOptions::new().lease(LockOptions::MIN_LEASE).check().is_ok());
        assert!(LockOptions::new().lease(LockOptions::MAX_LEASE).check().is_ok());
        assert!(LockOptions::new().lease(ms(500)).max_hold(ms(500)).check().is_ok());
    }

    #[test]
    fn what_one_leaves_open_the_other_fills() {
        let s = Duration::from_secs;
        let full =
            LockOptions::new().fixed_lease(s(1)).wait_forever().queue_limit(1).max_hold(s(1));
        let full = full.when_busy(WhenBusy::Refuse).store_wait(s(1));
        let other = LockOptions::new().lease(s(2)).wait(s(2)).queue_limit(2).max_hold(s(2));
        let other = other.when_busy(WhenBusy::KeepNewest).store_wait(s(2));
        assert_eq!(full.or(other), full);
        assert_eq!(LockOptions::new().or(full), full);
        assert_eq!(full.or(LockOptions::new()), full);
        let one_set = [
            LockOptions::new().lease(s(2)),
            LockOptions::new().wait(s(2)),
            LockOptions::new().store_wait(s(2)),
            LockOptions::new().queue_limit(2),
            LockOptions::new().max_hold(s(2)),
            LockOptions::new().when_busy(WhenBusy::KeepNewest),
        ];
        let merged = one_set.into_iter().reduce(LockOptions::or).unwrap();
        assert_eq!(merged, other);
        for options in one_set {
            assert_ne!(options.or(full), full);
            assert_eq!(options.or(full).or(other), options.or(full));
        }
    }
}
