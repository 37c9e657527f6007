//! The guard: proof of a hold, which is released with the last guard of it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::demand::NOT_WITH_PEERS;
use crate::error::{LockError, LockErrorKind};
use crate::key::LockName;
use crate::node::{Bounded, Moment, Node, Shared};
use crate::store::{Answer, Grant, Left, Released, Renewed};
use crate::token::FencingToken;

/// A held lock. Dropping it releases the lock in the background; [`release`](Self::release)
/// releases it and reports whether the hold lasted until then.
///
/// A guard is *conservative*: as long as [`is_lost`](Self::is_lost) returns `false`, the server has
/// not granted the lock to another client. [`guide::leases`](crate::guide::leases) has the
/// exceptions, such as a failover. A guard cannot stop work that goes on after the loss:
/// for that, give the [fencing token](Self::fencing_token) to the resource that you write to.
#[must_use = "a guard that is dropped releases the lock at once"]
pub struct LockGuard {
    /// Taken only by what consumes the guard.
    hold: Option<Hold>,
}

/// What every guard of a hold knows of it.
#[derive(Debug, Clone)]
struct Hold {
    node: Arc<Node>,
    lock: LockName,
    shared: Arc<Shared>,
    number: u64,
    /// How many permits it has, where there are several.
    weight: u32,
    token: FencingToken,
    since: Moment,
}

impl Hold {
    fn is_lost(&self) -> bool {
        self.shared.is_lost(self.node.clock.look())
    }

    fn observe_end(&self) {
        self.node.observer.ended(&self.lock, self.node.clock.now().since(self.since));
    }
}

/// What a guard knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Held. The server is connected as far as the last request knew, and has answered the last
    /// renewal. Nothing is sent to find out.
    Held,
    /// The server is unreachable, has refused the last renewal or did not answer it within the
    /// [request timeout](crate::LocksBuilder::request_timeout); the lease has not expired yet.
    /// Unless a renewal succeeds before the [deadline](LockGuard::deadline), the hold is lost then.
    Uncertain,
    /// The lease has expired or may have expired, or the hold was force-released.
    Lost,
}

/// What an acquisition ends with: [`LockGuard`], [`ReadGuard`](crate::ReadGuard),
/// [`WriteGuard`](crate::WriteGuard) or [`Permit`](crate::Permit).
///
/// It cannot be implemented outside of this crate.
pub trait Guard: sealed::Sealed {}

pub(crate) mod sealed {
    use super::LockGuard;

    /// Made of a hold that was acquired as what it is.
    pub trait Sealed: Sized {
        /// Whether it is a hold of permits.
        const IS_OF_PERMITS: bool = false;

        fn of(guard: LockGuard) -> Self;
    }
}

impl Guard for LockGuard {}

impl sealed::Sealed for LockGuard {
    fn of(guard: LockGuard) -> Self {
        guard
    }
}

impl LockGuard {
    pub(crate) fn new(
        node: &Arc<Node>,
        lock: LockName,
        shared: Arc<Shared>,
        weight: u32,
        (number, token, since): (u64, FencingToken, Moment),
    ) -> Self {
        shared.join();
        let node = Arc::clone(node);
        Self { hold: Some(Hold { node, lock, shared, number, weight, token, since }) }
    }

    pub(crate) fn weight(&self) -> u32 {
        self.hold().weight
    }

    /// Makes a read of a write, with a token of its own.
    pub(crate) async fn downgrade(&mut self) -> Result<(), LockError> {
        let hold = self.hold();
        if hold.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        if self.hold_count() > 1 {
            let detail = "other guards share the write: drop them first";
            return Err(LockError::with_detail(LockErrorKind::InvalidOption, detail));
        }
        let (node, number) = (&hold.node, hold.number);
        if node.settings.redisson_peers {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NOT_WITH_PEERS));
        }
        let Some(ask) = node.with(|core| core.downgrade(number)) else {
            return Err(LockError::new(LockErrorKind::Lost));
        };
        match Bounded::ask(node, ask).await? {
            Answer::Renewed(reply) if reply.outcome == [Renewed::NotHeld] => {
                Err(LockError::new(LockErrorKind::Lost))
            }
            Answer::Renewed(reply) => {
                let is_own = |grant: &&Grant| grant.member.number() == number;
                let Some(grant) = reply.grants.iter().find(is_own) else {
                    return Err(LockError::new(LockErrorKind::Protocol));
                };
                if let Some(hold) = &mut self.hold {
                    hold.token = grant.token;
                }
                Ok(())
            }
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    fn hold(&self) -> &Hold {
        self.hold.as_ref().expect("a guard has its hold until it is consumed")
    }

    /// The number that proves this hold to the resource it protects; higher than that of every
    /// earlier hold of the lock. Reads that are held together have the same.
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
        let Hold { node, shared, .. } = self.hold();
        if self.is_lost() {
            HoldState::Lost
        } else if shared.is_unanswered() || !node.store.commands().borrow().is_up() {
            HoldState::Uncertain
        } else {
            HoldState::Held
        }
    }

    /// Completes when the hold is lost, shortly before the deadline passes. Never completes if the
    /// lock is released first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        let mut told = pin!(self.hold().shared.lost().cancelled());
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
        let token = self.hold().shared.lost().child_token();
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// Until when the hold is certain if no further renewal succeeds. Each renewal moves it
    /// forward. It is earlier than the lease's end on the server, by 1 % of the lease or 5 ms,
    /// whichever is more.
    pub fn deadline(&self) -> Instant {
        let hold = self.hold();
        hold.node.clock.instant(hold.shared.until())
    }

    /// Another guard on the same hold; the lock is released with the last guard.
    ///
    /// Re-entry is explicit: a second `lock` of the same key waits for this hold to end, like any
    /// other.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold is lost.
    pub fn reenter(&self) -> Result<LockGuard, LockError> {
        let hold = self.hold();
        if hold.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        hold.shared.join();
        Ok(Self { hold: Some(hold.clone()) })
    }

    /// How many guards share this hold.
    pub fn hold_count(&self) -> usize {
        self.hold().shared.guards()
    }

    /// Takes the hold out, so that the drop finds nothing to do.
    fn into_hold(mut self) -> Hold {
        self.hold.take().expect("a guard has its hold until it is consumed")
    }

    /// Releases the lock; the server grants it to the next waiter in the same step. While other
    /// guards share the hold, this only drops this guard and returns `Ok`, even if the hold is
    /// lost.
    ///
    /// # Errors
    /// [`LockErrorKind::Lost`] if the hold had ended before: what was done under it may have
    /// overlapped with the next holder. [`LockErrorKind::Unavailable`] if the server did not
    /// answer, or the kind of its refusal, such as [`LockErrorKind::ReadOnly`]: the release is
    /// repeated in the background, and if that fails, the lease expires.
    /// [`LockErrorKind::Closed`] if the runtime of the `Locks` has ended: the lease expires.
    ///
    /// # Panics
    /// If the future is polled outside a tokio runtime with timers; the lock is released all the
    /// same.
    ///
    /// # Cancel safety
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Release {
        let hold = self.into_hold();
        if !hold.shared.part() {
            return Release(Progress::Done(Some(Ok(()))));
        }
        let node = &hold.node;
        if node.has_ended() {
            return Release(Progress::Done(Some(Err(node.closed()))));
        }
        hold.observe_end();
        let Some(ask) = node.with(|core| core.release(hold.number)) else {
            // Leaked, or released by a shutdown.
            return Release(Progress::Done(Some(Err(LockError::new(LockErrorKind::Lost)))));
        };
        let mut request = node.send(ask);
        request.send();
        let request = Bounded::sent(node, request);
        Release(Progress::Running(Running { request, shared: hold.shared }))
    }

    /// Drops the guard without releasing the lock: the lock stays taken, without further renewals,
    /// until its lease expires. For "not again for a while", and for work that outlives this
    /// process.
    ///
    /// Returns until when the lock stays taken for certain. Renewals keep that at two thirds of a
    /// lease or more. But a lock that the holder before handed over has a third of its lease, 10 s
    /// at most, until its first renewal, which comes after half of that. Where the time matters,
    /// look at the [`deadline`](Self::deadline) first. Other guards on the same hold are lost.
    pub fn leak(self) -> Instant {
        let deadline = self.deadline();
        let hold = self.into_hold();
        hold.shared.part();
        hold.node.with(|core| core.leak(hold.number));
        deadline
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if hold.shared.part() {
            // First, while the table still knows that it is held: a shutdown waits for this thread.
            hold.observe_end();
            hold.node.with(|core| core.dropped(hold.number));
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
    Running(Running),
}

#[derive(Debug)]
struct Running {
    request: Bounded,
    shared: Arc<Shared>,
}

impl Future for Release {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Done(outcome) => {
                Poll::Ready(outcome.take().expect("a Release is not polled after it is ready"))
            }
            Progress::Running(running) => {
                let answer = Pin::new(&mut running.request).poll(cx);
                answer.map(|answer| released(&running.shared, answer))
            }
        }
    }
}

/// Whether the hold lasted until it was released.
fn released(shared: &Shared, answer: Result<Answer, LockError>) -> Result<(), LockError> {
    let was_held = match answer {
        Ok(Answer::Released(reply)) => reply.outcome == Released::Released,
        Ok(Answer::Left(reply)) => reply.outcome.first() == Some(&Left::Left),
        Ok(_) => return Err(LockError::new(LockErrorKind::Protocol)),
        // The release goes on in the background.
        Err(error) if !shared.was_lost() => return Err(error),
        Err(_) => false,
    };
    if was_held && !shared.was_lost() {
        return Ok(());
    }
    shared.tell_lost();
    Err(LockError::new(LockErrorKind::Lost))
}
