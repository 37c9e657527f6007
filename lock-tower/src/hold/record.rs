//! One lock of a request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::{Demand, FencingToken, LockGuard, LockKey, Locks};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OnLost;
use crate::hold::guard::Granted;
use crate::key::KeyDemand;
use crate::refusal::LockError;

/// A lock that a request holds or has released. Shared by the layer, the handles and detached work.
#[derive(Debug)]
pub(crate) struct HoldRecord {
    /// The number of the layer that releases this lock. The registry numbers the layers of a
    /// request from 1.
    pub(crate) layer: usize,
    /// The position of this lock in the order in which the request acquired locks, from 1.
    pub(crate) number: usize,
    pub(crate) key: LockKey,
    pub(crate) demand: Demand,
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    /// The number of waiters ahead when the request was queued for this lock; `None` if it was not
    /// queued.
    pub(crate) position: Option<u64>,
    pub(crate) on_lost: OnLost,
    locks: Locks,
    state: Mutex<RecordState>,
}

#[derive(Debug)]
enum RecordState {
    /// The lock is held. `keepers` counts the owners that keep it held: the layer, and each
    /// detached task. The guard is released with the last keeper.
    Held { guard: LockGuard, keepers: usize },
    /// The lock was released. Contains the time until which it was certainly held, as the guard
    /// reported at the release.
    Released(Instant),
}

impl HoldRecord {
    pub(crate) fn new(
        (layer, number): (usize, usize),
        Granted { want, guard }: Granted,
        locks: &Locks,
        on_lost: OnLost,
    ) -> Self {
        let (token, waited, position) = (guard.fencing_token(), guard.waited(), guard.position());
        let locks = locks.clone();
        let state = Mutex::new(RecordState::Held { guard, keepers: 1 });
        let KeyDemand { key, demand } = want;
        Self { layer, number, key, demand, token, waited, position, on_lost, locks, state }
    }

    /// Returns true if this lock has the given key, comes from the same `Locks`, and has not been
    /// released.
    pub(crate) fn is_of(&self, locks: &Locks, key: &LockKey) -> bool {
        self.key == *key && self.locks.node() == locks.node() && !self.is_released()
    }

    /// Calls `read` with the guard, and returns the result of `read`. If the lock was released,
    /// returns as `Err` the time until which it was certainly held.
    pub(crate) fn with_guard<T>(&self, read: impl FnOnce(&LockGuard) -> T) -> Result<T, Instant> {
        match &*self.state() {
            RecordState::Held { guard, .. } => Ok(read(guard)),
            RecordState::Released(deadline) => Err(*deadline),
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.with_guard(|_| ()).is_err()
    }

    /// Returns true if the lock becomes free when the layer releases it: there is no other guard,
    /// and no detached work keeps it.
    pub(crate) fn ends_with_its_layer(&self) -> bool {
        matches!(&*self.state(), RecordState::Held { guard, keepers: 1 } if guard.hold_count() == 1)
    }

    /// Returns true if the lock was lost. A released lock is not lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.with_guard(LockGuard::is_lost).unwrap_or(false)
    }

    /// Returns a token that is cancelled when the lock is lost; `None` if the lock was released.
    pub(crate) fn loss(&self) -> Option<CancellationToken> {
        self.with_guard(LockGuard::cancellation_token).ok()
    }

    /// Returns true if detached work should keep this lock held. Returns false if the lock was
    /// released, or was lost under [`OnLost::Continue`], where the work runs on without it.
    pub(crate) fn allows_work(&self) -> bool {
        self.with_guard(|guard| self.on_lost == OnLost::Stop || !guard.is_lost()).unwrap_or(false)
    }

    /// Adds a keeper, so that the lock stays held for detached work until
    /// [`remove_keeper`](Self::remove_keeper).
    ///
    /// # Errors
    /// `Lost` if the lock was lost or released.
    pub(crate) fn add_keeper(&self) -> Result<(), LockError> {
        match &mut *self.state() {
            RecordState::Held { guard, keepers } if !guard.is_lost() => *keepers += 1,
            RecordState::Held { .. } | RecordState::Released(_) => return Err(LockError::lost()),
        }
        Ok(())
    }

    /// Removes a keeper. If no keeper is left, returns the guard for the caller to release. Returns
    /// `None` if other keepers remain, or if the lock was released before.
    pub(crate) fn remove_keeper(&self) -> Option<LockGuard> {
        let mut state = self.state();
        if let RecordState::Held { keepers, .. } = &mut *state {
            *keepers -= 1;
            if *keepers > 0 {
                return None;
            }
        }
        state.release()
    }

    /// Marks the lock as released, even if keepers remain, and returns the guard; `None` if it was
    /// released before. Drop or release the guard only while the registry's mutex is unlocked,
    /// because guards write logs.
    pub(crate) fn release(&self) -> Option<LockGuard> {
        self.state().release()
    }

    /// Locks the mutex, even if poisoned, because no critical section panics half way.
    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordState {
    fn release(&mut self) -> Option<LockGuard> {
        let deadline = match self {
            Self::Held { guard, .. } => guard.deadline(),
            Self::Released(_) => return None,
        };
        match std::mem::replace(self, Self::Released(deadline)) {
            Self::Held { guard, .. } => Some(guard),
            Self::Released(_) => None,
        }
    }
}
