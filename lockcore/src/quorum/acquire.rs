//! Quorum acquisition: requests primary after primary until a majority is held.
//!
//! # Implementation notes
//!
//! - An acquisition owns guards at some primaries, and queue positions at others. Dropping it at
//!   any point leaves nothing behind.
//! - An acquisition that cannot reach a majority keeps nobody waiting: it releases all holds. A
//!   primary that refuses requests counts as unreachable. But only a request shows whether it still
//!   refuses, so the acquisition then does a round about once a second.
//! - A hold left at a primary by a dead process delays others for a *hop* (the timeout per
//!   primary), and not for a lease: an acquisition that holds a lower primary continues with the
//!   next primary, and keeps the queue position. A *round* tries all primaries once. The hop
//!   doubles each round, up to a second, for networks with longer round trips.
//! - *No deadlock.* An acquisition waits without a timeout in two cases: it holds nothing, or it
//!   needs every remaining primary and waits at a primary below all held primaries. In the second
//!   case, the holder there holds a primary below all primaries of the waiter. So the lowest held
//!   primary falls along a chain of such waits, and the chain ends: with a guard, or with an
//!   acquisition that waits only for a hop. Before such a wait, an acquisition leaves all queues at
//!   lower primaries, because a grant there would break this order.
//! - *No starvation.* Each queue is FIFO, and the acquisition at the head leaves the primary within
//!   bounded time. At the lowest primary, this takes a hop for each other primary, or the time of a
//!   hold. At any other primary, waits at lower primaries may come first. A round without a
//!   majority leads to a queue position at a higher primary that has replied, so the number of
//!   rounds is small.
//! - *No convoy.* By these rules alone, waits would multiply. Requests that cannot reach a lower
//!   primary wait at a higher primary without a timeout. An acquisition that holds the lower
//!   primary queues behind all of them, and blocks the lower primary meanwhile. So an acquisition
//!   that finds a crowd at a higher primary releases all holds and waits there. Later requests of
//!   the process also queue there first: the primary becomes the *lead* of the lock. All then wait
//!   in a single queue, and find the other primaries free.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, join_all, select};
use proto::node::{Note, Refusal, Request};
use proto::{Demand, FencingToken, LockErrorKind, LockName, Mode, WhenBusy};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::primary::Step;
use super::queues::{Event, Failure, Place, Queues, next};
use super::{Hold, Primaries};
use crate::foreign::CallerWaker;
use crate::node::{Attempt, HoldCell, LocalOptions, SILENCE, SLOW, later, until};
use crate::types::error::LockError;

/// The first *hop*: how long an acquisition that holds a primary waits for another primary before
/// it continues with the next. A pass over all primaries is a *round*.
pub(crate) const HOP: Duration = Duration::from_millis(100);
/// The maximum hop. The hop begins with [`HOP`], and doubles with each round without a majority.
const LONGEST_HOP: Duration = Duration::from_secs(1);
/// The number of rounds without a majority after which an acquisition steps aside: it releases all
/// holds, and keeps only a queue position at a higher primary. If a crowd waits at that primary,
/// the acquisition steps aside after the first round.
const PATIENCE: u32 = 2;
/// The class of a request's attempts at all primaries but the first, and of attempts that acquire
/// missing primaries for a hold. Under the request's own class, the gauges would count the request
/// once for each primary.
pub(crate) const BEHIND: &str = "quorum";

/// The inputs of a quorum acquisition. The hold keeps them, to acquire missing primaries later.
#[derive(Clone)]
pub(crate) struct AcquireContext {
    pub(crate) primaries: Arc<Primaries>,
    pub(crate) request: Request,
    /// The cell with the request's class, for logs and metrics.
    pub(crate) of: HoldCell,
    pub(crate) local: LocalOptions,
}

impl AcquireContext {
    /// Labels the request with the caller's trace context, unless it has a label. Called once, so
    /// that the request has the same label at all primaries, including primaries acquired later by
    /// another task.
    fn label(&mut self) {
        self.local.label(&mut self.request, &self.primaries.observer);
    }

    /// Returns the request for a single primary, without `max_hold`. The quorum hold enforces this
    /// limit for all primaries together, because they are acquired at different times. A request
    /// that does not wait still queues at primaries, where it must replace no other request.
    pub(super) fn at_a_primary(&self) -> Request {
        let mut request = self.request.clone();
        request.options.max_hold = None;
        request.options.when_busy = WhenBusy::Wait;
        request
    }
}

/// The result of a quorum acquisition. `Ok(None)` means that the lock is busy, and the request does
/// not wait.
type QuorumAcquireResult = Result<Option<Arc<Hold>>, LockError>;

/// The future of a quorum acquisition. Sends nothing until polled. Dropping it leaves all queues,
/// and releases the primaries held so far.
pub(crate) struct QuorumAcquire {
    running: BoxFuture<'static, QuorumAcquireResult>,
    caller: CallerWaker,
    pub(crate) positions: watch::Receiver<Option<u64>>,
    /// The primaries, until the first poll. If the future is dropped before, their observer warns
    /// of a missing `.await`. `None` after the first poll, and if the request is invalid.
    unpolled: Option<Arc<Primaries>>,
}

impl QuorumAcquire {
    pub(crate) fn new(context: Result<AcquireContext, LockError>) -> Self {
        let (sender, positions) = watch::channel(None);
        let unpolled = context.as_ref().ok().map(|context| Arc::clone(&context.primaries));
        let running = async move {
            let context = context?;
            let reported = Reported::new(&context);
            let result = QuorumAcquireState::new(context, sender).run().await;
            reported.end(&result);
            result
        };
        Self { running: running.boxed(), caller: CallerWaker::default(), positions, unpolled }
    }
}

impl Future for QuorumAcquire {
    type Output = QuorumAcquireResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<QuorumAcquireResult> {
        let Self { running, caller, unpolled, .. } = &mut *self;
        *unpolled = None;
        // The view and the leads wake many callers at once, in a task of the quorum or in another
        // caller's poll.
        running.as_mut().poll(&mut Context::from_waker(caller.catching(cx.waker())))
    }
}

impl Drop for QuorumAcquire {
    fn drop(&mut self) {
        if let Some(primaries) = &self.unpolled {
            primaries.observer.unpolled();
        }
    }
}

impl fmt::Debug for QuorumAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumAcquire").finish_non_exhaustive()
    }
}

/// Reports the outcome of an acquisition to logs and metrics. If dropped before [`end`](Self::end),
/// it reports a cancellation.
struct Reported {
    primaries: Arc<Primaries>,
    lock: LockName,
    of: HoldCell,
    began: Instant,
    has_ended: bool,
}

impl Reported {
    fn new(context: &AcquireContext) -> Self {
        let (lock, of) = (context.request.lock.clone(), context.of.clone());
        let (primaries, began) = (Arc::clone(&context.primaries), Instant::now());
        Self { primaries, lock, of, began, has_ended: false }
    }

    fn end(mut self, result: &QuorumAcquireResult) {
        self.has_ended = true;
        let (lock, of) = (self.lock.clone(), self.of.clone());
        let is_timeout = |error: &LockError| error.kind() == LockErrorKind::Timeout;
        if result.as_ref().is_err_and(is_timeout) {
            self.note_wait();
        }
        self.primaries.observer.note(&match result {
            Ok(Some(hold)) => Note::Granted { lock, waited: hold.waited(), handed_over: false, of },
            Ok(None) => Note::Refused { lock, refusal: Refusal::Busy, of },
            Err(error) => Note::Refused { lock, refusal: Refusal::Kind(error.kind()), of },
        });
    }

    /// Reports a wait that ended without a grant.
    fn note_wait(&self) {
        let (lock, of) = (self.lock.clone(), self.of.clone());
        self.primaries.observer.note(&Note::Cancelled { lock, waited: self.began.elapsed(), of });
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        if !self.has_ended {
            self.note_wait();
            self.primaries.observer.cancelled(&self.of);
        }
    }
}

/// The state of a quorum acquisition in progress.
struct QuorumAcquireState {
    context: AcquireContext,
    began: Instant,
    /// When the acquisition has to end: after the caller's wait limit, or after the request timeout
    /// if the request does not wait. `None` without a limit.
    end: Option<Instant>,
    /// The hold at each primary, in list order; `None` where the lock is not held.
    held: Vec<Option<Step>>,
    /// The attempts in the queues of primaries, in list order.
    queued: Queues,
    positions: watch::Sender<Option<u64>>,
    /// The last response of each primary, in list order; `None` before the first response.
    last_responses: Vec<Option<LastResponse>>,
    /// Since when too few primaries for a guard accept the request, because others refuse it;
    /// `None` while enough do.
    refused: Option<Instant>,
}

/// A primary's last response.
enum LastResponse {
    /// The primary granted the lock, or queued the request.
    Answered,
    /// The attempt failed with this error.
    Failed(LockError),
}

impl LastResponse {
    /// Returns true if the primary refuses the request, so that it counts as unreachable. A primary
    /// that is busy, or whose queue is full, does not.
    fn is_refusal(&self) -> bool {
        use LockErrorKind::{QueueFull, Timeout, WaitTooLong};
        let Self::Failed(error) = self else { return false };
        !matches!(error.kind(), Timeout | QueueFull | WaitTooLong)
    }
}

impl QuorumAcquireState {
    fn new(mut context: AcquireContext, positions: watch::Sender<Option<u64>>) -> Self {
        let began = Instant::now();
        context.label();
        let request = &context.request;
        let end = match request.mode {
            Mode::Try => Some(context.primaries.terms.request_timeout),
            Mode::Wait => request.options.wait,
        };
        let end = end.map(|wait| later(began, wait));
        let n = context.primaries.members.len();
        let held = (0..n).map(|_| None).collect();
        let (queued, last_responses) =
            ((0..n).map(|_| None).collect(), (0..n).map(|_| None).collect());
        Self { context, began, end, held, queued, positions, last_responses, refused: None }
    }

    async fn run(mut self) -> QuorumAcquireResult {
        let primaries = Arc::clone(&self.context.primaries);
        let _slot = self.take_slot().await?;
        let _waits = Arc::clone(&primaries.waiting);
        let (mut hop, mut rounds) = (HOP, 0);
        loop {
            self.reach_enough().await?;
            self.drop_lost();
            let begun = Instant::now();
            if self.lowest_held().is_none() && !self.begin().await? {
                return Ok(None);
            }
            let round = Instant::now();
            if self.lowest_held().is_some()
                && let Some(refused) = &mut self.refused
            {
                // A wait in the queue is no part of the refusals before it.
                *refused += round - begun;
            }
            if let Some(hold) = self.run_round(hop).await? {
                return Ok(Some(hold));
            }
            if self.context.request.mode == Mode::Try {
                // A primary may respond later than within a hop.
                while self.awaits_response() && primaries.are_reached() && !self.is_late() {
                    if let Some(hold) = self.wait(None, Some(Instant::now() + hop)).await? {
                        return Ok(Some(hold));
                    }
                }
                return match self.have_enough_answered() {
                    true => Ok(None),
                    false => Err(self.out_of_time()),
                };
            }
            self.end_round()?;
            if self.is_refused() {
                // The time before the first queue position counts, but not a wait in the queue.
                let since = if self.has_queued() { round } else { begun };
                let since = *self.refused.get_or_insert(since);
                self.outwait_refusal(since).await?;
                (hop, rounds) = (HOP, 0);
                continue;
            }
            rounds += 1;
            if !self.step_aside(rounds) && primaries.are_reached() {
                // The round waits a hop at each primary, but not at a primary that refuses at once.
                // So wait here until at least a hop has passed since the round began.
                if let Some(hold) = self.wait(None, Some(round + hop)).await? {
                    return Ok(Some(hold));
                }
            }
            hop = (hop * 2).min(LONGEST_HOP);
        }
    }

    fn lowest_held(&self) -> Option<usize> {
        self.held.iter().position(Option::is_some)
    }

    /// Returns true if `ahead`, the number of waiters ahead at a primary, is a crowd: more than
    /// half the number of primaries. Only a few locks can hold a lower primary, so most waiters of
    /// a crowd hold none. Always false for a read: any number of reads hold a lower primary
    /// together, so the waiters ahead may all be such reads.
    fn is_crowd(&self, ahead: u64) -> bool {
        self.context.request.demand == Demand::EXCLUSIVE && ahead > (self.held.len() / 2) as u64
    }

    fn is_queued(&self) -> bool {
        self.queued.iter().any(Option::is_some)
    }

    /// Waits until a primary is held: at the primaries where this acquisition already queues, or
    /// else at the first reachable primary, and after a failure at the next. Returns false if the
    /// lock is busy and the request does not wait. Otherwise returns true, even without a hold if
    /// too few primaries are reachable or each attempt has failed.
    async fn begin(&mut self) -> Result<bool, LockError> {
        let primaries = Arc::clone(&self.context.primaries);
        let lock = self.context.request.lock.clone();
        let mut order = primaries.order(&lock).into_iter();
        let is_try = self.context.request.mode == Mode::Try;
        // An attempt that waits ends by itself in time. An attempt that does not wait has a whole
        // request timeout, even if an attempt at another primary failed before.
        let end = self.end.filter(|_| is_try);
        loop {
            if self.is_late() && (is_try || !self.is_queued()) {
                return Err(self.out_of_time());
            }
            if !self.is_queued() {
                let Some(at) = order.next().filter(|_| primaries.are_reached()) else {
                    return Ok(true);
                };
                self.join(at, true);
                continue;
            }
            match next(&primaries, Some(&lock), &mut self.queued, end).await {
                Event::Granted(at, step) => {
                    if self.positions.borrow().is_none() {
                        // Granted without a wait: there is no crowd, so this primary is no longer
                        // the lead.
                        primaries.clear_lead(&lock, at);
                    }
                    self.take(at, step);
                    return Ok(true);
                }
                Event::Busy => return Ok(false),
                Event::Failed(at, failure) => {
                    // Remove the lead, or this request would queue at the failed primary again at
                    // once.
                    primaries.clear_lead(&lock, at);
                    // A full queue there does not end a wait that has a position elsewhere.
                    let is_last = !self.is_queued();
                    self.pass(at, failure, is_last)?;
                    if self.is_refused() {
                        return Ok(true);
                    }
                }
                Event::Changed => {
                    self.drop_stale();
                    if !primaries.are_reached() {
                        return Ok(true);
                    }
                    // The waiters ahead are about to queue there, too.
                    if let Some(lead) = primaries.lead(&lock)
                        && self.is_queued()
                    {
                        self.join(lead, false);
                    }
                }
                Event::Late => {}
            }
        }
    }

    /// Does a round: requests the lock from the primaries not yet held, upwards from the lowest
    /// held primary, and then downwards. Waits for `hop` at each, but without a timeout at a lower
    /// primary if all remaining primaries are needed. Returns the hold once enough primaries are
    /// held, or `None` at the end of the round.
    async fn run_round(&mut self, hop: Duration) -> Result<Option<Arc<Hold>>, LockError> {
        let primaries = Arc::clone(&self.context.primaries);
        let n = self.held.len();
        let mut tried = vec![false; n];
        loop {
            self.drop_lost();
            let Some(lowest) = self.lowest_held() else { return Ok(None) };
            let is_open = |at: &usize| {
                !tried[*at] && self.held[*at].is_none() && primaries.server(*at).is_some()
            };
            let open: Vec<usize> = (lowest..n).chain((0..lowest).rev()).filter(is_open).collect();
            let Some(&at) = open.first().filter(|_| primaries.are_reached()) else {
                return Ok(None);
            };
            if self.is_late() {
                match self.context.request.mode {
                    Mode::Try => return Ok(None),
                    Mode::Wait => return Err(self.out_of_time()),
                }
            }
            // Once only primaries below the lowest held primary are left to try, the round ends if
            // they are too few for a guard.
            let missing = primaries.wanted() - self.held.iter().flatten().count();
            if at < lowest && open.len() < missing {
                return Ok(None);
            }
            let is_endless =
                at < lowest && open.len() == missing && self.context.request.mode == Mode::Wait;
            if is_endless {
                // A grant in a lower queue would become a hold below the primary it waits for.
                self.queued[..at].fill_with(|| None);
            }
            self.join(at, false);
            let until = (!is_endless).then(|| Instant::now() + hop);
            let hold = self.wait(Some(at), until).await?;
            if hold.is_some() {
                return Ok(hold);
            }
            let ahead = self.queued[at].as_ref().and_then(Place::ahead);
            if at > lowest && ahead.is_some_and(|ahead| self.is_crowd(ahead)) {
                primaries.set_lead(&self.context.request.lock, at);
            }
            // If a grant at a lower primary has ended the wait early, this primary does not count
            // as tried: the search starts again above the lower primary.
            tried[at] = self.lowest_held() == Some(lowest);
        }
    }

    /// Waits until the primary at index `at` grants or refuses the lock; without an `at`, until any
    /// primary grants it. Waits until the time `until` at most. Returns the hold if enough
    /// primaries are held by then.
    async fn wait(
        &mut self,
        at: Option<usize>,
        until: Option<Instant>,
    ) -> Result<Option<Arc<Hold>>, LockError> {
        let primaries = Arc::clone(&self.context.primaries);
        let until = until.map(|until| self.end.map_or(until, |end| end.min(until)));
        let lowest = self.lowest_held();
        // When the confirmation of all holds was sent; `None` while a hold is not confirmed.
        let mut confirmed: Option<Instant> = None;
        loop {
            // If only one primary is missing, confirm the other holds during the wait, because a
            // clock jump may have ended a hold. A confirmation also draws a new number. The token
            // of the last primary is mostly not above this number, and `build_hold` then sends no
            // request.
            let is_last =
                confirmed.is_none() && self.held.iter().flatten().count() + 1 >= primaries.wanted();
            let asked = Instant::now();
            let mut queued = std::mem::take(&mut self.queued);
            let (event, drawn) = {
                let event = pin!(next(&primaries, None, &mut queued, until));
                let confirmation = pin!(self.confirm(|_| is_last));
                match select(event, confirmation).await {
                    Either::Right((drawn, event)) => (event.await, Some(drawn)),
                    Either::Left((event @ Event::Granted(..), confirmation)) => {
                        (event, Some(confirmation.await))
                    }
                    // Without a grant nothing depends on the confirmation, and a silent primary
                    // would delay the end of the wait.
                    Either::Left((event, _)) => (event, None),
                }
            };
            self.queued = queued;
            if let Some(drawn) = drawn {
                self.note(drawn);
                confirmed = confirmed.or_else(|| is_last.then_some(asked));
            }
            match event {
                Event::Granted(of, step) => {
                    self.take(of, step);
                    if self.holds_enough() {
                        if confirmed.is_none_or(|at| at.elapsed() > HOP) {
                            // The holds were confirmed more than a hop ago, so confirm them again.
                            let drawn = self.confirm(|_| true).await;
                            self.note(drawn);
                        }
                        if let Some(hold) = self.build_hold().await {
                            return Ok(Some(hold));
                        }
                    }
                    // Another grant may follow, and the new hold is not confirmed.
                    confirmed = None;
                    // After a grant at a lower primary, continue above that primary.
                    if self.lowest_held() != lowest
                        || at.is_none_or(|at| of == at || self.queued[at].is_none())
                    {
                        return Ok(None);
                    }
                }
                Event::Failed(of, failure) => {
                    self.pass(of, failure, false)?;
                    if at == Some(of) {
                        return Ok(None);
                    }
                }
                Event::Changed => {
                    self.drop_stale();
                    if !primaries.are_reached() || at.is_some_and(|at| self.queued[at].is_none()) {
                        return Ok(None);
                    }
                }
                Event::Busy | Event::Late => return Ok(None),
            }
        }
    }

    /// Queues at the primary at index `at`, unless it is unreachable, or already queued there. The
    /// attempt at the first primary (`is_first`) has the request's own mode, class and local
    /// options, and reports queue positions to the caller. Other attempts wait in any case.
    fn join(&mut self, at: usize, is_first: bool) {
        let primaries = &self.context.primaries;
        let (Some(server), Some(node)) = (primaries.server(at), primaries.members[at].node())
        else {
            return;
        };
        if self.queued[at].is_some() {
            return;
        }
        let mut request = self.context.at_a_primary();
        request.options.wait = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if !is_first {
            request.mode = Mode::Wait;
        }
        if self.lowest_held().is_some() {
            // The limit applied where the request has queued first. A refusal here would leave a
            // hold at a lower primary without a queue position for which to release it.
            request.options.queue_limit = u32::MAX;
        }
        let class = if is_first { self.context.of.class_name() } else { BEHIND };
        let local = match self.context.local {
            local if is_first => local,
            LocalOptions { store_wait, .. } => {
                LocalOptions { store_wait, ..LocalOptions::LABELLED }
            }
        };
        let attempt = Attempt::new(node, Ok(request), node.classes.get(class), local);
        if is_first {
            // Published by the node itself, even while nothing polls this acquisition.
            attempt.publish_positions_to(self.positions.clone());
        }
        self.queued[at] = Some(Place { attempt: Box::pin(attempt), server });
    }

    fn take(&mut self, at: usize, step: Step) {
        self.last_responses[at] = Some(LastResponse::Answered);
        self.held[at] = Some(step);
    }

    /// Leaves the queues of primaries that are unreachable, or that are another server since a
    /// restart or a loss of data.
    fn drop_stale(&mut self) {
        for (at, place) in self.queued.iter_mut().enumerate() {
            let server = self.context.primaries.server(at);
            drop(place.take_if(|place| server != Some(place.server)));
        }
    }

    /// Makes way for other acquisitions after `rounds` rounds without a majority: releases all
    /// holds, and keeps only the queue position at a higher primary. Does so if a crowd waits at
    /// that primary, or after [`PATIENCE`] rounds. Returns true if it did.
    fn step_aside(&mut self, rounds: u32) -> bool {
        let Some(lowest) = self.lowest_held() else { return false };
        let ahead = |at: &usize| self.queued[*at].as_ref().and_then(Place::ahead);
        let is_enough = |ahead: u64| self.is_crowd(ahead) || rounds >= PATIENCE;
        let Some(at) = (lowest + 1..self.held.len()).find(|at| ahead(at).is_some_and(is_enough))
        else {
            return false;
        };
        self.held.fill_with(|| None);
        for (other, place) in self.queued.iter_mut().enumerate() {
            drop(place.take_if(|_| other != at));
        }
        true
    }

    /// Takes a permit of the [`wait_limit`](Primaries) for all attempts of this acquisition. If too
    /// few primaries have been reachable for the `store_wait`, fails with the error of this outage
    /// instead, even if no permit is left.
    async fn take_slot(&mut self) -> Result<Option<OwnedSemaphorePermit>, LockError> {
        let primaries = Arc::clone(&self.context.primaries);
        let lacking = primaries.view.borrow().lacking;
        if lacking.is_some_and(|since| since.elapsed() >= self.store_wait()) {
            self.reach_enough().await?;
        }
        let slot = primaries.wait_limit.take(self.context.request.mode);
        if slot.is_err()
            && let Some(at) = primaries.refusals.turn(self.limit(Instant::now()))
        {
            sleep_until(at).await;
        }
        slot
    }

    /// Returns how long a request that is not queued waits for enough reachable primaries.
    fn store_wait(&self) -> Duration {
        let AcquireContext { primaries, local, .. } = &self.context;
        local.store_wait.unwrap_or(primaries.terms.request_timeout)
    }

    /// Returns when a wait for primaries that begins at `from` has to end.
    fn limit(&self, from: Instant) -> Instant {
        let silence = self.context.request.options.lease.max(SILENCE);
        self.end.unwrap_or_else(|| later(from, silence))
    }

    /// Waits until enough primaries for a guard are reachable; returns at once if they are. Before
    /// waiting, releases all holds and leaves all queues. Waits for `store_wait`, or for longer if
    /// the request was queued. Returns an error when this time is over, for a request that does not
    /// wait, and after a shutdown.
    async fn reach_enough(&mut self) -> Result<(), LockError> {
        let primaries = Arc::clone(&self.context.primaries);
        let mut view = primaries.view.subscribe();
        if view.borrow().is_closed {
            return Err(primaries.closed());
        }
        let Some(lacking) = view.borrow().lacking else { return Ok(()) };
        self.queued.fill_with(|| None);
        self.held.fill_with(|| None);
        let end = self.end_of_outage(Instant::now(), lacking);
        let AcquireContext { request, local, .. } = &self.context;
        let reached = view.wait_for(|view| view.is_closed || view.lacking.is_none());
        if request.mode == Mode::Wait && timeout_at(end, reached).await.is_ok() {
            return Ok(());
        }
        let latest = self.end.unwrap_or(end);
        if !local.leaves_in_outage
            && let Some(at) = primaries.refusals.turn(latest)
        {
            sleep_until(at).await;
        }
        Err(primaries.unreached())
    }

    /// Returns true if the acquisition was queued at its first primary.
    fn has_queued(&self) -> bool {
        self.positions.borrow().is_some()
    }

    /// Returns when the acquisition ends if too few primaries for a guard can be used: at the end
    /// of `store_wait` after `since`, or later if the request was queued. `from` is the begin of
    /// this wait of the request.
    fn end_of_outage(&self, from: Instant, since: Instant) -> Instant {
        let end = self.limit(from);
        if self.has_queued() && !self.context.local.leaves_in_outage {
            return end;
        }
        end.min(later(since, self.store_wait()))
    }

    /// Returns true if so many reachable primaries refuse the request that the others are too few
    /// for a guard.
    fn is_refused(&mut self) -> bool {
        self.note_answers();
        let primaries = &self.context.primaries;
        let (mut accepting, mut usable) = (0, 0);
        for at in (0..self.held.len()).filter(|at| primaries.server(*at).is_some()) {
            let place = self.queued[at].as_ref();
            let accepts = self.held[at].is_some() || place.is_some_and(|at| at.ahead().is_some());
            // An attempt that is under way may end an earlier refusal.
            let is_new = place.is_some_and(|place| place.attempt.failure().is_none());
            // While a connection is down, the view decides whether the primary counts.
            let refuses = primaries.members[at].is_connected()
                && self.last_responses[at].as_ref().is_some_and(LastResponse::is_refusal);
            accepting += usize::from(accepts);
            usable += usize::from(accepts || is_new || !refuses);
        }
        if accepting >= primaries.wanted() {
            self.refused = None;
        }
        usable < primaries.wanted() && primaries.are_reached()
    }

    /// Waits before the next round while primaries refuse the request; `since` is the begin of the
    /// refusals. Before waiting, releases all holds and leaves all queues, as for unreachable
    /// primaries. Returns the error of a refusal when the time is over.
    async fn outwait_refusal(&mut self, since: Instant) -> Result<(), LockError> {
        self.queued.fill_with(|| None);
        self.held.fill_with(|| None);
        let mut view = self.context.primaries.view.subscribe();
        let end = self.end_of_outage(since, since);
        // A change of the reachable primaries may also be a shutdown.
        let _ = timeout_at(end.min(Instant::now() + LONGEST_HOP), view.changed()).await;
        if Instant::now() < end {
            // Refusals of the past would keep the next round from primaries that accept again.
            for response in &mut self.last_responses {
                drop(response.take_if(|response| response.is_refusal()));
            }
            return Ok(());
        }
        Err(self.last_failure().unwrap_or_else(|| self.out_of_time()))
    }

    /// Handles the failure of the attempt at index `at`. Returns the error if the acquisition ends
    /// with it: always for `Closed`, and during the wait for the first hold for a wait limit or a
    /// queue limit, if the acquisition is queued nowhere else (`is_last`). Otherwise records the
    /// failure, and the acquisition continues with the other primaries.
    fn pass(&mut self, at: usize, failure: Failure, is_last: bool) -> Result<(), LockError> {
        let Failure { error, was_queued } = failure;
        match error.kind() {
            LockErrorKind::Closed => Err(error),
            LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::WaitTooLong
                if is_last =>
            {
                Err(error)
            }
            LockErrorKind::Timeout => {
                if was_queued {
                    self.last_responses[at] = Some(LastResponse::Answered);
                }
                Ok(())
            }
            _ => {
                self.last_responses[at] = Some(LastResponse::Failed(error));
                Ok(())
            }
        }
    }

    /// Checks, after a round without a majority, whether another round makes sense. Returns an
    /// error if the time limit is over, or if so many primaries refuse for good that the others are
    /// too few. Memory that is full counts as such a refusal, as on a single server.
    fn end_round(&mut self) -> Result<(), LockError> {
        self.note_answers();
        let is_for_good = |error: &LockError| {
            error.kind() == LockErrorKind::OutOfMemory
                || !error.is_retryable() && !error.is_outage()
        };
        let refuses = |response: &&Option<LastResponse>| match response {
            Some(LastResponse::Failed(error)) => is_for_good(error),
            _ => false,
        };
        let refusing = self.last_responses.iter().filter(refuses).count();
        let is_hopeless = self.held.len() - refusing < self.context.primaries.wanted();
        if is_hopeless || self.is_late() { Err(self.out_of_time()) } else { Ok(()) }
    }

    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the error of an acquisition that ended without a majority: the
    /// [`failure`](Self::failure) of a primary, or `Timeout` if the lock was merely busy. A request
    /// that does not wait ends so only if too few primaries have responded.
    fn out_of_time(&mut self) -> LockError {
        let failure = self.failure();
        let AcquireContext { primaries, request, .. } = &self.context;
        failure.unwrap_or_else(|| match request.mode {
            Mode::Try if !primaries.are_reached() => primaries.unreached(),
            Mode::Try => LockError::with_detail(LockErrorKind::Unavailable, "no reply in time"),
            Mode::Wait => LockError::new(LockErrorKind::Timeout),
        })
    }

    /// Returns true if too few primaries for a guard have responded, and another has not yet.
    fn awaits_response(&mut self) -> bool {
        !self.have_enough_answered()
            && self.queued.iter().flatten().any(|place| place.ahead().is_none())
    }

    /// Records which attempts are queued, and which have failed and are repeated. Polls no attempt:
    /// the outcome would be lost.
    fn note_answers(&mut self) {
        for (place, response) in self.queued.iter().zip(&mut self.last_responses) {
            let Some(place) = place else { continue };
            if place.ahead().is_some() {
                *response = Some(LastResponse::Answered);
            } else if let Some(error) = place.attempt.failure() {
                *response = Some(LastResponse::Failed(error));
            }
        }
    }

    /// Returns true if enough primaries for a guard have granted the lock or queued the request.
    fn have_enough_answered(&mut self) -> bool {
        self.note_answers();
        let answered = self
            .last_responses
            .iter()
            .flatten()
            .filter(|response| matches!(response, LastResponse::Answered));
        answered.count() >= self.context.primaries.wanted()
    }

    /// Returns the error of the last primary in the list whose attempt has failed. `None` if none
    /// has, or if enough other primaries have responded, because then the lock is merely busy.
    fn failure(&mut self) -> Option<LockError> {
        if self.have_enough_answered() {
            return None;
        }
        self.last_failure()
    }

    /// Returns the error of the last primary in the list whose attempt has failed, or `None`.
    fn last_failure(&self) -> Option<LockError> {
        self.last_responses.iter().flatten().rev().find_map(|response| match response {
            LastResponse::Failed(error) => Some(error.clone()),
            LastResponse::Answered => None,
        })
    }

    fn drop_lost(&mut self) {
        for (at, step) in self.held.iter_mut().enumerate() {
            drop(step.take_if(|step| !self.context.primaries.members[at].has(step)));
        }
    }

    fn holds_enough(&mut self) -> bool {
        self.drop_lost();
        self.held.iter().flatten().count() >= self.context.primaries.wanted()
    }

    /// Confirms the holds for which `is_asked` returns true: renews each, and draws another number
    /// from the primary's token counter. Returns the index of each of these primaries, with the
    /// number drawn, or with the error if the hold could not be confirmed before the acquisition
    /// has to end.
    async fn confirm(
        &self,
        is_asked: impl Fn(&Step) -> bool,
    ) -> Vec<(usize, Result<FencingToken, LockError>)> {
        let held = self.held.iter().enumerate().filter_map(|(at, step)| Some((at, step.as_ref()?)));
        let asked = held.filter(|(_, step)| is_asked(step));
        let confirmations = asked.map(async |(at, step)| {
            let drawn = tokio::select! {
                biased;
                drawn = step.guard.confirm() => drawn,
                () = until(self.end) => Err(LockError::with_detail(LockErrorKind::Timeout, SLOW)),
            };
            (at, drawn)
        });
        join_all(confirmations).await
    }

    /// Records the results of [`confirm`](Self::confirm): stores the numbers drawn, and releases
    /// the holds that could not be confirmed.
    fn note(&mut self, drawn: Vec<(usize, Result<FencingToken, LockError>)>) {
        for (at, drawn) in drawn {
            match drawn {
                Ok(drawn) => {
                    if let Some(step) = &mut self.held[at] {
                        step.drawn = drawn;
                    }
                }
                Err(error) => {
                    drop(self.held[at].take());
                    // The grant no longer shows that the primary responds. A hold that was lost
                    // meanwhile shows nothing either.
                    let is_lost = error.kind() == LockErrorKind::Lost;
                    self.last_responses[at] = (!is_lost).then_some(LastResponse::Failed(error));
                }
            }
        }
    }

    /// Creates the quorum hold from the held primaries: the step *settle* in `docs/quorum.md`.
    /// First draws another number from each token counter below the guard's token, and drops the
    /// holds whose counter stays below, so that the next guard has a greater token. Returns `None`
    /// if fewer primaries than needed remain.
    async fn build_hold(&mut self) -> Option<Arc<Hold>> {
        let steps = self.held.iter().flatten();
        let token = steps.map(|step| step.guard.fencing_token()).max()?;
        // Only exclusive guards have a token on a quorum, so reads skip this step.
        if self.context.request.demand == Demand::EXCLUSIVE {
            // Each server has returned a token by now, so each token floor includes the
            // greatest.
            let drawn = self.confirm(|step| step.drawn < token).await;
            self.note(drawn);
            self.held.iter_mut().for_each(|step| drop(step.take_if(|step| step.drawn < token)));
        }
        if !self.holds_enough() {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        let waited = self.began.elapsed();
        let position = *self.positions.borrow();
        Some(Hold::new(self.context.clone(), held, token, waited, position))
    }
}
