//! Acquisition terms: options with all defaults applied.

use std::time::Duration;

/// The options for an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The lease, in whole milliseconds.
    pub lease: Duration,
    /// Whether the watchdog renews the hold.
    pub renewal: Renewal,
    /// The longest wait; `None` waits without a limit.
    pub wait: Option<Duration>,
    /// The most waiters in the lock's queue.
    pub queue_limit: u32,
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// What to do when the lock is busy.
    pub when_busy: WhenBusy,
}

/// What to do when the lock is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum WhenBusy {
    /// Waits for its turn.
    #[default]
    Wait,
    /// Ends immediately, like a wait of zero: with `Timeout`, or `None` from `try_lock` and the
    /// other attempts that do not wait.
    Refuse,
    /// Waits for its turn, but only until a newer request of this kind is queued for the same lock:
    /// then it ends as superseded. For locks, not for reads and permits.
    KeepNewest,
}

/// Whether the watchdog renews a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The watchdog renews the hold until it is released.
    Watchdog,
    /// The hold ends with its lease.
    Fixed,
}

impl Terms {
    /// The lease, ms.
    pub fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }
}

/// The defaults of all options, defined only here.
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
