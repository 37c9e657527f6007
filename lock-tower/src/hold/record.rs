//! One lock of a request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::{Demand, FencingToken, LockErrorKind, LockGuard, LockKey, Locks, LostOwned};
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
    /// The position of this lock in the order in which the registry was given them, from 1.
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
    /// detached task. The guard is released with the last keeper. `has_stopped` is true if the lock
    /// was lost, and this has stopped work.
    Held { guard: LockGuard, keepers: usize, has_stopped: bool },
    /// The lock was released. `deadline` is the time until which it was certainly held, as the
    /// guard reported at the release. `has_stopped` is true if it was lost before the release, so
    /// that work stops.
    Released { deadline: Instant, has_stopped: bool },
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
        let state = Mutex::new(RecordState::Held { guard, keepers: 1, has_stopped: false });
        let KeyDemand { key, demand } = want;
        Self { layer, number, key, demand, token, waited, position, on_lost, locks, state }
    }

    /// Returns true if this lock has the given name in the store, comes from the same `Locks`, and
    /// has not been released. Different keys may have the same name: see
    /// [`LockKey::foreign`](lockcore::LockKey::foreign).
    pub(crate) fn is_of(&self, locks: &Locks, name: &str) -> bool {
        let has_name = self.with_guard(|guard| guard.name() == name);
        has_name.unwrap_or(false) && self.locks.node() == locks.node()
    }

    /// Calls `read` with the guard, and returns the result of `read`. If the lock was released,
    /// returns as `Err` the time until which it was certainly held.
    pub(crate) fn with_guard<T>(&self, read: impl FnOnce(&LockGuard) -> T) -> Result<T, Instant> {
        match &*self.state() {
            RecordState::Held { guard, .. } => Ok(read(guard)),
            RecordState::Released { deadline, .. } => Err(*deadline),
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.with_guard(|_| ()).is_err()
    }

    /// Returns true if the lock becomes free when the layer releases it: there is no other guard,
    /// and no detached work keeps it.
    pub(crate) fn ends_with_its_layer(&self) -> bool {
        let state = self.state();
        matches!(&*state, RecordState::Held { guard, keepers: 1, .. } if guard.hold_count() == 1)
    }

    /// Returns true if the lock was lost. A released lock is not lost, unless it was lost before
    /// the release.
    pub(crate) fn is_lost(&self) -> bool {
        match &*self.state() {
            RecordState::Held { guard, .. } => guard.is_lost(),
            RecordState::Released { has_stopped, .. } => *has_stopped,
        }
    }

    /// Decides whether work stops, now that this lock is reported as lost: returns false if the
    /// handler has released the lock before. The decision is final, so that the layer and detached
    /// work make the same one, even if the lock is released in between.
    pub(crate) fn stops_work(&self) -> bool {
        match &mut *self.state() {
            RecordState::Held { has_stopped, .. } => {
                *has_stopped = true;
                true
            }
            RecordState::Released { has_stopped, .. } => *has_stopped,
        }
    }

    /// Returns a future that completes when the lock is lost; `None` if the lock was released.
    pub(crate) fn lost(&self) -> Option<LostOwned> {
        self.with_guard(LockGuard::lost_owned).ok()
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
            RecordState::Held { guard, keepers, .. } if !guard.is_lost() => *keepers += 1,
            RecordState::Held { .. } | RecordState::Released { .. } => {
                return Err(LockError::lost());
            }
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

    /// Releases the lock, even if keepers remain. Does nothing if it was released before. A loss
    /// before the release still stops work, also if only the release finds it.
    ///
    /// # Errors
    /// `Lost` if the lock was lost before. The store's error if the release failed.
    pub(crate) async fn release(&self) -> Result<(), LockError> {
        let guard = {
            let mut state = self.state();
            if let RecordState::Held { guard, has_stopped, .. } = &mut *state {
                *has_stopped |= guard.is_lost();
            }
            state.release()
        };
        let Some(guard) = guard else { return Ok(()) };
        let released = guard.release().await;
        if released.as_ref().is_err_and(|error| error.kind() == LockErrorKind::Lost)
            && let RecordState::Released { has_stopped, .. } = &mut *self.state()
        {
            *has_stopped = true;
        }
        Ok(released?)
    }

    /// Locks the mutex, even if poisoned, because no critical section panics half way.
    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordState {
    fn release(&mut self) -> Option<LockGuard> {
        let released = match *self {
            Self::Held { ref guard, has_stopped, .. } => {
                Self::Released { deadline: guard.deadline(), has_stopped }
            }
            Self::Released { .. } => return None,
        };
        match std::mem::replace(self, released) {
            Self::Held { guard, .. } => Some(guard),
            Self::Released { .. } => None,
        }
    }
}
