//! The state that all requests share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use lockcore::operate::LockInspection;
use lockcore::{LockError, LockOptions, Locks};

use crate::board::Board;
use crate::faults::Crew;
use crate::metrics::Metrics;
use crate::seats::Seats;

/// The office. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Office {
    pub(crate) locks: Locks,
    pub(crate) seats: Seats,
    pub(crate) board: Board,
    /// Whether it has the pages of the locks: on a loopback address alone.
    pub(crate) shows_locks: bool,
    pub(crate) metrics: Arc<Metrics>,
    /// The buyers of the fault panel; `None` where that is off.
    pub(crate) faults: Option<Crew>,
    /// The wait, the lease and the queue limit of each seat's lock.
    pub(crate) options: LockOptions,
    /// The length of a payment unless the order sets another.
    pub(crate) pay: Duration,
}

impl FromRef<Office> for Locks {
    fn from_ref(office: &Office) -> Self {
        office.locks.clone()
    }
}

/// The class of the locks of seats.
pub(crate) const CLASS: &str = "seats";

/// The lock of a seat.
pub(crate) fn key(seat: u32) -> String {
    format!("seat:{seat}")
}

/// The holder of a seat's lock and its waiters.
pub(crate) async fn line(locks: &Locks, seat: u32) -> Result<LockInspection, LockError> {
    locks.inspect(key(seat)).await
}
