//! The climb: one acquisition from primary to primary, until a majority is held.
//!
//! # Implementation notes
//!
//! - It holds guards of the primaries and waits for one at a time. Dropping it at any point drops
//!   these, and so leaves nothing behind.
//! - A climb that cannot reach a majority keeps nobody waiting: it gives everything back.
//! - A hold that its owner could not release stands in the way of others for a hop, and not for its
//!   lease: a climb that holds a lower primary passes by. A hop is longer in each round, up to a
//!   second, for networks that are slower than the first one.

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
use super::{Hold, Primaries};
use crate::error::LockError;
use crate::node::{Attempt, HoldCell, LocalOptions, NodeGuard, SILENCE, later};

/// The time for which a climb that holds a primary waits for a higher one, in its first round.
pub(crate) const HOP: Duration = Duration::from_millis(100);
/// The same at most.
const LONGEST_HOP: Duration = Duration::from_secs(1);
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
    positions: watch::Sender<Option<u64>>,
    /// The last error of a primary that was passed by in this round.
    failure: Option<LockError>,
    /// The primaries that refuse, and not only for now.
    refusing: usize,
}

/// The end of a wait at one primary.
enum Waited {
    Held(NodeGuard),
    /// Taken, and the climb is not to wait.
    Busy,
    /// Not reached any more.
    Passed,
    /// Refused, or taken for longer than a hop.
    Refused(LockError),
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
        let held = ascent.primaries.members.iter().map(|_| None).collect();
        Self { ascent, began, end, held, positions, failure: None, refusing: 0 }
    }

    async fn run(mut self) -> ClimbResult {
        let primaries = Arc::clone(&self.ascent.primaries);
        let _waits = Arc::clone(&primaries.waiting);
        let mut hop = HOP;
        loop {
            self.reach_enough().await?;
            let round = Instant::now();
            (self.failure, self.refusing) = (None, 0);
            for at in 0..self.held.len() {
                if !primaries.are_reached() {
                    break;
                }
                self.drop_lost();
                let Some(server) = primaries.view.borrow().servers[at] else { continue };
                if self.held[at].is_some() {
                    continue;
                }
                // No climb waits below a primary that it holds.
                self.held[at + 1..].fill_with(|| None);
                if self.is_late() {
                    match self.ascent.request.mode {
                        Mode::Try => continue,
                        Mode::Wait => return Err(self.out_of_time()),
                    }
                }
                let is_first = self.held.iter().all(Option::is_none);
                // Meanwhile, if it is the last one that is missing, the others are confirmed: one
                // whose clock has jumped may have forgotten its hold. And mostly the token of the
                // last one is not above the numbers that they draw.
                let is_last = self.held.iter().flatten().count() + 1 >= primaries.wanted();
                let (waited, drawn) = tokio::join!(
                    self.wait_at(at, server, hop, is_first),
                    self.confirm(|_| is_last)
                );
                self.note(drawn);
                match waited {
                    Waited::Held(guard) => self.held[at] = Some(Step::new(guard, server)),
                    Waited::Busy => return Ok(None),
                    Waited::Passed => continue,
                    Waited::Refused(error) => {
                        self.pass(error, is_first)?;
                        continue;
                    }
                }
                if self.is_high_enough()
                    && let Some(guard) = self.settle().await
                {
                    return Ok(Some(guard));
                }
            }
            if self.ascent.request.mode == Mode::Try {
                return self.failure.map_or(Ok(None), Err);
            }
            self.end_round()?;
            if primaries.are_reached() {
                // Those that did not refuse have been waited for. The others get that time, too.
                let next = round + hop;
                sleep_until(self.end.map_or(next, |end| end.min(next))).await;
            }
            hop = (hop * 2).min(LONGEST_HOP);
        }
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

    async fn wait_at(&self, at: usize, server: u64, hop: Duration, is_first: bool) -> Waited {
        let primaries = &self.ascent.primaries;
        let Some(node) = primaries.members[at].node() else { return Waited::Passed };
        let mut request = self.ascent.at_a_primary();
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        request.options.wait = left;
        if !is_first {
            request.mode = Mode::Wait;
            request.options.wait = Some(left.map_or(hop, |left| left.min(hop)));
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
        let mut view = primaries.view.subscribe();
        let away = |view: &super::View| view.servers[at] != Some(server) || view.lacking.is_some();
        tokio::select! {
            biased;
            outcome = attempt => match outcome {
                Ok(Some(guard)) => Waited::Held(guard),
                Ok(None) => Waited::Busy,
                Err(error) => Waited::Refused(error),
            },
            _ = view.wait_for(away) => Waited::Passed,
        }
    }

    /// Goes on without a primary that refuses, unless the refusal is the answer to the caller.
    fn pass(&mut self, error: LockError, is_first: bool) -> Result<(), LockError> {
        match error.kind() {
            LockErrorKind::Closed => Err(error),
            LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::WaitTooLong
                if is_first =>
            {
                Err(error)
            }
            LockErrorKind::Timeout => Ok(()),
            _ => {
                self.refusing += usize::from(!error.is_retryable() && !error.is_outage());
                self.failure = Some(error);
                Ok(())
            }
        }
    }

    /// Ends a round without enough primaries, and the climb if there is no time for another one, or
    /// if that could not have them either.
    fn end_round(&self) -> Result<(), LockError> {
        let is_hopeless = self.held.len() - self.refusing < self.ascent.primaries.wanted();
        if is_hopeless || self.is_late() { Err(self.out_of_time()) } else { Ok(()) }
    }

    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn out_of_time(&self) -> LockError {
        let timeout = || LockError::new(LockErrorKind::Timeout);
        self.failure.clone().unwrap_or_else(timeout)
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
        if self.ascent.request.demand == Demand::ALONE {
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
