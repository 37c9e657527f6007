//! One hold of a lock: what the guards of it share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind};
use crate::key::LockName;
use crate::member::Member;
use crate::options::{LockOptions, Renewal};
use crate::schedule::later;
use crate::token::FencingToken;
use crate::waiters::Waiter;

/// A lease that the server gave, and what this node knows of its end.
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    pub(crate) lock: LockName,
    pub(crate) member: Member,
    pub(crate) number: u64,
    pub(crate) token: FencingToken,
    pub(crate) options: LockOptions,
    /// A copy of the acquire may still be on its way, so giving back must leave a tombstone.
    pub(crate) ambiguous: bool,
    pub(crate) since: Instant,
    /// Guards that share the hold.
    guards: AtomicUsize,
    /// To be kept on the server until it ends by itself.
    leaked: AtomicBool,
    lost: CancellationToken,
    lease: Mutex<Lease>,
}

/// What moves during a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    /// Until when the hold is certain: earlier than the server's own end of it.
    pub(crate) deadline: Instant,
    /// When to renew it next, if at all.
    pub(crate) renew_at: Option<Instant>,
}

/// The deadline is this much earlier than the lease's end: for clocks that tick at different rates.
fn margin(left: Duration) -> Duration {
    (left / 100).max(Duration::from_millis(5))
}

/// Until when a lease of `left` is certain, counted from `anchor`.
pub(crate) fn deadline(anchor: Instant, left: Duration) -> Instant {
    anchor + left.saturating_sub(margin(left))
}

impl Hold {
    /// What was granted to `waiter` under `number`: a lease of `left`, counted from `anchor`.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        waiter: &Waiter,
        number: u64,
        token: FencingToken,
        anchor: Instant,
        left: Duration,
    ) -> Self {
        let now = Instant::now();
        let options = waiter.options;
        let deadline = deadline(anchor, left);
        let half = deadline.saturating_duration_since(now) / 2;
        let is_full = left >= options.lease - options.lease / 10;
        let renew_at = match options.renewal {
            // A third of a full lease, or half of what is left of it if that is sooner.
            Renewal::Watchdog if is_full => Some(now + half.min(options.lease / 3)),
            Renewal::Watchdog => Some(now + half),
            // Handed over with a claim: one renewal turns it into what was asked for.
            Renewal::Fixed if !is_full => Some(now),
            Renewal::Fixed => None,
        };
        Self {
            engine: Arc::clone(engine),
            lock: waiter.lock.clone(),
            member: waiter.member.clone(),
            number,
            token,
            options,
            ambiguous: waiter.ambiguous,
            since: now,
            guards: AtomicUsize::new(1),
            leaked: AtomicBool::new(false),
            lost: CancellationToken::new(),
            lease: Mutex::new(Lease { deadline, renew_at }),
        }
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when the hold is certain.
    pub(crate) fn deadline(&self) -> Instant {
        let lease = self.lease().deadline;
        match self.last_instant() {
            Some(last) => lease.min(last),
            None => lease,
        }
    }

    /// The end of the longest hold that was allowed.
    pub(crate) fn last_instant(&self) -> Option<Instant> {
        self.options.max_hold.map(|max_hold| later(self.since, max_hold))
    }

    /// Whether the hold is over, told or not: true from the deadline on, even if no task got to run.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || Instant::now() >= self.deadline()
    }

    /// Tells every guard.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
    }

    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// From now on nothing gives it back.
    pub(crate) fn leak(&self) {
        self.leaked.store(true, Ordering::Release);
        self.lost.cancel();
    }

    pub(crate) fn is_leaked(&self) -> bool {
        self.leaked.load(Ordering::Acquire)
    }

    /// One more guard on the same hold.
    pub(crate) fn join(&self) -> Result<(), LockError> {
        if self.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        self.guards.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// One guard less. Returns whether it was the last.
    pub(crate) fn part(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("number", &self.number)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
