//! The terms of an acquire: options with nothing left open.

use std::time::Duration;

/// The options of one acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The lease, in whole milliseconds.
    pub lease: Duration,
    /// Whether the watchdog renews the hold.
    pub renewal: Renewal,
    /// The longest wait; `None` waits without a limit.
    pub wait: Option<Duration>,
    /// Most waiters of the lock.
    pub queue_limit: u32,
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// The course of a request whose lock is busy.
    pub when_busy: WhenBusy,
}

/// The course of a request that cannot have its lock at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum WhenBusy {
    /// Waits for its turn.
    #[default]
    Wait,
    /// Ends at once, as a wait of zero does: with `Timeout`, or from `try_lock` and the other
    /// attempts that do not wait with `None`.
    Refuse,
    /// Waits for its turn, but only while no newer request of the same lock waits in this way: then
    /// it ends as superseded. For locks, and not for reads and permits.
    KeepNewest,
}

/// Whether the watchdog renews a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The watchdog renews it until it is released.
    Watchdog,
    /// Ends with its lease.
    Fixed,
}

impl Terms {
    /// The lease, ms.
    pub fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }
}

/// The defaults of all options. No other place has any.
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
