//! The climb: one acquisition from primary to primary, until a majority is held.
//!
//! # Implementation notes
//!
//! - It holds guards of the primaries, and places in the queues of others. Dropping it at any point
//!   drops these, and so leaves nothing behind.
//! - A climb that cannot reach a majority keeps nobody waiting: it gives everything back.
//! - A hold that its owner could not release stands in the way of others for a hop, and not for its
//!   lease: a climb that holds a lower primary passes by. A hop is longer in each round, up to a
//!   second, for networks that are slower than the first one. It keeps its place there.
//! - *No deadlock.* A climb waits without an end where it holds nothing, and below all that it
//!   holds where it needs each primary that is left. So the lowest hold of the one for whom it
//!   waits is lower than its own: along a chain of such waits they fall, and the chain ends with a
//!   guard, or with a climb that waits for a hop. It leaves the queues below such a wait, where a
//!   grant would make it hold a lower one.
//! - *No starvation.* Each queue is in order, and whoever has come to its head leaves the primary
//!   within bounded time: the lowest one after a hop at each other primary, or a hold, and each
//!   other one after its waits below. A round without a majority leads to a place at a higher
//!   primary that has answered, and so there are not many.
//! - *No convoy.* By that alone, one who waits could wait for the queues of two primaries
//!   multiplied: those that do not reach a lower primary wait at a higher one without a hop, and a
//!   climb that keeps its lower one meanwhile keeps all behind it waiting for that whole queue. So
//!   a climb that finds many there gives back what it holds and waits among them, and so does its
//!   process from then on: all wait in one queue, and find the others free.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use proto::node::{Note, Refusal, Request};
use proto::{Demand, FencingToken, LockErrorKind, LockName, Mode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::primary::Step;
use super::queues::{Event, Failure, Place, Queues, next};
use super::{Hold, Primaries};
use crate::node::{Attempt, HoldCell, LocalOptions, SILENCE, later};
use crate::types::error::LockError;

/// The time for which a climb that holds a primary waits for a higher one, in its first round.
pub(crate) const HOP: Duration = Duration::from_millis(100);
/// The same at most.
const LONGEST_HOP: Duration = Duration::from_secs(1);
/// The rounds after which a climb makes way for others although it is next at a higher primary.
const PATIENCE: u32 = 2;
/// The class of acquisitions behind the first primary, and of those that heal a hold: the gauges of
/// the request's class count it once.
pub(crate) const BEHIND: &str = "quorum";

/// One acquisition of a name by a majority.
#[derive(Clone)]
pub(crate) struct Ascent {
    pub(crate) primaries: Arc<Primaries>,
    pub(crate) request: Request,
    /// The class of the request.
    pub(crate) of: HoldCell,
    pub(crate) local: LocalOptions,
}

impl Ascent {
    /// Labels the request: with the same trace context at all primaries, also at those that are
    /// gained later, by another task.
    fn label(&mut self) {
        self.local.label(&mut self.request, &self.primaries.observer);
    }

    /// The request at one of the primaries. The hold of all has the longest hold: one at a primary
    /// may be gained later.
    pub(super) fn at_a_primary(&self) -> Request {
        let mut request = self.request.clone();
        request.options.max_hold = None;
        request
    }
}

/// The result of a climb; `None` is "busy", for those that do not wait.
type ClimbResult = Result<Option<Arc<Hold>>, LockError>;

/// The future of an acquisition by a majority.
pub(crate) struct Climb {
    running: BoxFuture<'static, ClimbResult>,
    pub(crate) positions: watch::Receiver<Option<u64>>,
    /// Until it is polled.
    unpolled: Option<Arc<Primaries>>,
}

impl Climb {
    pub(crate) fn new(ascent: Result<Ascent, LockError>) -> Self {
        let (told, positions) = watch::channel(None);
        let unpolled = ascent.as_ref().ok().map(|ascent| Arc::clone(&ascent.primaries));
        let running = async move {
            let ascent = ascent?;
            let reported = Reported::new(&ascent);
            let result = Climbing::new(ascent, told).run().await;
            reported.end(&result);
            result
        };
        Self { running: running.boxed(), positions, unpolled }
    }
}

impl Future for Climb {
    type Output = ClimbResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ClimbResult> {
        self.unpolled = None;
        self.running.as_mut().poll(cx)
    }
}

impl Drop for Climb {
    fn drop(&mut self) {
        if let Some(primaries) = &self.unpolled {
            primaries.observer.unpolled();
        }
    }
}

impl fmt::Debug for Climb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Climb").finish_non_exhaustive()
    }
}

/// Reports the outcome of one climb, or that its caller has dropped it.
struct Reported {
    primaries: Arc<Primaries>,
    lock: LockName,
    of: HoldCell,
    has_ended: bool,
}

impl Reported {
    fn new(ascent: &Ascent) -> Self {
        let (lock, of) = (ascent.request.lock.clone(), ascent.of.clone());
        Self { primaries: Arc::clone(&ascent.primaries), lock, of, has_ended: false }
    }

    fn end(mut self, result: &ClimbResult) {
        self.has_ended = true;
        let (lock, of) = (self.lock.clone(), self.of.clone());
        self.primaries.observer.note(&match result {
            Ok(Some(hold)) => Note::Granted { lock, waited: hold.waited(), handed_over: false, of },
            Ok(None) => Note::Refused { lock, refusal: Refusal::Busy, of },
            Err(error) => Note::Refused { lock, refusal: Refusal::Kind(error.kind()), of },
        });
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        if !self.has_ended {
            self.primaries.observer.cancelled(&self.of);
        }
    }
}

/// A climb under way.
struct Climbing {
    ascent: Ascent,
    began: Instant,
    /// The end of the caller's wait, or of the one try.
    end: Option<Instant>,
    held: Vec<Option<Step>>,
    /// The queues in which it stands.
    queued: Queues,
    positions: watch::Sender<Option<u64>>,
    /// The last word of each primary.
    told: Vec<Option<Told>>,
}

/// The last word of a primary.
enum Told {
    /// The lock, or a place in the queue.
    Answered,
    Failed(LockError),
}

impl Climbing {
    fn new(mut ascent: Ascent, positions: watch::Sender<Option<u64>>) -> Self {
        let began = Instant::now();
        ascent.label();
        let request = &ascent.request;
        let end = match request.mode {
            Mode::Try => Some(ascent.primaries.terms.request_timeout),
            Mode::Wait => request.options.wait,
        };
        let end = end.map(|wait| later(began, wait));
        let n = ascent.primaries.members.len();
        let held = (0..n).map(|_| None).collect();
        let (queued, told) = ((0..n).map(|_| None).collect(), (0..n).map(|_| None).collect());
        Self { ascent, began, end, held, queued, positions, told }
    }

    async fn run(mut self) -> ClimbResult {
        let primaries = Arc::clone(&self.ascent.primaries);
        let _waits = Arc::clone(&primaries.waiting);
        let (mut hop, mut rounds) = (HOP, 0);
        loop {
            self.reach_enough().await?;
            self.drop_lost();
            if self.lowest_held().is_none() && !self.begin().await? {
                return Ok(None);
            }
            let round = Instant::now();
            if let Some(hold) = self.climb(hop).await? {
                return Ok(Some(hold));
            }
            if self.ascent.request.mode == Mode::Try {
                return self.failure().map_or(Ok(None), Err);
            }
            self.end_round()?;
            rounds += 1;
            if !self.step_aside(rounds) && primaries.are_reached() {
                // Those that did not refuse have been waited for. The others get that time, too.
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

    /// Whether so many wait ahead that they come on another way: of those that hold a lower primary
    /// there are but a few.
    fn is_crowd(&self, ahead: u64) -> bool {
        ahead > (self.held.len() / 2) as u64
    }

    fn is_queued(&self) -> bool {
        self.queued.iter().any(Option::is_some)
    }

    /// Waits with nothing held: where it stands already, or at the first primary that is reached.
    /// Whether the climb goes on: not if it is not to wait.
    async fn begin(&mut self) -> Result<bool, LockError> {
        let primaries = Arc::clone(&self.ascent.primaries);
        let lock = self.ascent.request.lock.clone();
        let mut order = primaries.order(&lock).into_iter();
        loop {
            if !self.is_queued() {
                if self.is_late() && self.ascent.request.mode == Mode::Wait {
                    return Err(self.out_of_time());
                }
                let Some(at) = order.next().filter(|_| primaries.are_reached()) else {
                    return Ok(true);
                };
                self.join(at, true);
                continue;
            }
            match next(&primaries, Some(&lock), &mut self.queued, None).await {
                Event::Granted(at, step) => {
                    if self.positions.borrow().is_none() {
                        // It was free there.
                        primaries.follow_no_lead(&lock, at);
                    }
                    self.take(at, step);
                    return Ok(true);
                }
                Event::Busy => return Ok(false),
                Event::Failed(at, failure) => {
                    // Else it would join there again at once.
                    primaries.follow_no_lead(&lock, at);
                    self.pass(at, failure, true)?;
                }
                Event::Changed => {
                    self.drop_stale();
                    if !primaries.are_reached() {
                        return Ok(true);
                    }
                    // Those ahead of it are about to do so, too.
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

    /// Goes through the primaries beside those that are held: upwards from the lowest one that is
    /// held, and then downwards from it.
    async fn climb(&mut self, hop: Duration) -> Result<Option<Arc<Hold>>, LockError> {
        let primaries = Arc::clone(&self.ascent.primaries);
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
                match self.ascent.request.mode {
                    Mode::Try => return Ok(None),
                    Mode::Wait => return Err(self.out_of_time()),
                }
            }
            // Of those below it needs all that are left, or has not enough of them.
            let missing = primaries.wanted() - self.held.iter().flatten().count();
            if at < lowest && open.len() < missing {
                return Ok(None);
            }
            let is_endless =
                at < lowest && open.len() == missing && self.ascent.request.mode == Mode::Wait;
            if is_endless {
                // A grant there would be a hold below the primary at which it waits.
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
                primaries.follow_lead(&self.ascent.request.lock, at);
            }
            // Where it has come to hold a lower one, what is below begins there.
            tried[at] = self.lowest_held() == Some(lowest);
        }
    }

    /// Waits until this primary is held, or refuses, or the time is over. Completes with the hold
    /// if a majority is held by then.
    async fn wait(
        &mut self,
        at: Option<usize>,
        until: Option<Instant>,
    ) -> Result<Option<Arc<Hold>>, LockError> {
        let primaries = Arc::clone(&self.ascent.primaries);
        let until = until.map(|until| self.end.map_or(until, |end| end.min(until)));
        let (began, lowest) = (Instant::now(), self.lowest_held());
        // Meanwhile, if it is the last one that is missing, the others are confirmed: one whose
        // clock has jumped may have forgotten its hold. And mostly the token of the last one is not
        // above the numbers that they draw.
        let mut is_last = self.held.iter().flatten().count() + 1 >= primaries.wanted();
        loop {
            let mut queued = std::mem::take(&mut self.queued);
            let (event, drawn) =
                tokio::join!(next(&primaries, None, &mut queued, until), self.confirm(|_| is_last));
            self.queued = queued;
            self.note(drawn);
            is_last = false;
            match event {
                Event::Granted(of, step) => {
                    self.take(of, step);
                    if self.is_high_enough() {
                        if began.elapsed() > HOP {
                            // The confirmation was long ago.
                            let drawn = self.confirm(|_| true).await;
                            self.note(drawn);
                        }
                        if let Some(hold) = self.settle().await {
                            return Ok(Some(hold));
                        }
                    }
                    // Where it has come to hold a lower one, it waits above that.
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

    /// Stands in the queue of a primary, once.
    fn join(&mut self, at: usize, is_first: bool) {
        let primaries = &self.ascent.primaries;
        let (Some(server), Some(node)) = (primaries.server(at), primaries.members[at].node())
        else {
            return;
        };
        if self.queued[at].is_some() {
            return;
        }
        let mut request = self.ascent.at_a_primary();
        request.options.wait = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if !is_first {
            request.mode = Mode::Wait;
        }
        let class = if is_first { self.ascent.of.class_name() } else { BEHIND };
        let local = match self.ascent.local {
            local if is_first => local,
            LocalOptions { store_wait, .. } => {
                LocalOptions { store_wait, ..LocalOptions::LABELLED }
            }
        };
        let attempt = Attempt::new(node, Ok(request), node.classes.get(class), local);
        if is_first {
            // Told by the node itself, also while nobody polls the climb.
            attempt.tell_positions(self.positions.clone());
        }
        self.queued[at] = Some(Place { attempt: Box::pin(attempt), server });
    }

    fn take(&mut self, at: usize, step: Step) {
        self.told[at] = Some(Told::Answered);
        self.held[at] = Some(step);
    }

    /// Leaves the queues of primaries that are not reached any more.
    fn drop_stale(&mut self) {
        for (at, place) in self.queued.iter_mut().enumerate() {
            let server = self.ascent.primaries.server(at);
            drop(place.take_if(|place| server != Some(place.server)));
        }
    }

    /// After a round without a majority: others come to a higher primary on another way. Gives back
    /// all that is held, for those that come behind, and keeps its place among these others.
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

    /// Gives everything back until enough primaries are reached: for the wait for the store, unless
    /// it is queued.
    async fn reach_enough(&mut self) -> Result<(), LockError> {
        let primaries = Arc::clone(&self.ascent.primaries);
        let mut view = primaries.view.subscribe();
        if view.borrow().is_closed {
            return Err(primaries.closed());
        }
        let Some(lacking) = view.borrow().lacking else { return Ok(()) };
        self.queued.fill_with(|| None);
        self.held.fill_with(|| None);
        let Ascent { request, local, .. } = &self.ascent;
        let silence = request.options.lease.max(SILENCE);
        let mut end = self.end.unwrap_or_else(|| later(Instant::now(), silence));
        let is_queued = self.positions.borrow().is_some();
        if local.leaves_in_outage || !is_queued {
            let store_wait = local.store_wait.unwrap_or(primaries.terms.request_timeout);
            end = end.min(later(lacking, store_wait));
        }
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

    /// Goes on without a primary that refuses, unless the refusal is the answer to the caller.
    fn pass(&mut self, at: usize, failure: Failure, is_first: bool) -> Result<(), LockError> {
        let Failure { error, was_queued } = failure;
        match error.kind() {
            LockErrorKind::Closed => Err(error),
            LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::WaitTooLong
                if is_first =>
            {
                Err(error)
            }
            LockErrorKind::Timeout => {
                if was_queued {
                    self.told[at] = Some(Told::Answered);
                }
                Ok(())
            }
            _ => {
                self.told[at] = Some(Told::Failed(error));
                Ok(())
            }
        }
    }

    /// Ends a round without enough primaries, and the climb if there is no time for another one, or
    /// if that could not have them either.
    fn end_round(&mut self) -> Result<(), LockError> {
        let refuses = |told: &&Option<Told>| match told {
            Some(Told::Failed(error)) => !error.is_retryable() && !error.is_outage(),
            _ => false,
        };
        let refusing = self.told.iter().filter(refuses).count();
        let is_hopeless = self.held.len() - refusing < self.ascent.primaries.wanted();
        if is_hopeless || self.is_late() { Err(self.out_of_time()) } else { Ok(()) }
    }

    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// The error of a climb that has ended without a majority.
    fn out_of_time(&mut self) -> LockError {
        self.failure().unwrap_or_else(|| LockError::new(LockErrorKind::Timeout))
    }

    /// The last error of a primary, unless enough of the others have answered: then the lock is
    /// merely taken.
    fn failure(&mut self) -> Option<LockError> {
        for (place, told) in self.queued.iter_mut().zip(&mut self.told) {
            let Some(place) = place else { continue };
            match (place.ahead(), (&mut place.attempt).now_or_never()) {
                (Some(_), _) => *told = Some(Told::Answered),
                (None, Some(Err(error))) if error.kind() != LockErrorKind::Timeout => {
                    *told = Some(Told::Failed(error));
                }
                (None, _) => {}
            }
        }
        let answered = self.told.iter().flatten().filter(|told| matches!(told, Told::Answered));
        if answered.count() >= self.ascent.primaries.wanted() {
            return None;
        }
        self.told.iter().flatten().rev().find_map(|told| match told {
            Told::Failed(error) => Some(error.clone()),
            Told::Answered => None,
        })
    }

    fn drop_lost(&mut self) {
        for (at, step) in self.held.iter_mut().enumerate() {
            drop(step.take_if(|step| !self.ascent.primaries.members[at].has(step)));
        }
    }

    fn is_high_enough(&mut self) -> bool {
        self.drop_lost();
        self.held.iter().flatten().count() >= self.ascent.primaries.wanted()
    }

    /// Confirms these holds: each is renewed, and its counter draws one more number.
    async fn confirm(
        &self,
        is_asked: impl Fn(&Step) -> bool,
    ) -> Vec<(usize, Option<FencingToken>)> {
        let held = self.held.iter().enumerate().filter_map(|(at, step)| Some((at, step.as_ref()?)));
        let asked = held.filter(|(_, step)| is_asked(step));
        join_all(asked.map(async |(at, step)| (at, step.guard.confirm().await.ok()))).await
    }

    /// Notes the numbers that were drawn, and gives back the holds that have none.
    fn note(&mut self, drawn: Vec<(usize, Option<FencingToken>)>) {
        for (at, drawn) in drawn {
            match (drawn, &mut self.held[at]) {
                (Some(drawn), Some(step)) => step.drawn = drawn,
                (_, step) => drop(step.take()),
            }
        }
    }

    /// Hands the guard out once the counters of all that is held have drawn its token, or a greater
    /// number.
    async fn settle(&mut self) -> Option<Arc<Hold>> {
        let steps = self.held.iter().flatten();
        let token = steps.map(|step| step.guard.fencing_token()).max()?;
        // The reads of a name share a number, and their guards have none.
        if self.ascent.request.demand == Demand::EXCLUSIVE {
            // Each server has told its token by now, so the greatest is in the floor of each.
            let drawn = self.confirm(|step| step.drawn < token).await;
            self.note(drawn);
            self.held.iter_mut().for_each(|step| drop(step.take_if(|step| step.drawn < token)));
        }
        if !self.is_high_enough() {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        let waited = self.began.elapsed();
        let position = *self.positions.borrow();
        Some(Hold::new(self.ascent.clone(), held, token, waited, position))
    }
}
