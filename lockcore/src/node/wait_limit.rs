//! The limit on the number of waiting acquisitions of a `Locks`.

use std::sync::Arc;

use proto::{LockErrorKind, Mode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::types::error::LockError;

/// The permits that limit the waiting acquisitions of a `Locks` to `max_waiting`.
#[derive(Debug, Clone)]
pub(crate) struct WaitLimit {
    most: u32,
    free: Arc<Semaphore>,
}

impl WaitLimit {
    pub(crate) fn new(most: u32) -> Self {
        // With 32-bit `usize`, a semaphore has fewer permits than `u32::MAX`.
        let free = (most as usize).min(Semaphore::MAX_PERMITS);
        Self { most, free: Arc::new(Semaphore::new(free)) }
    }

    /// Takes the permit that an acquisition keeps while it waits. Fails if no permit is left.
    /// Returns `Ok(None)` for an acquisition that does not wait, because it needs no permit.
    pub(crate) fn take(&self, mode: Mode) -> Result<Option<OwnedSemaphorePermit>, LockError> {
        if mode == Mode::Try {
            return Ok(None);
        }
        Arc::clone(&self.free).try_acquire_owned().map(Some).map_err(|_| {
            let most = self.most;
            let full = format!("this Locks has reached max_waiting: {most} attempts are waiting");
            LockError::with_detail(LockErrorKind::QueueFull, full)
        })
    }
}
