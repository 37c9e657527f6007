//! A key with the guard that was acquired for it.

use lockcore::LockGuard;

use crate::key::KeyDemand;

/// A granted demand, with its guard.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) want: KeyDemand,
    pub(crate) guard: LockGuard,
}
