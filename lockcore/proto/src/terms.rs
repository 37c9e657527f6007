//! Acquisition terms: the caller's options, with a default in place of each option not set.

use std::time::Duration;

/// The options of an attempt to acquire a lock, with all defaults applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long the server keeps the lock without a renewal, in whole milliseconds.
    pub lease: Duration,
    /// Whether the hold is renewed automatically.
    pub renewal: Renewal,
    /// The maximum time that the caller waits for the lock; `None` waits without a limit.
    pub wait: Option<Duration>,
    /// The maximum number of waiters in the lock's queue. The attempt is refused if the queue is
    /// longer.
    pub queue_limit: u32,
    /// The maximum time that the lock is held, renewals included; `None` for no limit. The hold is
    /// lost afterwards.
    pub max_hold: Option<Duration>,
    /// What the attempt does if the lock is busy.
    pub when_busy: WhenBusy,
}

/// What an attempt does if another holder has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum WhenBusy {
    /// The attempt waits for its turn.
    #[default]
    Wait,
    /// The attempt ends immediately, as with a wait of zero: with `Timeout`, or with `None` from
    /// `try_lock` and the other methods that do not wait.
    Refuse,
    /// The attempt waits for its turn, but only until a newer attempt of this kind is queued for
    /// the same lock. Then it ends as superseded. This is supported for locks, not for reads and
    /// permits.
    KeepNewest,
}

/// Whether a hold is renewed automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The node renews the hold in the background, until the guard is released or dropped.
    Watchdog,
    /// The hold is not renewed, so it ends when the lease expires.
    Fixed,
}

impl Terms {
    /// Returns the lease in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }
}

/// The defaults of all options. No other place defines a default.
impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            renewal: Renewal::Watchdog,
            wait: None,
            queue_limit: 1_000,
            max_hold: None,
            when_busy: WhenBusy::Wait,
        }
    }
}
