//! What the handler sees of the hold under which it runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockcore::{FencingToken, LockGuard, LockKey, Locks};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OnLost;
use crate::error::LockError;
#[cfg(feature = "http")]
use crate::keep::Keep;

/// The hold under which a request is served; in HTTP it is in the request's extensions.
///
/// It does not keep the lock: the layer does, until the response or the body ends. [`reenter`](Self::reenter) does.
///
/// ```
/// # use lock_tower::LockHandle;
/// # async fn execute(_sql: &str, _parameters: &[i64]) -> u64 { 1 }
/// async fn pay<B>(request: http::Request<B>) -> u64 {
///     let lock = request.extensions().get::<LockHandle>().expect("the layer put it there");
///     let sql = "UPDATE orders SET paid = true, token = $1 WHERE id = $2 AND token < $1";
///     execute(sql, &[lock.fencing_token().into(), 42]).await
/// }
/// ```
#[derive(Clone)]
pub struct LockHandle {
    slot: Arc<Slot>,
}

/// Where the layer keeps the guard, so that handles can look at it and not prolong it.
struct Slot {
    locks: Locks,
    key: LockKey,
    token: FencingToken,
    on_lost: OnLost,
    occupant: Mutex<Occupant>,
    /// The hold that the same request had before.
    outer: Option<LockHandle>,
}

enum Occupant {
    /// The layer keeps it, and what was detached.
    Held {
        guard: LockGuard,
        keepers: usize,
    },
    GivenBack {
        deadline: Instant,
    },
}

impl LockHandle {
    pub(crate) fn new(
        locks: &Locks,
        key: LockKey,
        guard: LockGuard,
        on_lost: OnLost,
        outer: Option<LockHandle>,
    ) -> Self {
        let token = guard.fencing_token();
        let occupant = Mutex::new(Occupant::Held { guard, keepers: 1 });
        Self { slot: Arc::new(Slot { locks: locks.clone(), key, token, on_lost, occupant, outer }) }
    }

    /// The key, as it stands in the store without its namespace.
    pub fn key(&self) -> &str {
        self.slot.key.as_str()
    }

    /// The number that proves this hold to the resource it protects; higher than that of every earlier hold.
    pub fn fencing_token(&self) -> FencingToken {
        self.slot.token
    }

    /// Gives the lock back before the response, and tells whether the hold lasted until then. If it had been given
    /// back before, that is no error.
    ///
    /// Other guards on the same hold keep it: of an outer layer with the same key, or from
    /// [`reenter`](Self::reenter). What is detached does not. The layer no longer watches for a loss.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold had ended before: what was done under it may have
    /// overlapped with another's. [`Unavailable`](lockcore::LockErrorKind::Unavailable) if the store did not answer:
    /// the lock goes to the next when its lease has run out, at the latest.
    ///
    /// # Cancel safety
    /// The release goes on if this is dropped once it was polled.
    pub async fn release(&self) -> Result<(), LockError> {
        let guard = self.slot.lock().empty();
        match guard {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }

    /// Until when the hold is certain if no further renewal succeeds. The watchdog moves it forward.
    pub fn deadline(&self) -> Instant {
        match &*self.slot.lock() {
            Occupant::Held { guard, .. } => guard.deadline(),
            Occupant::GivenBack { deadline } => *deadline,
        }
    }

    /// Whether the hold can no longer be relied on: it was lost, or it was given back.
    pub fn is_lost(&self) -> bool {
        match &*self.slot.lock() {
            Occupant::Held { guard, .. } => guard.is_lost(),
            Occupant::GivenBack { .. } => true,
        }
    }

    /// Completes when the hold is lost. Never, if it is given back first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again at will.
    pub async fn lost(&self) {
        match self.loss() {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Cancelled when the hold is lost, and already cancelled if it has ended: pass it to what must stop then.
    pub fn cancellation_token(&self) -> CancellationToken {
        match &*self.slot.lock() {
            Occupant::Held { guard, .. } => guard.cancellation_token(),
            Occupant::GivenBack { .. } => {
                let token = CancellationToken::new();
                token.cancel();
                token
            }
        }
    }

    /// A guard on the same hold, for work that goes on after the response: the lock is given back with the last
    /// guard.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold was lost or has been given back.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        match &*self.slot.lock() {
            Occupant::Held { guard, .. } => Ok(guard.reenter()?),
            Occupant::GivenBack { .. } => Err(LockError::lost()),
        }
    }

    /// One more keeper.
    #[cfg(feature = "http")]
    pub(crate) fn keep(&self) -> Result<Keep, LockError> {
        match &mut *self.slot.lock() {
            Occupant::Held { guard, keepers } if !guard.is_lost() => {
                *keepers += 1;
                Ok(Keep::new(self.clone()))
            }
            Occupant::Held { .. } | Occupant::GivenBack { .. } => Err(LockError::lost()),
        }
    }

    /// One more keeper of this hold and of the outer ones that still count.
    #[cfg(feature = "http")]
    pub(crate) fn keep_all(&self) -> Result<Vec<Keep>, LockError> {
        let outer = std::iter::successors(self.outer(), |handle| handle.outer());
        std::iter::once(self)
            .chain(outer.filter(|handle| handle.counts()))
            .map(Self::keep)
            .collect()
    }

    /// Not if it was given back early, nor if it was lost and work was to go on.
    #[cfg(feature = "http")]
    pub(crate) fn counts(&self) -> bool {
        !(self.is_given_back() || self.on_lost() == OnLost::Continue && self.is_lost())
    }

    /// The hold under which this request came to the layer of this one: of an outer layer, or of the key before
    /// in a tuple.
    pub fn outer(&self) -> Option<&LockHandle> {
        self.slot.outer.as_ref()
    }

    /// This request's hold of `key`, if it has one.
    pub(crate) fn find(&self, locks: &Locks, key: &LockKey) -> Option<&LockHandle> {
        let mut handle = Some(self);
        while let Some(this) = handle {
            if this.slot.key == *key
                && this.slot.locks.node() == locks.node()
                && !this.is_given_back()
            {
                return Some(this);
            }
            handle = this.outer();
        }
        None
    }

    pub(crate) fn is_given_back(&self) -> bool {
        matches!(&*self.slot.lock(), Occupant::GivenBack { .. })
    }

    /// What is cancelled at the loss; none if it was given back.
    pub(crate) fn loss(&self) -> Option<CancellationToken> {
        match &*self.slot.lock() {
            Occupant::Held { guard, .. } => Some(guard.cancellation_token()),
            Occupant::GivenBack { .. } => None,
        }
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.slot.on_lost
    }

    /// One keeper fewer. The guard, if that was the last: it ends what handles see.
    pub(crate) fn let_go(&self) -> Option<LockGuard> {
        let mut occupant = self.slot.lock();
        if let Occupant::Held { keepers, .. } = &mut *occupant {
            *keepers -= 1;
            if *keepers > 0 {
                return None;
            }
        }
        occupant.empty()
    }
}

impl Slot {
    /// Nothing in here panics half way.
    fn lock(&self) -> MutexGuard<'_, Occupant> {
        self.occupant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occupant {
    /// To be dropped where the slot is not locked.
    fn empty(&mut self) -> Option<LockGuard> {
        let deadline = match self {
            Self::Held { guard, .. } => guard.deadline(),
            Self::GivenBack { .. } => return None,
        };
        match std::mem::replace(self, Self::GivenBack { deadline }) {
            Self::Held { guard, .. } => Some(guard),
            Self::GivenBack { .. } => None,
        }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("fencing_token", &self.slot.token)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
