//! The state shared by all requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use lockcore::operate::LockInspection;
use lockcore::{LockError, LockOptions, Locks};

use crate::board::Board;
use crate::faults::Crew;
use crate::metrics::Metrics;
use crate::seats::Seats;

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Office {
    pub(crate) locks: Locks,
    pub(crate) seats: Seats,
    pub(crate) board: Board,
    /// Whether the lock pages are served, as only on a loopback address.
    pub(crate) shows_locks: bool,
    pub(crate) metrics: Arc<Metrics>,
    /// The buyers of the fault panel; `None` if the panel is off.
    pub(crate) faults: Option<Crew>,
    /// The wait, lease and queue limit of each seat's lock.
    pub(crate) options: LockOptions,
    /// The length of a payment for orders that do not set it.
    pub(crate) pay: Duration,
}

impl FromRef<Office> for Locks {
    fn from_ref(office: &Office) -> Self {
        office.locks.clone()
    }
}

/// The class of the seats' locks, which separates them from the locks of other requests in metrics.
pub(crate) const CLASS: &str = "seats";

/// Returns the lock name for a seat.
pub(crate) fn key(seat: u32) -> String {
    format!("seat:{seat}")
}

/// Reads the holder and the waiters of a seat's lock.
pub(crate) async fn line(locks: &Locks, seat: u32) -> Result<LockInspection, LockError> {
    locks.inspect(key(seat)).await
}
