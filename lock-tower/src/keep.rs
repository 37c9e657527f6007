//! What keeps a hold beyond the end of the layer that took it.

use crate::handle::LockHandle;

/// One more keeper of a hold, beside its layer: the lock is given back with the last of them, or when the handler
/// gives it back early. Until then handles see it.
#[derive(Debug)]
pub(crate) struct Keep {
    handle: LockHandle,
}

impl Keep {
    /// Of one that has been counted.
    pub(crate) fn new(handle: LockHandle) -> Self {
        Self { handle }
    }

    pub(crate) fn handle(&self) -> &LockHandle {
        &self.handle
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        drop(self.handle.let_go());
    }
}
