//! The futures of an acquisition: dropping one leaves the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tokio::time::{Instant, Sleep};

use crate::attempt::{Begun, Request};
use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind};
use crate::guard::LockGuard;
use crate::in_flight;
use crate::observe;
use crate::schedule::later;
use crate::store::Mode;
use crate::waiters::Outcome;
use crate::waiting::Seat;

/// Without a wait limit, an attempt ends when nothing has succeeded for this long, or for the lease
/// if that is longer.
const SILENCE: Duration = Duration::from_secs(15);

/// Waits for a lock in order of arrival; made by [`Locks::lock`](crate::Locks::lock),
/// [`Locks::lock_timeout`](crate::Locks::lock_timeout) and
/// [`LockRequest::lock`](crate::LockRequest::lock).
///
/// Does nothing until it is polled.
///
/// # Errors
/// [`Timeout`](LockErrorKind::Timeout), [`QueueFull`](LockErrorKind::QueueFull),
/// [`Unavailable`](LockErrorKind::Unavailable) and every other [`LockErrorKind`] but `Lost`.
/// Without a wait limit it ends with `Unavailable` once no request of this `Locks` has succeeded
/// for 15 s, or for the lease if that is longer.
///
/// # Cancel safety
/// Dropping it at any point leaves the queue, or releases the lock if it had just been granted.
/// Nothing stays behind. Its place in the queue is gone: a new acquire queues at the tail.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    #[pin]
    attempt: Attempt,
}

impl Acquire {
    pub(crate) fn new(engine: &Arc<Engine>, request: Result<Request, LockError>) -> Self {
        Self { attempt: Attempt::new(engine, request) }
    }
}

impl Future for Acquire {
    type Output = Result<LockGuard, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().attempt.poll(cx).map(|outcome| match outcome? {
            Some(guard) => Ok(guard),
            None => Err(LockError::with_detail(LockErrorKind::Timeout, "it is taken")),
        })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("attempt", &self.attempt).finish()
    }
}

/// Tries to acquire a lock once; made by [`Locks::try_lock`](crate::Locks::try_lock). `None` means
/// that the lock is held, or that others wait for it.
///
/// # Errors
/// Every [`LockErrorKind`] but `Timeout`, `QueueFull` and `Lost`; it ends within the request
/// timeout.
///
/// # Cancel safety
/// As [`Acquire`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct TryAcquire {
    #[pin]
    attempt: Attempt,
}

impl TryAcquire {
    pub(crate) fn new(engine: &Arc<Engine>, request: Result<Request, LockError>) -> Self {
        Self { attempt: Attempt::new(engine, request) }
    }
}

impl Future for TryAcquire {
    type Output = Result<Option<LockGuard>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().attempt.poll(cx)
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryAcquire").field("attempt", &self.attempt).finish()
    }
}

/// What both have in common.
#[pin_project(PinnedDrop)]
struct Attempt {
    engine: Arc<Engine>,
    state: State,
    #[pin]
    alarm: Option<Sleep>,
}

enum State {
    /// Not polled yet.
    New(Option<Result<Request, LockError>>),
    Running(Running),
    Done,
}

struct Running {
    begun: Begun,
    limit: Limit,
    span: tracing::Span,
    _waiting: Option<Seat>,
}

/// What ends an attempt.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The time of one request, for those that ask once.
    Once(Instant),
    /// The caller's wait.
    At(Instant),
    /// No success of any request for this long, counted from the attempt's start at the earliest.
    Silence(Duration, Instant),
}

impl Attempt {
    fn new(engine: &Arc<Engine>, request: Result<Request, LockError>) -> Self {
        Self { engine: Arc::clone(engine), state: State::New(Some(request)), alarm: None }
    }
}

/// A place among those of this `Locks` that wait, for those that would.
fn take_seat(engine: &Engine, request: &Request) -> Result<Option<Seat>, LockError> {
    if request.mode == Mode::Try {
        return Ok(None);
    }
    let taken = engine.settings.waiting.enter().map(Some);
    taken.inspect_err(|error| observe::refused(engine, &request.lock, error.kind()))
}

impl Limit {
    fn new(engine: &Engine, request: &Request) -> Self {
        let now = Instant::now();
        match (request.mode, request.options.wait) {
            (Mode::Try, _) => Self::Once(now + engine.settings.request_timeout),
            (_, Some(wait)) => Self::At(later(now, wait)),
            (_, None) => Self::Silence(request.options.lease.max(SILENCE), now),
        }
    }

    fn instant(self, engine: &Engine) -> Instant {
        match self {
            Self::Once(at) | Self::At(at) => at,
            Self::Silence(silence, start) => engine.last_success().max(start) + silence,
        }
    }
}

impl Future for Attempt {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut this = self.project();
        if let State::New(request) = this.state {
            let request = request.take().expect("taken once, on the first poll");
            *this.state = State::Done;
            let request = request?;
            let limit = Limit::new(this.engine, &request);
            let span = observe::acquiring(this.engine, &request.lock);
            let waiting = span.in_scope(|| take_seat(this.engine, &request))?;
            let begun = span.in_scope(|| this.engine.begin(request))?;
            *this.state = State::Running(Running { begun, limit, span, _waiting: waiting });
        }
        let State::Running(running) = this.state else {
            panic!("an acquisition is not polled after it is ready");
        };
        let _waiting = running.span.clone().entered();
        if let Some(asking) = &mut running.begun.asking
            && let Poll::Ready(answered) = Pin::new(asking).poll(cx)
        {
            running.begun.asking = None;
            if answered.is_none() {
                // The runtime ended, and with it everything that could answer.
                this.engine.cancel(running.begun.ticket);
                *this.state = State::Done;
                return Poll::Ready(Err(LockError::new(LockErrorKind::Closed)));
            }
        }
        loop {
            // Not while this task polls for the answer: it would set the outcome, and wake this very task.
            let is_polled_here =
                running.begun.asking.as_ref().is_some_and(in_flight::Request::is_here);
            if !is_polled_here
                && let Poll::Ready(outcome) = Pin::new(&mut running.begun.outcome).poll(cx)
            {
                *this.state = State::Done;
                this.alarm.set(None);
                return Poll::Ready(
                    outcome.unwrap_or_else(|_| Err(LockError::new(LockErrorKind::Closed))),
                );
            }
            let at = running.limit.instant(this.engine);
            let far = Instant::now() + 4 * this.engine.settings.request_timeout;
            if running.begun.asking.is_some() && at > far {
                // The answer, or that there is none, comes before that and wakes this task.
                return Poll::Pending;
            }
            if this.alarm.is_none() {
                // The caller may be polled by another runtime, or by none.
                let _in_runtime = this.engine.runtime.enter();
                this.alarm.set(Some(tokio::time::sleep_until(at)));
            }
            let mut alarm = this.alarm.as_mut().as_pin_mut().expect("set above");
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if running.limit.instant(this.engine) > Instant::now() {
                // Something has succeeded since the alarm was set.
                this.alarm.set(None);
                continue;
            }
            let away = this.engine.cancel(running.begun.ticket);
            // A grant may have come in the same instant; then it counts.
            if let Ok(outcome) = running.begun.outcome.try_recv() {
                *this.state = State::Done;
                return Poll::Ready(outcome);
            }
            let error = match (away, running.limit) {
                (Some(away), _) => away.into(),
                (None, Limit::At(_)) => LockError::new(LockErrorKind::Timeout),
                (None, Limit::Once(_)) => {
                    LockError::with_detail(LockErrorKind::Unavailable, "it did not answer in time")
                }
                (None, Limit::Silence(silence, _)) => LockError::with_detail(
                    LockErrorKind::Unavailable,
                    format!("no request has succeeded for {silence:?}"),
                ),
            };
            *this.state = State::Done;
            return Poll::Ready(Err(error));
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Attempt {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        if let State::Running(running) = this.state {
            // First, so that a grant which comes now finds nobody to take it.
            running.begun.outcome.close();
            this.engine.cancel(running.begun.ticket);
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::New(_) => "not started",
            State::Running(_) => "waiting",
            State::Done => "done",
        })
    }
}
