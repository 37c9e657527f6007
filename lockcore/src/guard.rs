//! The guard: proof of a hold, which is given back when the last guard of it goes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::hold::Hold;
use crate::in_flight::Request;
use crate::member::Member;
use crate::observe;
use crate::reaper::Job;
use crate::store::{Leaving, Left, Released, Reply, StoreFuture};
use crate::token::FencingToken;

/// A held lock. Dropping it releases the lock in the background; [`release`](Self::release)
/// releases it and reports whether the hold lasted until then.
///
/// A guard is *conservative*: as long as [`is_lost`](Self::is_lost) returns `false`, the server has
/// not granted the lock to another client. A guard cannot stop work that goes on after the loss:
/// for that, give the [fencing token](Self::fencing_token) to the resource that you write to.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct LockGuard {
    /// Taken only by what consumes the guard.
    hold: Option<Arc<Hold>>,
}

/// What a guard knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Held, and the server is connected as far as the last request knew. Nothing is sent to find
    /// out.
    Held,
    /// The server is unreachable; the lease has not expired yet. Unless a renewal succeeds before
    /// the [deadline](LockGuard::deadline), the hold is lost then.
    Uncertain,
    /// The lease has expired or may have expired, or the hold was force-released.
    Lost,
}

impl LockGuard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold: Some(hold) }
    }

    fn hold(&self) -> &Arc<Hold> {
        self.hold.as_ref().expect("a guard has its hold until it is consumed")
    }

    /// The number that proves this hold to the resource it protects; higher than that of every
    /// earlier hold.
    pub fn fencing_token(&self) -> FencingToken {
        self.hold().token
    }

    /// The name of the lock in the store: with its namespace, and encoded as
    /// [`LockKey`](crate::LockKey) says.
    pub fn key(&self) -> &str {
        self.hold().lock.as_str()
    }

    /// Whether the hold can no longer be relied on: its [deadline](Self::deadline) has passed
    /// without a renewal, the server no longer has it, or it was force-released. Once `true`, it
    /// stays `true`.
    pub fn is_lost(&self) -> bool {
        self.hold().is_lost()
    }

    /// Held, uncertain or lost.
    pub fn state(&self) -> HoldState {
        if self.is_lost() {
            HoldState::Lost
        } else if self.hold().engine.store.commands().borrow().is_up() {
            HoldState::Held
        } else {
            HoldState::Uncertain
        }
    }

    /// Completes when the hold is lost, shortly before the deadline passes. Never completes if the
    /// lock is released first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut told = pin!(self.hold().lost().cancelled());
        poll_fn(|cx| match self.is_lost() {
            // By the clock, though no task got to tell.
            true => Poll::Ready(()),
            false => told.as_mut().poll(cx),
        })
        .await;
    }

    /// A token that is cancelled when the hold is lost. Pass it to work that must stop then. If the
    /// hold is already lost, the token is already cancelled.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.hold().lost().child_token();
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// Until when the hold is certain if no further renewal succeeds. Each renewal moves it
    /// forward. It is earlier than the lease's end on the server, by 1 % of the lease or 5 ms,
    /// whichever is more.
    pub fn deadline(&self) -> Instant {
        self.hold().deadline()
    }

    /// Another guard on the same hold; the lock is released with the last guard.
    ///
    /// Re-entry is explicit: a second `lock` of the same key waits for this hold to end, like any
    /// other.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold is lost.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        self.hold().join()?;
        Ok(Self::new(Arc::clone(self.hold())))
    }

    /// How many guards share this hold.
    pub fn hold_count(&self) -> usize {
        self.hold().guards()
    }

    /// Takes the hold out, so that the drop finds nothing to do.
    fn into_hold(mut self) -> Arc<Hold> {
        self.hold.take().expect("a guard has its hold until it is consumed")
    }

    /// Releases the lock; the server grants it to the next waiter in the same step. While other
    /// guards share the hold, this only drops this guard.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold had ended before: what was done under it may have
    /// overlapped with the next holder. [`LockErrorKind::Unavailable`] if the server did not
    /// answer: the release is repeated in the background, and if that fails, the lease expires.
    ///
    /// # Cancel safety
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Release {
        let hold = self.into_hold();
        if !hold.part() {
            return Release(Progress::Done(Some(Ok(()))));
        }
        if hold.is_leaked() {
            return Release(Progress::Done(Some(Err(LockError::new(LockErrorKind::Lost)))));
        }
        let engine = Arc::clone(&hold.engine);
        if hold.is_lost() {
            // By the clock, though no task got to run yet.
            engine.lost(&hold, "its deadline has passed");
        }
        engine.holds().begin_end(hold.number);
        observe::ended(&engine, &hold);
        engine.release(hold)
    }

    /// Drops the guard without releasing the lock: the lock stays taken, without further renewals,
    /// until its lease expires. For "not again within the next ten seconds", and for work that
    /// outlives this process.
    ///
    /// Returns until when the lock stays taken for certain. Other guards on the same hold are lost.
    pub fn leak(self) -> Instant {
        let hold = self.into_hold();
        let deadline = hold.deadline();
        hold.leak();
        hold.part();
        hold.engine.holds().leak(&hold);
        deadline
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if hold.part() && !hold.is_leaked() {
            // A shutdown that looks in between must not find that nothing is left to wait for.
            hold.engine.holds().begin_end(hold.number);
            observe::ended(&hold.engine, &hold);
            hold.engine.give_back(&hold);
            hold.engine.holds().finish_end(hold.number);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("fencing_token", &self.hold().token)
            .field("state", &self.state())
            .field("hold_count", &self.hold_count())
            .finish_non_exhaustive()
    }
}

/// The future of [`LockGuard::release`]. The release runs on whether or not this is polled.
#[must_use = "the release goes on, but only this future tells whether the hold lasted"]
#[derive(Debug)]
pub struct Release(Progress);

#[derive(Debug)]
enum Progress {
    Done(Option<Result<(), LockError>>),
    Running(Request<Result<(), LockError>>),
}

impl Future for Release {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Done(outcome) => {
                Poll::Ready(outcome.take().expect("a Release is not polled after it is ready"))
            }
            Progress::Running(request) => Pin::new(request)
                .poll(cx)
                .map(|answer| answer.unwrap_or_else(|| Err(LockError::new(LockErrorKind::Closed)))),
        }
    }
}

impl Engine {
    /// In the background, until the server knows.
    pub(crate) fn give_back(&self, hold: &Hold) {
        self.reaper.send(Job::leave(hold.lock.clone(), hold.member.clone(), hold.ambiguous));
    }

    fn release(self: &Arc<Self>, hold: Arc<Hold>) -> Release {
        // A store in memory runs the command before it returns.
        let sent = Instant::now();
        if hold.ambiguous {
            let leaving = Leaving { member: hold.member.clone(), ambiguous: true };
            let leave = self.store.leave(&hold.lock, vec![leaving]);
            return self
                .finish_release(hold, sent, leave, |left| left.first() == Some(&Left::Left));
        }
        let release = self.store.release(&hold.lock, &hold.member);
        self.finish_release(hold, sent, release, |released| *released == Released::Released)
    }

    fn finish_release<T: Send + 'static>(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        sent: Instant,
        answer: StoreFuture<Reply<T>>,
        was_held: impl FnOnce(&T) -> bool + Send + 'static,
    ) -> Release {
        match answer {
            StoreFuture::Ready(answer) => {
                let outcome = answer.map(|answer| self.released(&hold, sent, answer, was_held));
                Release(Progress::Done(outcome))
            }
            answer => {
                let engine = Arc::clone(self);
                let request = async move {
                    let answer = answer.await;
                    engine.released(&hold, sent, answer, was_held)
                };
                Release(Progress::Running(self.in_flight.add(request, &self.runtime)))
            }
        }
    }

    fn released<T>(
        self: &Arc<Self>,
        hold: &Hold,
        sent: Instant,
        answer: Result<Reply<T>, StoreError>,
        was_held: impl FnOnce(&T) -> bool,
    ) -> Result<(), LockError> {
        let was_lost = hold.lost().is_cancelled();
        match answer {
            Ok(reply) => {
                self.holds().finish_end(hold.number);
                self.absorb(&hold.lock, sent, &reply);
                if was_lost || !was_held(&reply.outcome) {
                    hold.lose();
                    return Err(LockError::new(LockErrorKind::Lost));
                }
                Ok(())
            }
            Err(error) => {
                // In this order: a shutdown that looks in between finds one or the other.
                self.give_back(hold);
                self.holds().finish_end(hold.number);
                let error = LockError::from(error);
                Err(if was_lost { LockError::new(LockErrorKind::Lost) } else { error })
            }
        }
    }

    /// Somebody forced a hold of ours off.
    pub(crate) fn revoked(&self, member: &Member) {
        let Some(number) = member.ours().map(|ours| ours.number) else { return };
        let hold = self.holds().get(number);
        if let Some(hold) = hold.filter(|hold| hold.member == *member) {
            self.lost(&hold, "it was forced off");
        }
    }
}
