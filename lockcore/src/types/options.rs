//! [`LockOptions`], the options of an acquisition, and their ranges.

mod setters;
mod terms;
#[cfg(feature = "serde")]
mod text;

use std::time::Duration;

use proto::{ConfigError, Renewal, WhenBusy};

/// The options of an acquisition. An option that a request leaves unset is taken from the
/// [defaults](crate::LocksBuilder::defaults) of the `Locks`, and if unset there from this table.
///
/// | option | default |
/// |---|---|
/// | [`lease`](Self::lease) | 30 s, renewed by the watchdog; the [`max_hold`](Self::max_hold) if shorter |
/// | [`wait`](Self::wait) | unlimited |
/// | [`store_wait`](Self::store_wait) | the [request timeout](crate::LocksBuilder::request_timeout); at least 8 s over Sentinel and on a Redis Cluster |
/// | [`queue_limit`](Self::queue_limit) | 1 000 |
/// | [`max_hold`](Self::max_hold) | unlimited |
/// | [`when_busy`](Self::when_busy) | [`WhenBusy::Wait`] |
///
/// Ranges are checked when the options are used, or by [`check`](Self::check).
///
/// With the feature `serde`, a configuration file uses these names, with times in milliseconds.
/// `renew` is `false` for a fixed lease, `wait_forever` replaces `wait_ms`, and `when_busy` is
/// `"wait"`, `"refuse"` or `"keep_newest"`. Omitted options stay unset. Unknown names and values
/// out of range are errors:
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
#[must_use = "options apply once they are given to a builder, a request, a key or a layer"]
pub struct LockOptions {
    lease: Option<Duration>,
    renewal: Option<Renewal>,
    wait: Option<Wait>,
    store_wait: Option<Duration>,
    queue_limit: Option<u32>,
    max_hold: Option<Duration>,
    when_busy: Option<WhenBusy>,
}

/// How long an acquisition waits for the lock: the value of the `wait` option. Public only for
/// lock-tower.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Wait for at most this time; zero tries once.
    AtMost(Duration),
    /// Wait without a time limit.
    Forever,
}

impl LockOptions {
    /// The shortest allowed lease: 100 ms.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest allowed lease: a day.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Creates options with nothing set. An unset option takes the default of the `Locks`, or else
    /// the default listed at [`LockOptions`](Self).
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

    /// Returns these options, with each unset option taken from `other`.
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

    /// Sets the lease: how long the lock stays held after this process dies. Also turns on the
    /// watchdog, which renews the lease in the background while the guard lives. 100 ms to a day;
    /// fractions of a millisecond are dropped.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self.renewal = Some(Renewal::Watchdog);
        self
    }

    /// Sets the lease and turns off the watchdog: the hold expires after `lease` even if the guard
    /// still lives. A lock granted after a wait first has a shorter lease, the
    /// [claim](crate::guide::leases), and receives `lease` at the first renewal. So the hold can
    /// last up to a claim longer than `lease`. The range is as for [`lease`](Self::lease); of the
    /// two methods, the last call counts.
    pub const fn fixed_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self.renewal = Some(Renewal::Fixed);
        self
    }

    /// Turns on the watchdog, whatever the lease's length. Public only for lock-idempotency.
    #[doc(hidden)]
    pub const fn renewed(mut self) -> Self {
        self.renewal = Some(Renewal::Watchdog);
        self
    }

    /// Sets how long to wait for the lock, after which the request fails with
    /// [`Timeout`](crate::LockErrorKind::Timeout). Zero tries once.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(Wait::AtMost(wait));
        self
    }

    /// Waits for the lock without a time limit.
    pub const fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// Sets how long an unqueued request waits for a store that does not respond. After that, the
    /// request fails with the store's error, usually
    /// [`Unavailable`](crate::LockErrorKind::Unavailable). Once the store has been away that long,
    /// further requests fail at once until the store is back, which is [detected within
    /// seconds](crate::guide::overload#a-store-that-is-away).
    ///
    /// A server is away while it is disconnected, or after it has left a request without a response
    /// for the [request timeout](crate::LocksBuilder::request_timeout) and has sent nothing since.
    /// If a server responds with a temporary refusal, each request is retried for its `store_wait`.
    /// The `store_wait` begins with the request. Each response of the server to any request
    /// restarts the time, because the server is alive and this request only waits for its turn.
    /// After a failed try of this request, responses no longer restart the time.
    ///
    /// A queued request keeps its position until the [`wait`](Self::wait) ends, however long the
    /// store is away, unless it [leaves](crate::LockRequest::leave_in_outage).
    ///
    /// At least 1 ms. No request waits for longer than the `wait`, so with a longer `store_wait`,
    /// such as [`Duration::MAX`], only the `wait` counts. A request that does not wait is sent
    /// once, and takes at most the request timeout. An in-memory store is never away.
    pub const fn store_wait(mut self, store_wait: Duration) -> Self {
        self.store_wait = Some(store_wait);
        self
    }

    /// Sets the maximum number of waiters in the lock's queue, including this request. A request
    /// that finds the queue full fails with [`QueueFull`](crate::LockErrorKind::QueueFull). At
    /// least 1. Also applies to a waiter that has to queue again, because the server has lost its
    /// position.
    ///
    /// Members of a [batch](crate::LocksBuilder::batch_limit) count until the server knows that
    /// they were served: after a second, or when the batch ends.
    pub const fn queue_limit(mut self, queue_limit: u32) -> Self {
        self.queue_limit = Some(queue_limit);
        self
    }

    /// Sets how long the lock may be held. After that, the guard is lost, and the lock is released
    /// even if the guard still exists, so the next waiter is granted the lock at once. At least the
    /// lease; [`Duration::MAX`] is unlimited.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets what to do when the lock is busy: wait, fail, or wait only until a newer request is
    /// queued. See [`guide::overload`](crate::guide::overload#a-busy-lock) for a comparison.
    pub const fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.when_busy = Some(when_busy);
        self
    }

    /// Returns the longest [`wait`](Self::wait) for the lock, or `None` if unset.
    pub(crate) const fn get_wait(&self) -> Option<Wait> {
        self.wait
    }

    /// Returns the [`store_wait`](Self::store_wait) option, or `None` if unset.
    pub(crate) const fn get_store_wait(&self) -> Option<Duration> {
        self.store_wait
    }

    /// Checks that each option is in range, with defaults for unset options.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option out of range, and the range.
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
            (LockOptions::new().max_hold(ms(5)), "max_hold is 5ms: it must be at least the lease"),
            (
                LockOptions::new().store_wait(ms(0)),
                "store_wait is 0ns: it must be at least 1 ms: without a wait for the store nothing \
                 is acquired",
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
