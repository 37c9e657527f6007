//! The guard: proof of a hold, which is released with the last guard of it.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::{Demand, FencingToken, LockErrorKind};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Span;

use crate::node::{NodeGuard, NodeRelease};
use crate::quorum;
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;
use crate::types::key::key_of;

/// A held lock, read or permits, as [`demand`](Self::demand) tells. Dropping it releases it, on any
/// thread; [`release`](Self::release) releases it and reports whether the hold lasted until then.
///
/// A guard is *conservative*: as long as [`is_lost`](Self::is_lost) returns `false`, the server has
/// not granted the lock to another client. [`guide::leases`](crate::guide::leases) has the
/// exceptions, such as a failover. A guard cannot stop work that goes on after the loss:
/// for that, give the [fencing token](Self::fencing_token) to the resource that you write to.
///
/// `let _ = locks.lock(name).await?` drops the guard at once; `let _guard = …` keeps it. The lint
/// `let_underscore_drop` of rustc, which is off by default, finds the first.
#[must_use = "a guard that is dropped releases the lock at once: write `let guard = …`, since `_` drops it, too"]
pub struct LockGuard(Hold);

/// The hold of a guard. It is given back with the last guard of it.
enum Hold {
    Node(NodeGuard),
    /// By most primaries of a quorum.
    Quorum(Arc<quorum::Hold>),
}

/// The same question to either sort of hold.
macro_rules! of_either {
    ($guard:expr, |$hold:ident| $answer:expr) => {
        match &$guard.0 {
            Hold::Node($hold) => $answer,
            Hold::Quorum($hold) => $answer,
        }
    };
}

impl LockGuard {
    pub(crate) fn of_node(guard: NodeGuard) -> Self {
        Self(Hold::Node(guard))
    }

    pub(crate) fn of_quorum(hold: Arc<quorum::Hold>) -> Self {
        Self(Hold::Quorum(hold))
    }

    /// The demand that is held.
    pub fn demand(&self) -> Demand {
        of_either!(self, |hold| hold.demand())
    }

    /// Turns a lock into a read in one step: no other lock comes in between, and the reads at the
    /// head of the queue are granted. The read has a token of its own, above that of the lock.
    ///
    /// There is no upgrade: two reads that both want to be alone would wait for each other for
    /// ever.
    ///
    /// # Errors
    /// [`DowngradeError`] with the guard, which is still held unless it [is lost](Self::is_lost).
    /// After [`Unavailable`](LockErrorKind::Unavailable) it may be a read already: ask again, or
    /// release it. [`InvalidOption`](LockErrorKind::InvalidOption) if other guards share the lock,
    /// or if it is no lock. [`Unsupported`](LockErrorKind::Unsupported) with
    /// [`redisson_peers`](crate::LocksBuilder::redisson_peers), and on a quorum.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it releases the hold.
    pub async fn downgrade(mut self) -> Result<Self, DowngradeError> {
        match self.reduce().await {
            Ok(()) => Ok(self),
            Err(error) => Err(DowngradeError { error, guard: self }),
        }
    }

    async fn reduce(&mut self) -> Result<(), LockError> {
        if self.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        match &mut self.0 {
            Hold::Node(guard) => guard.reduce().await,
            Hold::Quorum(_) => {
                let detail = "a lock of a quorum does not become a read: its primaries cannot change in one step";
                Err(LockError::with_detail(LockErrorKind::Unsupported, detail))
            }
        }
    }

    /// The number that proves this hold to the resource it protects. It is higher than that of
    /// every earlier hold of the lock, except in the cases that
    /// [`guide::fencing`](crate::guide::fencing) names. Reads that are held together have the same,
    /// as long as no lock is granted or downgraded and no server is replaced between them.
    ///
    /// Permits have no token, since others hold permits at the same time: it is 0, which a resource
    /// that checks tokens refuses. So is that of reads of a [quorum](crate::Quorum).
    pub fn fencing_token(&self) -> FencingToken {
        of_either!(self, |hold| hold.fencing_token())
    }

    /// The key that was given, without the namespace. It is read off the name at each call.
    pub fn key(&self) -> Cow<'_, str> {
        let name = self.name();
        let namespace = of_either!(self, |hold| hold.namespace());
        key_of(name, namespace).unwrap_or(Cow::Borrowed(name))
    }

    /// The name of the lock in the store: with its namespace, and encoded as
    /// [`LockKey`](crate::LockKey) says.
    pub fn name(&self) -> &str {
        of_either!(self, |hold| hold.lock().as_str())
    }

    /// The time for which the acquisition waited.
    pub fn waited(&self) -> Duration {
        of_either!(self, |hold| hold.waited())
    }

    /// The number of waiters that were ahead when the acquisition was queued, as
    /// [`Acquire::position`](crate::Acquire::position) had it. `None` if it was granted at once.
    pub fn position(&self) -> Option<u64> {
        of_either!(self, |hold| hold.position())
    }

    /// The span `hold` of [`tracing`]: open until the last guard is dropped or released, and off
    /// unless a subscriber takes spans at `debug`. For fields and links of your own.
    pub fn span(&self) -> &Span {
        of_either!(self, |hold| hold.span())
    }

    /// Whether the hold can no longer be relied on. Once `true`, it stays `true`. The causes: its
    /// [deadline](Self::deadline) has passed without a renewal, or it has reached its
    /// [`max_hold`](crate::LockOptions::max_hold); the server no longer has it, or it was
    /// [force-released](crate::Locks::force_release); another guard of it was [leaked](Self::leak);
    /// the `Locks` was [shut down](crate::Locks::shutdown). On a [quorum](crate::guide::quorum), it
    /// is lost once fewer than a majority of the primaries are held for certain.
    pub fn is_lost(&self) -> bool {
        of_either!(self, |hold| hold.is_lost())
    }

    fn loss(&self) -> &CancellationToken {
        of_either!(self, |hold| hold.loss())
    }

    /// The state of the hold: held, uncertain or lost.
    pub fn state(&self) -> HoldState {
        of_either!(self, |hold| hold.state())
    }

    /// Completes when the hold is lost, shortly before the deadline passes. Never completes if the
    /// lock is released first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut told = pin!(self.loss().cancelled());
        poll_fn(|cx| match self.is_lost() {
            // By the clock, though no task got to tell.
            true => Poll::Ready(()),
            false => told.as_mut().poll(cx),
        })
        .await;
    }

    /// Completes when this `Locks` is aware that the hold is lost, without a borrow of the guard.
    /// Costs less than a [`cancellation_token`](Self::cancellation_token). Unlike
    /// [`lost`](Self::lost) it does not look at the clock: ask [`is_lost`](Self::is_lost), too,
    /// where the runtime of the `Locks` may be late. Never completes if the lock is released first,
    /// unless the release finds that the hold is lost.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub fn lost_owned(&self) -> WaitForCancellationFutureOwned {
        self.loss().clone().cancelled_owned()
    }

    /// A token that is cancelled when the hold is lost. Pass it to work that must stop then. If the
    /// hold is already lost, the token is already cancelled. A release does not cancel it, unless
    /// it finds that the hold is lost.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.loss().child_token();
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// The time until which the hold is certain if no further renewal succeeds; on a quorum, until
    /// which a majority is. Each renewal moves it forward, at most to the end of the
    /// [`max_hold`](crate::LockOptions::max_hold). It is earlier than the lease's end on the
    /// server, by 1 % of the lease or 5 ms, whichever is more.
    pub fn deadline(&self) -> Instant {
        of_either!(self, |hold| hold.deadline())
    }

    /// Another guard on the same hold; the lock is released with the last guard.
    ///
    /// Re-entry is explicit: a second `lock` of the same key waits for this hold to end, like any
    /// other.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold is lost.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        if self.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        Ok(Self(match &self.0 {
            Hold::Node(guard) => Hold::Node(guard.reenter()),
            Hold::Quorum(hold) => Hold::Quorum(Arc::clone(hold)),
        }))
    }

    /// The number of guards that share this hold.
    pub fn hold_count(&self) -> usize {
        match &self.0 {
            Hold::Node(guard) => guard.guards(),
            Hold::Quorum(hold) => Arc::strong_count(hold),
        }
    }

    /// Releases the lock; the server grants it to the next waiter in the same step. While other
    /// guards share the hold, this only drops this guard and returns `Ok`, even if the hold is
    /// lost.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold had ended before: the work under it may have overlapped
    /// with the next holder's. [`LockErrorKind::Unavailable`] if the server did not answer, or the
    /// kind of its refusal, such as [`LockErrorKind::ReadOnly`]: the release is repeated in the
    /// background, and if that fails, the lease expires. [`LockErrorKind::Closed`] if the runtime
    /// of the `Locks` has ended: the lease expires.
    ///
    /// # Panics
    /// If the future is polled outside a tokio runtime with timers; the lock is released all the
    /// same.
    ///
    /// # Cancel safety
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Release {
        Release(match self.0 {
            Hold::Node(guard) => Progress::Node(guard.release()),
            Hold::Quorum(hold) => Progress::Quorum(hold.release()),
        })
    }

    /// Drops the guard without releasing the lock: the lock stays held, without further renewals,
    /// until its lease expires. For "not again for a while", and for work that outlives this
    /// process. Other guards on the same hold are lost.
    ///
    /// Returns the [`deadline`](Self::deadline), until which the lock stays held for certain. While
    /// renewals succeed, nearly two thirds of the lease are left, or more. Less may be left of a
    /// [fixed lease](crate::LockOptions::fixed_lease), which is not renewed, and near the end of a
    /// [`max_hold`](crate::LockOptions::max_hold). A lock that was handed over has only its
    /// [claim](crate::guide::leases) until its first renewal, which comes after half of the claim.
    /// Where the time matters, look at the deadline first.
    pub fn leak(self) -> Instant {
        let deadline = self.deadline();
        match self.0 {
            Hold::Node(guard) => guard.leak(),
            Hold::Quorum(hold) => hold.leak(),
        }
        deadline
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("demand", &self.demand())
            .field("fencing_token", &self.fencing_token())
            .field("state", &self.state())
            .field("hold_count", &self.hold_count())
            .finish_non_exhaustive()
    }
}

/// A lock that was not turned into a read.
#[derive(Debug)]
pub struct DowngradeError {
    error: LockError,
    guard: LockGuard,
}

impl DowngradeError {
    /// The cause.
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// The guard, to ask again or to release it.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock was not made a read: {}", self.error)
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<DowngradeError> for LockError {
    /// Drops the guard, which releases the hold.
    fn from(error: DowngradeError) -> Self {
        error.error
    }
}

/// The future of [`LockGuard::release`]. The release continues even if this is not polled.
#[must_use = "only this future tells whether the hold lasted until the release: write `.await`"]
#[derive(Debug)]
pub struct Release(Progress);

enum Progress {
    Node(NodeRelease),
    /// By all primaries of a quorum.
    Quorum(BoxFuture<'static, Result<(), LockError>>),
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(release) => release.fmt(f),
            Self::Quorum(_) => f.write_str("running"),
        }
    }
}

impl Future for Release {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Node(release) => Pin::new(release).poll(cx),
            Progress::Quorum(all) => all.as_mut().poll(cx),
        }
    }
}
