//! The future of an acquisition by a single node. Dropping it takes the request out of the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use proto::node::{Core, Note, Outcome, Refusal, Request};
use proto::{Demand, LockErrorKind, LockName, Mode, StoreError};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::coop::poll_proceed;
use tokio::time::{Instant, Sleep};

use super::{HoldCell, Node, NodeGuard, Observer, cause_of, later, timer};
use crate::foreign;
use crate::node::class::Class;
use crate::types::error::LockError;

/// How long an attempt without a wait limit continues while no request of its node succeeds. If the
/// attempt's lease is longer, the attempt continues for the length of the lease instead.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// How long after its end a silence still ends an attempt without a wait limit.
const LATE: Duration = Duration::from_secs(1);

/// The text of the error if a server responds, but too slowly for an attempt that does not wait.
pub(crate) const SLOW: &str = "the server responds, but not within the request timeout";

/// An attempt's result. `Ok(None)` means that the lock is busy and the attempt does not wait.
pub(crate) type AttemptResult = Result<Option<NodeGuard>, LockError>;

/// The future of an acquisition by a single node. Dropping it cancels the acquisition.
#[pin_project(PinnedDrop)]
pub(crate) struct Attempt {
    node: Arc<Node>,
    cell: HoldCell,
    local: LocalOptions,
    state: AttemptState,
    #[pin]
    timer: Option<Sleep>,
}

/// Attempt options that apply in this process only and are not sent to the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalOptions {
    /// True if the request already has a label. If false, the caller's trace context, if any,
    /// becomes the label.
    pub(crate) is_labelled: bool,
    /// True if the labels of the lock's current holders are to be recorded in the tracing span of
    /// the wait.
    pub(crate) records_holders: bool,
    /// True if the request is to be refused at once, instead of queued, when the predicted wait is
    /// longer than the caller's wait limit.
    pub(crate) refuses_early: bool,
    /// The longest time that the attempt waits for an unreachable store; `None` for the time in the
    /// node's settings.
    pub(crate) store_wait: Option<Duration>,
    /// True if an outage longer than `store_wait` ends the attempt even if a server has queued it.
    /// If false, a queued attempt waits until the outage ends, up to its other limits.
    pub(crate) leaves_in_outage: bool,
}

impl LocalOptions {
    /// The options of a request that already has a label and uses no other option.
    pub(crate) const LABELLED: Self = Self {
        is_labelled: true,
        records_holders: false,
        refuses_early: false,
        store_wait: None,
        leaves_in_outage: false,
    };

    /// Sets the request's label to the caller's trace context, unless the request already has a
    /// label or there is no context.
    pub(crate) fn label(&mut self, request: &mut Request, observer: &Observer) {
        if !self.is_labelled
            && let Some(label) = observer.trace_label()
        {
            request.label = label;
        }
        self.is_labelled = true;
    }
}

enum AttemptState {
    /// The future was not polled yet. Contains the request, or the error returned by the first
    /// poll.
    New(Option<Result<Request, LockError>>),
    Running(RunningAttempt),
    /// The attempt was refused, but its error is not returned yet: the rate of refusals is limited
    /// (see `node::refusal_pace`). The error is returned when the attempt's timer fires, or at
    /// once if there is no timer.
    Refused(LockError),
    Done,
}

struct RunningAttempt {
    attempt: u64,
    lock: LockName,
    cell: HoldCell,
    demand: Demand,
    limit: Limit,
    store_wait: StoreWait,
    span: tracing::Span,
    _slot: Option<OwnedSemaphorePermit>,
}

/// An attempt's time limit, at which the attempt fails.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The attempt does not wait in the queue. It fails at this instant, the end of the request
    /// timeout.
    Once(Instant),
    /// The caller has set a wait limit, which ends at this instant.
    At(Instant),
    /// The caller has set no wait limit. The attempt fails when no request of its node has
    /// succeeded for this duration. The time before the instant does not count: it is the attempt's
    /// start, or when a silence was found over late.
    Silence(Duration, Instant),
}

/// The limit on an attempt's wait for an unreachable store. Once a server has queued the attempt,
/// the limit applies only if `leaves_in_outage` is true; otherwise the attempt keeps waiting, up to
/// its time limit.
#[derive(Debug, Clone, Copy)]
struct StoreWait {
    longest: Duration,
    /// When to check next whether the store is reachable; `None` if no check is needed any more.
    look_at: Option<Instant>,
    leaves_in_outage: bool,
}

impl StoreWait {
    fn new(node: &Node, local: LocalOptions) -> Self {
        let longest = local.store_wait.unwrap_or(node.settings.store_wait);
        let look_at = Some(later(Instant::now(), longest));
        Self { longest, look_at, leaves_in_outage: local.leaves_in_outage }
    }

    /// Returns the store's error if the current outage has lasted for at least `longest`, so that a
    /// new attempt fails at once. `None` if the store is reachable, or the outage is shorter.
    fn outage(self, node: &Node, lock: &LockName, mode: Mode) -> Option<StoreError> {
        let outage = node.store.outage(lock, mode == Mode::Wait)?;
        (outage.since.elapsed() >= self.longest).then_some(outage.error)
    }
}

/// Why an attempt ends without the lock.
enum End {
    Limit,
    /// The store was unreachable for the attempt's whole `store_wait`. Contains the store's error,
    /// if known.
    Store(Option<StoreError>),
}

impl Attempt {
    pub(crate) fn new(
        node: &Arc<Node>,
        request: Result<Request, LockError>,
        class: Arc<Class>,
        local: LocalOptions,
    ) -> Self {
        let state = AttemptState::New(Some(request));
        let (node, cell) = (Arc::clone(node), HoldCell::of(class));
        Self { node, cell, local, state, timer: None }
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.cell.position()
    }

    /// Returns the error of the last request to the store, if it has failed and is sent again;
    /// `None` otherwise.
    pub(crate) fn failure(&self) -> Option<LockError> {
        let AttemptState::Running(running) = &self.state else { return None };
        let error = self.node.read(|core| core.failure(running.attempt).cloned());
        error.map(|error| self.node.error(error))
    }

    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        let positions = self.cell.positions();
        if let AttemptState::Done = self.state {
            self.cell.close_positions();
        }
        positions
    }

    /// Sends the attempt's queue positions to this channel from now on. Does nothing if the
    /// positions already go to another channel.
    pub(crate) fn publish_positions_to(&self, positions: watch::Sender<Option<u64>>) {
        self.cell.publish_positions_to(positions);
    }

    /// Sends the present queue position to the channel.
    pub(crate) fn publish_position(&self) {
        self.cell.publish_position();
    }
}

/// Lowers the request's queue limit to the longest queue in which the predicted wait is within the
/// caller's wait limit. The server then refuses the request if the queue is longer, because only
/// the server knows the queue.
fn predict(request: &mut Request, cell: &mut HoldCell) {
    let Some((wait, class)) = request.options.wait.zip(cell.class()) else { return };
    let limit = request.options.queue_limit;
    if let Some(prediction) = class.predict(wait, limit, request.demand) {
        request.options.queue_limit = prediction.queue_limit;
        cell.predict(prediction);
    }
}

fn refused(lock: &LockName, cell: &HoldCell, error: &LockError) -> Note<HoldCell> {
    let refusal = Refusal::Kind(error.kind());
    Note::Refused { lock: lock.clone(), refusal, of: cell.clone() }
}

impl Limit {
    fn new(node: &Node, request: &Request) -> Self {
        let now = Instant::now();
        match (request.mode, request.options.wait) {
            (Mode::Try, _) => Self::Once(later(now, node.settings.request_timeout)),
            (_, Some(wait)) => Self::At(later(now, wait)),
            (_, None) => Self::Silence(request.options.lease.max(SILENCE), now),
        }
    }

    /// Returns the earliest instant at which this limit can end the attempt. Without a wait limit
    /// of the caller, successful requests of the node may still postpone the end.
    fn earliest(self) -> Instant {
        match self {
            Self::Once(at) | Self::At(at) => at,
            Self::Silence(silence, start) => start + silence,
        }
    }

    fn instant(self, node: &Node) -> Instant {
        match self {
            Self::Silence(silence, start) => node.last_success().max(start) + silence,
            _ => self.earliest(),
        }
    }

    /// Returns true if this limit ends the attempt now. A [`Silence`](Self::Silence) that is found
    /// over late begins anew: the process did not run meanwhile, or did not poll the attempt, so
    /// the silence is not the store's.
    fn is_over(&mut self, node: &Node) -> bool {
        let now = Instant::now();
        let Some(late) = now.checked_duration_since(self.instant(node)) else { return false };
        match self {
            Self::Silence(_, start) if late > LATE => {
                *start = now;
                false
            }
            _ => true,
        }
    }

    /// Returns true if the time that the caller has set is over.
    fn is_own_over(self) -> bool {
        matches!(self, Self::Once(at) | Self::At(at) if at <= Instant::now())
    }
}

impl RunningAttempt {
    fn begin(
        node: &Arc<Node>,
        mut request: Request,
        cell: &mut HoldCell,
        mut local: LocalOptions,
        (limit, store_wait): (Limit, StoreWait),
    ) -> Result<Self, LockError> {
        let lock = request.lock.clone();
        let demand = request.demand;
        local.label(&mut request, &node.observer);
        let span = node.observer.acquiring(&lock, cell);
        let begun = foreign::in_span(&span, || {
            if let Some(outage) = store_wait.outage(node, &lock, request.mode)
                && !node.read(Core::is_closed)
            {
                let error = node.error(outage);
                node.observer.note(&refused(&lock, cell, &error));
                return Err(error);
            }
            let slot = match &node.settings.wait_limit {
                Some(limit) => limit.take(request.mode).inspect_err(|error| {
                    node.observer.note(&refused(&lock, cell, error));
                })?,
                None => None,
            };
            let waits = request.mode == Mode::Wait;
            if local.refuses_early && waits {
                predict(&mut request, cell);
            }
            if local.records_holders && waits && !span.is_disabled() {
                cell.record_holders(span.clone(), request.label.clone());
            }
            let begun = node.with(|core| core.begin(request, cell.clone()));
            let Some((attempt, store_request)) = begun else { return Err(node.closed()) };
            if let Some(store_request) = store_request {
                node.send(store_request);
            }
            Ok((attempt, slot))
        });
        let ((attempt, slot), cell) = (begun?, cell.clone());
        Ok(Self { attempt, lock, cell, demand, limit, store_wait, span, _slot: slot })
    }

    /// Returns when the attempt's timer must fire next: at the time limit, or at the next check of
    /// the store if that is earlier.
    fn next_look(&self, node: &Node) -> Instant {
        let limit = self.limit.instant(node);
        self.store_wait.look_at.map_or(limit, |at| at.min(limit))
    }

    /// Checks whether the wait for the store has lasted too long. Returns `Some` if the attempt
    /// must fail, with the store's error if known. Otherwise returns `None` and schedules the next
    /// check.
    fn look_at_store(&mut self, node: &Node) -> Option<Option<StoreError>> {
        let now = Instant::now();
        let StoreWait { longest, look_at, leaves_in_outage } = self.store_wait;
        if look_at.is_none_or(|at| at > now) {
            return None;
        }
        let next = later(now, longest);
        let is_queued = self.cell.position().is_some();
        self.store_wait.look_at = match is_queued {
            false => match node.read(|core| core.awaits_store(self.attempt)) {
                Some(since) => {
                    let end = later(node.clock.instant(since), longest);
                    if end <= now {
                        return Some(None);
                    }
                    Some(end)
                }
                // The acquire was answered. Check again later, because the attempt waits for the
                // store again if a grant is lost.
                None => Some(next),
            },
            true if !leaves_in_outage => None,
            true => match node.store.outage(&self.lock, true) {
                Some(outage) if later(outage.since, longest) <= now => {
                    return Some(Some(outage.error));
                }
                Some(outage) => Some(later(outage.since, longest)),
                None => Some(next),
            },
        };
        None
    }

    /// Converts an outcome from the core, the node's state machine, to the caller's result; `None`
    /// if the attempt still waits.
    fn outcome(&self, node: &Arc<Node>, outcome: Outcome) -> Option<AttemptResult> {
        match outcome {
            Outcome::Waits => None,
            Outcome::Granted { number, token, since, waited } => {
                let lock = self.lock.clone();
                let cell = self.cell.clone();
                let grant = (number, token, since, waited);
                Some(Ok(Some(NodeGuard::new(node, lock, cell, self.demand, grant, &self.span))))
            }
            Outcome::Refused(Refusal::Busy) => Some(Ok(None)),
            Outcome::Refused(Refusal::Kind(LockErrorKind::Closed)) => Some(Err(node.closed())),
            Outcome::Refused(Refusal::Full(waiting)) => {
                let error = LockError::new(self.cell.kind_of_full());
                let queue = self.cell.prediction().map(|by| by.wait(waiting));
                Some(Err(error.retry_after_queue(queue)))
            }
            Outcome::Refused(Refusal::Kind(kind)) => Some(Err(LockError::new(kind))),
            Outcome::Refused(Refusal::Store(error)) => Some(Err(node.error(error))),
        }
    }

    /// Returns the instant until which this result is kept back; `None` if it is returned at once.
    /// Only refusals for a full queue or a long predicted wait are kept back.
    fn report_at(&self, node: &Node, outcome: &AttemptResult) -> Option<Instant> {
        use LockErrorKind::{QueueFull, WaitTooLong};
        let Err(error) = outcome else { return None };
        matches!(error.kind(), QueueFull | WaitTooLong)
            .then(|| node.refusals.turn(self.limit.instant(node)))
            .flatten()
    }

    /// Records the result in the tracing span of the wait. After a grant, also records the
    /// difference between the predicted and the actual wait.
    fn observe(&self, node: &Node, outcome: &AttemptResult) {
        let outcome = match outcome {
            Ok(Some(guard)) => {
                node.observer.predicted(&self.cell, guard.waited());
                Ok(guard.fencing_token().get())
            }
            Ok(None) => Err("busy"),
            Err(error) => Err(cause_of(error.kind())),
        };
        node.observer.acquired(&self.span, &self.cell, outcome);
    }

    /// Cancels an attempt whose time is up, and returns the error for the caller. If a result, such
    /// as a grant, has arrived in the meantime, returns that result instead.
    fn time_out(&self, node: &Arc<Node>, end: End) -> AttemptResult {
        let take = || {
            node.with(|core| {
                let outcome = core.take_last(self.attempt);
                let waits = matches!(outcome, Outcome::Waits);
                let is_answered = core.is_answered(self.attempt);
                (outcome, is_answered, waits.then(|| core.cancel(self.attempt)).flatten())
            })
        };
        let (outcome, is_answered, unanswered) = foreign::in_span(&self.span, take);
        if let Some(outcome) = self.outcome(node, outcome) {
            return outcome;
        }
        // In an outage a queued attempt waits for the store, too. On a Redis Cluster only the
        // primary of this lock counts.
        let unanswered = unanswered.or_else(|| node.store.why_down(&self.lock));
        let error = match (unanswered, end, self.limit) {
            (Some(error), ..) | (None, End::Store(Some(error)), _) => node.error(error),
            // The server is slow and not away, so nobody may continue without the lock.
            (None, End::Limit, Limit::Once(_)) if is_answered => {
                LockError::with_detail(LockErrorKind::Timeout, SLOW)
            }
            (None, End::Store(None), _) | (None, End::Limit, Limit::Once(_)) => {
                LockError::with_detail(LockErrorKind::Unavailable, "no reply in time")
            }
            (None, End::Limit, Limit::At(_)) => {
                let ahead = self.cell.prediction().zip(self.cell.position());
                let queue = ahead.map(|(by, ahead)| by.wait(ahead));
                LockError::new(LockErrorKind::Timeout).retry_after_queue(queue)
            }
            (None, End::Limit, Limit::Silence(silence, _)) => LockError::with_detail(
                LockErrorKind::Unavailable,
                format!("no request has succeeded for {silence:?}"),
            ),
        };
        let refused = refused(&self.lock, &self.cell, &error);
        foreign::in_span(&self.span, || node.observer.note(&refused));
        Err(error)
    }
}

/// Polls a refused attempt: returns the error once the timer has fired that delays the refusal.
/// Without a timer, the error is returned at once.
fn poll_refusal(
    state: &mut AttemptState,
    mut timer: Pin<&mut Option<Sleep>>,
    cx: &mut Context<'_>,
) -> Poll<AttemptResult> {
    match timer.as_mut().as_pin_mut() {
        Some(timer) => ready!(timer.poll(cx)),
        None => ready!(poll_proceed(cx)).made_progress(),
    }
    timer.set(None);
    match std::mem::replace(state, AttemptState::Done) {
        AttemptState::Refused(error) => Poll::Ready(Err(error)),
        _ => unreachable!("the attempt was refused"),
    }
}

impl Future for Attempt {
    type Output = AttemptResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AttemptResult> {
        let polled = self.as_mut().poll_outcome(cx);
        if polled.is_ready() {
            self.cell.close_positions();
            self.cell.forget_caller();
        }
        polled
    }
}

impl Attempt {
    fn poll_outcome(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AttemptResult> {
        let mut this = self.project();
        let has_just_asked = matches!(this.state, AttemptState::New(_));
        if let AttemptState::New(request) = this.state {
            let request = request.take().expect("taken once, on the first poll");
            *this.state = AttemptState::Done;
            let mut report_at = None;
            let begun = request.and_then(|request| {
                let limit = Limit::new(this.node, &request);
                let store_wait = StoreWait::new(this.node, *this.local);
                let first =
                    store_wait.look_at.map_or(limit.earliest(), |at| at.min(limit.earliest()));
                this.timer.set(Some(timer(first)));
                let limits = (limit, store_wait);
                let begun =
                    RunningAttempt::begin(this.node, request, this.cell, *this.local, limits);
                // With `leaves_in_outage`, the caller continues without the lock in an outage and
                // does not retry, so the error is not delayed.
                let is_at_once = |error: &LockError| {
                    error.kind() == LockErrorKind::Closed
                        || (this.local.leaves_in_outage && error.is_outage())
                };
                if matches!(&begun, Err(error) if !is_at_once(error)) {
                    report_at = this.node.refusals.turn(limit.instant(this.node));
                }
                begun
            });
            *this.state = match begun {
                Ok(running) => AttemptState::Running(running),
                Err(error) => {
                    this.timer.set(report_at.map(timer));
                    AttemptState::Refused(error)
                }
            };
        }
        if let AttemptState::Refused(_) = this.state {
            return poll_refusal(this.state, this.timer, cx);
        }
        let AttemptState::Running(running) = this.state else {
            panic!("the acquisition was polled after completion");
        };
        // The wait span is entered only here, because code that holds the lock has a span of its
        // own.
        let taken = foreign::in_span(&running.span, || {
            // Before the check, so that a later event wakes this task.
            running.cell.caller.register(cx.waker());
            let attempt = running.attempt;
            // An in-memory store has replied by now, but this task must still yield to other tasks.
            // The budget is checked before the outcome is taken, because the outcome could not be
            // kept.
            let budget = ready!(poll_proceed(cx));
            // Right after the request there is no outcome yet. Reading the core shows this at less
            // cost than an event.
            let is_asking = has_just_asked && this.node.read(|core| core.is_asking(attempt));
            let outcome = if is_asking {
                Outcome::Waits
            } else {
                this.node.with(|core| match core.take_last(attempt) {
                    // A lock that the caller did not take in time is requested again, but not only
                    // to cancel this request below. The clock is read only for this.
                    Outcome::Waits if !running.limit.is_own_over() => core.take(attempt),
                    outcome => outcome,
                })
            };
            if !matches!(outcome, Outcome::Waits) {
                budget.made_progress();
            }
            Poll::Ready(outcome)
        });
        let outcome = ready!(taken);
        if let Some(outcome) = running.outcome(this.node, outcome) {
            running.observe(this.node, &outcome);
            if let Some(at) = running.report_at(this.node, &outcome)
                && let Err(error) = outcome
            {
                *this.state = AttemptState::Refused(error);
                this.timer.as_mut().as_pin_mut().expect("set on the first poll").reset(at);
                return poll_refusal(this.state, this.timer, cx);
            }
            *this.state = AttemptState::Done;
            this.timer.set(None);
            return Poll::Ready(outcome);
        }
        loop {
            let mut timer = this.timer.as_mut().as_pin_mut().expect("set on the first poll");
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let end = match running.look_at_store(this.node) {
                Some(error) => End::Store(error),
                None => End::Limit,
            };
            if matches!(end, End::Limit) && !running.limit.is_over(this.node) {
                // The reply has arrived, or a request has succeeded since the timer was set. If the
                // next check of the store is due by now, the timer fires at once.
                timer.reset(running.next_look(this.node));
                continue;
            }
            let outcome = running.time_out(this.node, end);
            running.observe(this.node, &outcome);
            *this.state = AttemptState::Done;
            return Poll::Ready(outcome);
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Attempt {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        match this.state {
            AttemptState::New(_) => this.node.observer.unpolled(),
            AttemptState::Running(running) => {
                let attempt = running.attempt;
                this.node.with(|core| core.cancel(attempt));
                this.node.observer.acquired(&running.span, this.cell, Err("cancelled"));
                this.node.observer.cancelled(this.cell);
            }
            AttemptState::Refused(_) => {}
            // The waker in the cell may already be that of the hold's release.
            AttemptState::Done => return,
        }
        this.cell.close_positions();
        this.cell.forget_caller();
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            AttemptState::New(_) => "not started",
            AttemptState::Running(_) => "waiting",
            AttemptState::Refused(_) => "refused",
            AttemptState::Done => "done",
        })
    }
}
