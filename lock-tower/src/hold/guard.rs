//! A key with the acquired guard.

use lockcore::LockGuard;

use crate::key::KeyDemand;

/// A granted demand, with the guard.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) want: KeyDemand,
    pub(crate) guard: LockGuard,
}
