//! The guard: proof of a hold, which is released with the last guard of it.

use std::cell::LazyCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::node::{GivenBack, Moment};
use proto::{
    Answer, Demand, FencingToken, Grant, Left, LockErrorKind, LockName, Released, Renewed,
    StoreError,
};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Span;

use crate::error::LockError;
use crate::node::{Driver, HoldCell, Node, TimedRequest, silent};
use crate::quorum;
use crate::request::NOT_WITH_PEERS;

/// A held lock, read or permits, as [`demand`](Self::demand) tells. Dropping it releases it in the
/// background; [`release`](Self::release) releases it and reports whether the hold lasted until
/// then.
///
/// A guard is *conservative*: as long as [`is_lost`](Self::is_lost) returns `false`, the server has
/// not granted the lock to another client. [`guide::leases`](crate::guide::leases) has the
/// exceptions, such as a failover. A guard cannot stop work that goes on after the loss:
/// for that, give the [fencing token](Self::fencing_token) to the resource that you write to.
///
/// `let _ = locks.lock(name).await?` drops the guard at once; `let _guard = …` keeps it. The lint
/// `let_underscore_drop` of rustc, which is off by default, finds the first.
#[must_use = "a guard that is dropped releases the lock at once: write `let guard = …`, since `_` drops it, too"]
pub struct LockGuard {
    /// Taken only by methods that consume the guard.
    hold: Option<Hold>,
}

/// The hold of a guard.
#[derive(Debug, Clone)]
enum Hold {
    Node(SharedHold),
    /// By most primaries of a quorum.
    Quorum(Arc<quorum::Hold>),
}

/// The facts that all guards of a hold share.
#[derive(Debug, Clone)]
struct SharedHold {
    node: Arc<Node>,
    lock: LockName,
    shared: HoldCell,
    number: u64,
    demand: Demand,
    token: FencingToken,
    since: Moment,
    waited: Duration,
    /// Open for as long as the hold lasts.
    span: Span,
}

impl SharedHold {
    fn is_lost(&self) -> bool {
        self.shared.is_lost(self.node.clock.look())
    }

    fn observe_end(&self) {
        // One look at the clock for all that ask.
        let held = LazyCell::new(|| self.node.clock.now().since(self.since));
        if let Some(class) = self.shared.class() {
            class.held(|| *held);
        }
        self.node.observer.ended(&self.lock, &self.shared, || *held);
    }
}

/// The state of a hold, as its guard knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Held. As far as the last request showed, the server is connected, and it has answered the
    /// last renewal. Nothing is sent to find out.
    Held,
    /// The server is unreachable, has refused the last renewal or did not answer it within the
    /// [request timeout](crate::LocksBuilder::request_timeout); the lease has not expired yet.
    /// Unless a renewal succeeds before the [deadline](LockGuard::deadline), the hold is lost then.
    Uncertain,
    /// The lease has expired or may have expired, or the hold was force-released.
    Lost,
}

impl LockGuard {
    pub(crate) fn new(
        node: &Arc<Node>,
        lock: LockName,
        shared: HoldCell,
        demand: Demand,
        (number, token, since, waited): (u64, FencingToken, Moment, Duration),
        wait: &Span,
    ) -> Self {
        shared.add_guard();
        let node = Arc::clone(node);
        let span = node.observer.holding(&lock, &shared, token, wait);
        let hold = SharedHold { node, lock, shared, number, demand, token, since, waited, span };
        Self { hold: Some(Hold::Node(hold)) }
    }

    pub(crate) fn of_quorum(hold: Arc<quorum::Hold>) -> Self {
        Self { hold: Some(Hold::Quorum(hold)) }
    }

    /// The demand that is held.
    pub fn demand(&self) -> Demand {
        match self.hold() {
            Hold::Node(hold) => hold.demand,
            Hold::Quorum(hold) => hold.demand(),
        }
    }

    /// Renews the hold now, and has its server draw a token above all that this process has seen.
    pub(crate) async fn confirm(&self) -> Result<(), LockError> {
        let lost = || LockError::new(LockErrorKind::Lost);
        let Hold::Node(SharedHold { node, number, .. }) = self.hold() else { return Ok(()) };
        let ask = node.with(|core| core.confirmation(*number)).ok_or_else(lost)?;
        match TimedRequest::ask(node, ask).await? {
            Answer::Renewed(reply) if reply.outcome == [Renewed::Held] => Ok(()),
            Answer::Renewed(_) => Err(lost()),
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
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
        let Hold::Node(hold) = self.hold() else {
            let detail = "a lock of a quorum does not become a read: its primaries cannot change in one step";
            return Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
        };
        let invalid = |why: String| Err(LockError::with_detail(LockErrorKind::InvalidOption, why));
        if hold.demand != Demand::ALONE {
            return invalid(format!("only a lock becomes a read: this is {}", hold.demand));
        }
        if self.hold_count() > 1 {
            return invalid("other guards share the lock: drop them first".to_owned());
        }
        let node = &hold.node;
        let number = hold.number;
        if node.settings.redisson_peers {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NOT_WITH_PEERS));
        }
        // In a run the hold has another one's name.
        let asked = node.with(|core| Some((core.downgrade(number)?, core.held_as(number))));
        let Some((ask, held_as)) = asked else {
            return Err(LockError::new(LockErrorKind::Lost));
        };
        match TimedRequest::ask(node, ask).await? {
            Answer::Renewed(reply) if reply.outcome == [Renewed::NotHeld] => {
                Err(LockError::new(LockErrorKind::Lost))
            }
            Answer::Renewed(reply) => {
                let is_own = |grant: &&Grant| grant.member.number() == held_as;
                let Some(grant) = reply.grants.iter().find(is_own) else {
                    return Err(LockError::new(LockErrorKind::Protocol));
                };
                let token = grant.token;
                if let Some(Hold::Node(hold)) = &mut self.hold {
                    hold.token = token;
                    hold.demand = Demand::READ;
                    hold.shared.reduce();
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
    /// earlier hold of the lock. Reads that are held together have the same, as long as no lock is
    /// granted or downgraded and no server is replaced between them.
    ///
    /// Permits have no token, since others hold permits at the same time: it is 0, which a resource
    /// that checks tokens refuses. So is that of reads of a [quorum](crate::Quorum).
    pub fn fencing_token(&self) -> FencingToken {
        match self.hold() {
            Hold::Node(SharedHold { demand, .. }) if demand.is_permits() => proto::token::NONE,
            Hold::Node(hold) => hold.token,
            Hold::Quorum(hold) => hold.token(),
        }
    }

    /// The name of the lock in the store: with its namespace, and encoded as
    /// [`LockKey`](crate::LockKey) says.
    pub fn key(&self) -> &str {
        match self.hold() {
            Hold::Node(hold) => hold.lock.as_str(),
            Hold::Quorum(hold) => hold.lock().as_str(),
        }
    }

    /// The time for which the acquisition waited.
    pub fn waited(&self) -> Duration {
        match self.hold() {
            Hold::Node(hold) => hold.waited,
            Hold::Quorum(hold) => hold.waited,
        }
    }

    /// The number of waiters that were ahead when the acquisition was queued, as
    /// [`Acquire::position`](crate::Acquire::position) had it. `None` if it was granted at once.
    pub fn position(&self) -> Option<u64> {
        match self.hold() {
            Hold::Node(hold) => hold.shared.position(),
            Hold::Quorum(hold) => hold.position,
        }
    }

    /// The span `hold` of [`tracing`]: open until the last guard is dropped or released, and off
    /// unless a subscriber takes spans at `debug`. For fields and links of your own.
    pub fn span(&self) -> &Span {
        match self.hold() {
            Hold::Node(hold) => &hold.span,
            Hold::Quorum(hold) => &hold.span,
        }
    }

    /// Whether the hold can no longer be relied on: its [deadline](Self::deadline) has passed
    /// without a renewal, the server no longer has it, or it was force-released. Once `true`, it
    /// stays `true`.
    pub fn is_lost(&self) -> bool {
        match self.hold() {
            Hold::Node(hold) => hold.is_lost(),
            Hold::Quorum(hold) => hold.is_lost(),
        }
    }

    fn loss(&self) -> &CancellationToken {
        match self.hold() {
            Hold::Node(hold) => hold.shared.lost(),
            Hold::Quorum(hold) => hold.lost(),
        }
    }

    /// Held, uncertain or lost.
    pub fn state(&self) -> HoldState {
        let SharedHold { node, shared, lock, .. } = match self.hold() {
            Hold::Node(hold) => hold,
            Hold::Quorum(hold) => return hold.state(),
        };
        if self.is_lost() {
            HoldState::Lost
        } else if shared.is_unanswered() || !node.store.is_up_for(lock) {
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
    /// where the runtime of the `Locks` may be late. Never completes if the lock is released first.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub fn lost_owned(&self) -> WaitForCancellationFutureOwned {
        self.loss().clone().cancelled_owned()
    }

    /// A token that is cancelled when the hold is lost. Pass it to work that must stop then. If the
    /// hold is already lost, the token is already cancelled.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.loss().child_token();
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// The time until which the hold is certain if no further renewal succeeds. Each renewal moves
    /// it forward. It is earlier than the lease's end on the server, by 1 % of the lease or 5 ms,
    /// whichever is more.
    pub fn deadline(&self) -> Instant {
        match self.hold() {
            Hold::Node(hold) => hold.node.clock.instant(hold.shared.until()),
            Hold::Quorum(hold) => hold.deadline(),
        }
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
        let hold = self.hold();
        if let Hold::Node(hold) = hold {
            hold.shared.add_guard();
        }
        Ok(Self { hold: Some(hold.clone()) })
    }

    /// The number of guards that share this hold.
    pub fn hold_count(&self) -> usize {
        match self.hold() {
            Hold::Node(hold) => hold.shared.guards(),
            Hold::Quorum(hold) => Arc::strong_count(hold),
        }
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
        let hold =
            match self.into_hold() {
                Hold::Node(hold) => hold,
                Hold::Quorum(hold) => {
                    // While there are other guards it stays.
                    let last = Arc::into_inner(hold).map(quorum::Hold::release);
                    return Release(last.map_or(Progress::Done(Some(Ok(()))), |all| {
                        Progress::Quorum(Box::pin(all))
                    }));
                }
            };
        if !hold.shared.drop_guard() {
            return Release(Progress::Done(Some(Ok(()))));
        }
        let node = &hold.node;
        if node.has_ended() {
            return Release(Progress::Done(Some(Err(node.closed()))));
        }
        hold.observe_end();
        match node.with(|core| core.release(hold.number)) {
            GivenBack::By(ask) => {
                let returning = Returning(hold.shared.clone());
                node.send_then(ask, move |answer| returning.tell(answer));
            }
            // The table tells it.
            GivenBack::InRun => {}
            // Leaked, or released by a shutdown.
            GivenBack::Nothing => {
                return Release(Progress::Done(Some(Err(LockError::new(LockErrorKind::Lost)))));
            }
        }
        // An unpolled release keeps no node.
        let driver = Arc::clone(&*hold.node);
        let (is_polled, timer) = (false, None);
        let shared = hold.shared;
        Release(Progress::Running(RunningRelease { driver, shared, is_polled, timer }))
    }

    /// Drops the guard without releasing the lock: the lock stays taken, without further renewals,
    /// until its lease expires. For "not again for a while", and for work that outlives this
    /// process.
    ///
    /// Returns the time until which the lock stays taken for certain. Renewals keep that at two
    /// thirds of a lease or more. But a lock that was handed over has only its
    /// [claim](crate::guide::leases) until its first renewal, which comes after half of the claim.
    /// Where the time matters, look at the [`deadline`](Self::deadline) first. Other guards on the
    /// same hold are lost.
    pub fn leak(self) -> Instant {
        let deadline = self.deadline();
        match self.into_hold() {
            Hold::Node(hold) => {
                hold.shared.drop_guard();
                hold.node.with(|core| core.leak(hold.number));
            }
            Hold::Quorum(hold) => hold.leak(),
        }
        deadline
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // One of a quorum is given back with the last guard, since it is dropped then.
        let Some(Hold::Node(hold)) = self.hold.take() else { return };
        if hold.shared.drop_guard() {
            // First, while the table still knows that it is held: a shutdown waits for this thread.
            hold.observe_end();
            hold.node.with(|core| core.dropped(hold.number));
        }
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
    Done(Option<Result<(), LockError>>),
    Running(RunningRelease),
    /// By all primaries of a quorum.
    Quorum(BoxFuture<'static, Result<(), LockError>>),
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "done",
            Self::Running(_) | Self::Quorum(_) => "running",
        })
    }
}

/// A release whose outcome the cell of the hold has: of its request or, where the hold is another
/// one's of the same run, of the next one that tells.
struct RunningRelease {
    driver: Arc<Driver>,
    shared: HoldCell,
    is_polled: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RunningRelease {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let Self { driver, shared, is_polled, timer } = self;
        // A caller outside of a runtime is told so each time, not only where the answer is late.
        if timer.is_none() && (!*is_polled || shared.outcome().is_none()) {
            *timer = driver.timer_elsewhere();
        }
        *is_polled = true;
        // First, so that an outcome after the look wakes this task.
        shared.caller.register(cx.waker());
        match shared.outcome() {
            Some(Ok(outcome)) => Poll::Ready(ended(shared, *outcome == Released::Released)),
            // The release goes on in the background.
            Some(Err(error)) if !shared.was_lost() => Poll::Ready(Err(driver.error(error.clone()))),
            Some(Err(_)) => Poll::Ready(ended(shared, false)),
            None if driver.has_ended() => Poll::Ready(Err(driver.closed())),
            None => match timer {
                Some(timer) => timer.as_mut().poll(cx).map(|()| Err(silent())),
                None => Poll::Pending,
            },
        }
    }
}

/// Tells the outcome of a release to its caller; that there is none, if it is dropped before.
struct Returning(HoldCell);

impl Returning {
    fn tell(&self, answer: Result<Answer, StoreError>) {
        self.0.tell_returned(answer.and_then(|answer| match answer {
            Answer::Released(reply) => Ok(reply.outcome),
            Answer::Left(reply) if reply.outcome.contains(&Left::Left) => Ok(Released::Released),
            Answer::Left(_) => Ok(Released::NotHeld),
            _ => Err(StoreError::refused(LockErrorKind::Protocol, "an answer to another request")),
        }));
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        // The runtime ended before the request did.
        if self.0.outcome().is_none() {
            let ended = StoreError::refused(LockErrorKind::Closed, "the runtime has ended");
            self.0.tell_returned(Err(ended));
        }
    }
}

impl Future for Release {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Done(outcome) => {
                Poll::Ready(outcome.take().expect("a Release is not polled after it is ready"))
            }
            Progress::Running(running) => running.poll(cx),
            Progress::Quorum(all) => all.as_mut().poll(cx),
        }
    }
}

/// The outcome of a release, if the server said whether the hold was there.
fn ended(shared: &HoldCell, was_held: bool) -> Result<(), LockError> {
    if was_held && !shared.was_lost() {
        return Ok(());
    }
    shared.tell_lost();
    Err(LockError::new(LockErrorKind::Lost))
}
