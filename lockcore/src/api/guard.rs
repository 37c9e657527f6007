//! [`LockGuard`], the result of an acquisition. The lock is released with the last guard.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use proto::{Demand, FencingToken, LockErrorKind};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Span;

use crate::backend::{Hold, HoldRelease};
use crate::foreign::CallerWaker;
use crate::node::{Loss, timer_outside};
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;
use crate::types::key::key_of;

/// A held lock, read or permits; [`demand`](Self::demand) returns which. Dropping the guard
/// releases the hold, on any thread; [`release`](Self::release) also reports whether the hold
/// lasted until then.
///
/// A guard is *conservative*: as long as [`is_lost`](Self::is_lost) returns `false`, the server has
/// not granted the lock to another client. [`guide::leases`](crate::guide::leases) lists the
/// exceptions, such as a failover. A guard cannot stop work that continues after the loss: for
/// this, pass the [fencing token](Self::fencing_token) to the resource you write to.
///
/// `let _ = locks.lock(name).await?` drops the guard at once; `let _guard = …` keeps it. The rustc
/// lint `let_underscore_drop`, off by default, finds the former.
#[must_use = "dropping a guard releases the lock: bind it with `let guard = …`, because `_` drops it at once"]
pub struct LockGuard(pub(crate) Hold);

impl LockGuard {
    /// Returns what the guard holds: the lock, a read, or a number of permits.
    pub fn demand(&self) -> Demand {
        self.0.demand()
    }

    /// Turns a lock into a read in one step, so that no other lock is granted in between. The reads
    /// at the head of the queue are granted, too. The read has a new token, higher than the lock's.
    ///
    /// There is no upgrade: two reads that both want to become locks would wait for each other for
    /// ever.
    ///
    /// # Errors
    /// [`DowngradeError`] with the guard, which is still held unless it [is lost](Self::is_lost).
    /// After [`Unavailable`](LockErrorKind::Unavailable) the hold may already be a read: retry, or
    /// release it. [`InvalidOption`](LockErrorKind::InvalidOption) if other guards share the lock,
    /// or if the guard holds no lock. [`Unsupported`](LockErrorKind::Unsupported) with
    /// [`redisson_peers`](crate::LocksBuilder::redisson_peers), and on a quorum.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future releases the hold.
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
        self.0.downgrade().await
    }

    /// Returns the fencing token: a number to send with each write, so that the protected resource
    /// can refuse the writes of earlier holders. It is higher than the token of every earlier hold
    /// of the lock, except in the cases listed in [`guide::fencing`](crate::guide::fencing).
    /// Concurrent reads share a token, as long as no lock is granted or downgraded and no server is
    /// replaced in between.
    ///
    /// Permits have no token, because other permits are held at the same time: the method returns
    /// [`FencingToken::NONE`], the number 0, which resources that check tokens refuse. The same is
    /// true of reads on a [quorum](crate::guide::quorum).
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// Returns the key as given to the acquiring method, without the namespace. Each call decodes
    /// it from the [name](Self::name).
    pub fn key(&self) -> Cow<'_, str> {
        let name = self.name();
        let namespace = self.0.namespace();
        key_of(name, namespace).unwrap_or(Cow::Borrowed(name))
    }

    /// Returns the lock's name in the store: with namespace, encoded as described for
    /// [`LockKey`](crate::LockKey).
    pub fn name(&self) -> &str {
        self.0.lock().as_str()
    }

    /// Returns how long the acquisition took, from its first poll until the lock was granted.
    pub fn waited(&self) -> Duration {
        self.0.waited()
    }

    /// Returns the number of waiters ahead when the request was queued: the last value of
    /// [`Acquire::position`](crate::Acquire::position). `None` if the lock was granted at once.
    pub fn position(&self) -> Option<u64> {
        self.0.position()
    }

    /// Returns the [`tracing`] span named `hold`, to add your own fields and links. The span is
    /// open until the last guard is dropped or released, and disabled unless a subscriber accepts
    /// spans at `debug`.
    pub fn span(&self) -> &Span {
        self.0.span()
    }

    /// Returns true if the server may have granted the lock to another client, so that this hold
    /// can no longer be relied on. Once `true`, it stays `true`, except at the very deadline:
    /// there, a renewal in time may be noted only after the call. Causes: the
    /// [deadline](Self::deadline) has passed without a renewal; the
    /// [`max_hold`](crate::LockOptions::max_hold) is over; the server no longer has the hold; the
    /// lock was [force-released](crate::Locks::force_release); another guard on the hold was
    /// [leaked](Self::leak); the `Locks` was [shut down](crate::Locks::shutdown). On a
    /// [quorum](crate::guide::quorum), the hold is lost once it is not certain at a majority of
    /// primaries.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn loss(&self) -> &Loss {
        self.0.loss()
    }

    /// Returns the state of the hold: held, uncertain (the last renewal is not confirmed) or lost.
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// Completes when the hold is lost, shortly before the deadline passes; at the deadline if
    /// another runtime polls it and the runtime of the `Locks` is blocked. Never completes if the
    /// lock is released first.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut cancelled = pin!(self.loss().token().cancelled());
        let mut timer = pin!(timer_outside(self.0.runtime(), || self.deadline()));
        let mut waker = CallerWaker::default();
        poll_fn(|cx| {
            let mut cx = Context::from_waker(waker.catching(cx.waker()));
            loop {
                // Read the clock, because the task that reports losses may be late.
                if self.is_lost() || cancelled.as_mut().poll(&mut cx).is_ready() {
                    return Poll::Ready(());
                }
                let Some(mut timer) = timer.as_mut().as_pin_mut() else { return Poll::Pending };
                ready!(timer.as_mut().poll(&mut cx));
                // A renewal has moved the deadline.
                timer.reset(self.deadline());
            }
        })
        .await;
    }

    /// Returns a future that completes when a background task of this `Locks` detects the loss.
    /// Unlike [`lost`](Self::lost), it does not borrow the guard, and it does not read the clock:
    /// if the runtime of the `Locks` is busy, the task may detect an expired lease late, and if
    /// that runtime does not run, never. So also call [`is_lost`](Self::is_lost) before critical
    /// steps. Costs less than a [`cancellation_token`](Self::cancellation_token). Never completes
    /// if the lock is released first, unless the release finds the hold lost.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub fn lost_owned(&self) -> LostOwned {
        let cancelled = self.loss().token().clone().cancelled_owned();
        LostOwned { cancelled, waker: CallerWaker::default() }
    }

    /// Returns a token that is cancelled when the hold is lost. Pass it to work that must stop
    /// then. If the hold is already lost, the token is already cancelled. A release does not cancel
    /// the token, unless it finds the hold lost.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.loss().token_for_caller();
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// Returns the time until which the hold is certain even if no further renewal succeeds; on a
    /// quorum, until which it is certain at a majority of primaries. Each renewal moves the
    /// deadline forward, at most to the end of the [`max_hold`](crate::LockOptions::max_hold). The
    /// deadline is earlier than the lease's end on the server, by 1 % of the lease or 5 ms,
    /// whichever is more.
    ///
    /// A loss does not move the deadline: after a [force-release](crate::Locks::force_release), for
    /// example, the deadline is still in the future, and another client may already hold the lock.
    /// So check [`is_lost`](Self::is_lost) too.
    pub fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    /// Returns another guard on the same hold. The lock is released when the last guard is dropped
    /// or released.
    ///
    /// Re-entry is explicit: a second `lock` of the same key waits for this hold to end, like any
    /// other request.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold is lost.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        if self.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        Ok(Self(self.0.share()))
    }

    /// Returns the number of guards that share this hold.
    pub fn hold_count(&self) -> usize {
        self.0.shares()
    }

    /// Releases the lock, which the server grants to the next waiter in the same step. While other
    /// guards share the hold, this only drops this guard, and reports whether the hold [is
    /// lost](Self::is_lost).
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold had already ended: the work under it may have overlapped
    /// with the next holder's. In a [batch](crate::LocksBuilder::batch_limit), a [release by
    /// force](crate::Locks::force_release) just before can go unnoticed, with `Ok`, if the server
    /// had not responded to each acquire in time. [`LockErrorKind::Unavailable`] if the server did
    /// not respond, or the kind of the refusal, such as [`LockErrorKind::ReadOnly`]: the release is
    /// repeated in the background, and if that fails, the lease expires.
    /// [`LockErrorKind::Closed`] if the runtime of the `Locks` has ended: the lease expires.
    ///
    /// # Panics
    /// If the future is polled outside a tokio runtime with timers; the lock is still released.
    ///
    /// # Cancel safety
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Release {
        Release(self.0.release())
    }

    /// Drops the guard without releasing the lock: the lock stays held, without further renewals,
    /// until the lease expires. Use it to keep an action from being repeated too soon, and for work
    /// that outlives this process. Other guards on the same hold are lost.
    ///
    /// Returns the [`deadline`](Self::deadline), until which the lock stays held for certain,
    /// unless the hold [is lost](Self::is_lost), or the lock is force-released later. While
    /// renewals succeed, nearly two thirds of the lease or more are left. Less may be left with a
    /// [fixed lease](crate::LockOptions::fixed_lease), because it is not renewed, and near the end
    /// of a [`max_hold`](crate::LockOptions::max_hold). A lock granted after a wait has only a
    /// shorter lease, the [claim](crate::guide::leases), until the first renewal, soon after the
    /// grant. Where the time matters, check the deadline first.
    pub fn leak(self) -> Instant {
        let deadline = self.deadline();
        self.0.leak();
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

/// The error of [`LockGuard::downgrade`]. It contains the guard, which still holds the lock unless
/// it is lost.
#[derive(Debug)]
pub struct DowngradeError {
    error: LockError,
    guard: LockGuard,
}

impl DowngradeError {
    /// Returns why the lock was not downgraded.
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// Returns the guard, to retry the downgrade or to release the lock.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock was not downgraded to a read: {}", self.error)
    }
}

// Without a source, because the text contains the error, and an error chain would repeat it.
impl std::error::Error for DowngradeError {}

impl From<DowngradeError> for LockError {
    /// Keeps the [error](DowngradeError::error) and drops the guard, which releases the lock.
    fn from(error: DowngradeError) -> Self {
        error.error
    }
}

/// A future that completes when the loss of a hold is detected. Returned by
/// [`LockGuard::lost_owned`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct LostOwned {
    #[pin]
    cancelled: WaitForCancellationFutureOwned,
    waker: CallerWaker,
}

impl Future for LostOwned {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        this.cancelled.poll(&mut Context::from_waker(this.waker.catching(cx.waker())))
    }
}

/// The future of a release: completes when the server has confirmed the release, with `Ok` if the
/// hold lasted until then. Returned by [`LockGuard::release`]. The lock is released even if this
/// future is not polled.
#[must_use = "only this future returns whether the hold lasted until the release: write `.await`"]
#[derive(Debug)]
pub struct Release(HoldRelease);

impl Future for Release {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}
