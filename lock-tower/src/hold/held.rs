//! One hold of one request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lockcore::{Demand, FencingToken, LockGuard, LockKey, Locks};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OnLost;
use crate::hold::guard::Granted;
use crate::refusal::LockError;

/// A hold, as its layer, the handles and what is detached see it.
#[derive(Debug)]
pub(crate) struct Held {
    /// The layer that releases it.
    pub(crate) layer: usize,
    /// Where it stands among the holds of the request: later ones have higher numbers.
    pub(crate) number: usize,
    pub(crate) key: LockKey,
    pub(crate) demand: Demand,
    pub(crate) token: FencingToken,
    pub(crate) on_lost: OnLost,
    locks: Locks,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The guard is released with the last keeper: the layer, and whatever is detached.
    Held { guard: LockGuard, keepers: usize },
    /// That is its last deadline.
    Released(Instant),
}

impl Held {
    pub(crate) fn new(
        (layer, number): (usize, usize),
        Granted { want, guard }: Granted,
        locks: &Locks,
        on_lost: OnLost,
    ) -> Self {
        let (token, locks) = (guard.fencing_token(), locks.clone());
        let state = Mutex::new(State::Held { guard, keepers: 1 });
        Self { layer, number, key: want.key, demand: want.demand, token, on_lost, locks, state }
    }

    pub(crate) fn is_of(&self, locks: &Locks, key: &LockKey) -> bool {
        self.key == *key && self.locks.node() == locks.node() && !self.is_released()
    }

    /// What `look` sees of the guard; the last deadline if the hold was released.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&LockGuard) -> T) -> Result<T, Instant> {
        match &*self.state() {
            State::Held { guard, .. } => Ok(look(guard)),
            State::Released(deadline) => Err(*deadline),
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.look(|_| ()).is_err()
    }

    /// A hold that was released is not lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.look(LockGuard::is_lost).unwrap_or(false)
    }

    /// What is cancelled at the loss; none if the hold was released.
    pub(crate) fn loss(&self) -> Option<CancellationToken> {
        self.look(LockGuard::cancellation_token).ok()
    }

    /// Whether work goes on under it: not after a release, nor after a loss where work may
    /// continue.
    pub(crate) fn counts(&self) -> bool {
        self.look(|guard| self.on_lost == OnLost::Stop || !guard.is_lost()).unwrap_or(false)
    }

    /// Adds a keeper.
    pub(crate) fn keep(&self) -> Result<(), LockError> {
        match &mut *self.state() {
            State::Held { guard, keepers } if !guard.is_lost() => *keepers += 1,
            State::Held { .. } | State::Released(_) => return Err(LockError::lost()),
        }
        Ok(())
    }

    /// Removes a keeper. The guard, if that was the last one.
    pub(crate) fn let_go(&self) -> Option<LockGuard> {
        let mut state = self.state();
        if let State::Held { keepers, .. } = &mut *state {
            *keepers -= 1;
            if *keepers > 0 {
                return None;
            }
        }
        state.release()
    }

    /// The guard, whatever else keeps the hold. Drop or release it where no mutex is locked.
    pub(crate) fn release(&self) -> Option<LockGuard> {
        self.state().release()
    }

    /// Nothing in here panics half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
