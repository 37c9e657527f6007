//! A key with the guard that was acquired for it.

use lockcore::LockGuard;

use crate::key::Want;

/// A demand that was granted.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) want: Want,
    pub(crate) guard: LockGuard,
}
