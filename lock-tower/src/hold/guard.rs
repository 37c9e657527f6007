//! A granted lock on the way from the acquisition to the registry.

use lockcore::LockGuard;

use crate::key::KeyDemand;

/// A granted lock: the key and demand that were wanted, and the guard that holds the lock.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) want: KeyDemand,
    pub(crate) guard: LockGuard,
}
