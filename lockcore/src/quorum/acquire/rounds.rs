//! `Rounds`: an acquisition in progress, which tries primary after primary, in rounds, until enough
//! for a guard are held.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use proto::Mode;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::holds::Holds;
use super::requests::{First, Requests, Role};
use crate::quorum::context::AcquireContext;
use crate::quorum::hold::Hold;
use crate::quorum::primaries::HOP;
use crate::quorum::primary::Step;
use crate::quorum::queues::{Event, next};
use crate::types::error::LockError;

/// The maximum hop. The hop begins with [`HOP`], and doubles with each round without a majority.
const LONGEST_HOP: Duration = Duration::from_secs(1);
/// The number of rounds without a majority after which an acquisition steps aside: it releases all
/// holds, and keeps only a queue position at a higher primary. If a crowd waits at that primary,
/// the acquisition steps aside after the first round.
const PATIENCE: u32 = 2;

/// The result of a quorum acquisition. `Ok(None)` means that the lock is busy, and the request does
/// not wait.
pub(super) type QuorumAcquireResult = Result<Option<Arc<Hold>>, LockError>;

pub(super) struct Rounds {
    pub(super) requests: Requests,
    holds: Holds,
}

impl Rounds {
    pub(super) fn new(context: AcquireContext, positions: watch::Sender<Option<u64>>) -> Self {
        let holds = Holds::new(Arc::clone(&context.primaries));
        Self { requests: Requests::new(context, positions), holds }
    }

    pub(super) async fn run(mut self) -> QuorumAcquireResult {
        let primaries = Arc::clone(self.requests.primaries());
        let _slot = self.take_slot().await?;
        let _waits = Arc::clone(&primaries.waiting);
        let (mut hop, mut rounds) = (HOP, 0);
        loop {
            self.reach_enough().await?;
            self.holds.drop_lost();
            let begun = Instant::now();
            if self.holds.lowest().is_none() {
                match self.requests.begin().await? {
                    First::Granted(at, step) => self.take(at, step),
                    First::Busy => return Ok(None),
                    First::Failed => {}
                }
            }
            let round = Instant::now();
            if self.holds.lowest().is_some() {
                self.requests.answers.exclude(round - begun);
            }
            if let Some(hold) = self.run_round(hop).await? {
                return Ok(Some(hold));
            }
            if self.requests.is_try() {
                // A primary may respond later than within a hop.
                while self.requests.awaits_response()
                    && primaries.are_reached()
                    && !self.requests.limits.is_late()
                {
                    if let Some(hold) = self.wait(None, Some(Instant::now() + hop)).await? {
                        return Ok(Some(hold));
                    }
                }
                return match self.requests.have_enough_answered() {
                    true => Ok(None),
                    false => Err(self.requests.out_of_time()),
                };
            }
            self.requests.end_round()?;
            if self.requests.is_refused(|at| self.holds.has(at)) {
                // The time before the first queue position counts, but not a wait in the queue.
                let since = if self.requests.position().is_some() { round } else { begun };
                let since = self.requests.answers.refused_since(since);
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

    /// Does a round: requests the lock from the primaries not yet held, upwards from the lowest
    /// held primary, and then downwards. Waits for `hop` at each, but without a timeout at a lower
    /// primary if all remaining primaries are needed. Returns the hold once enough primaries are
    /// held, or `None` at the end of the round.
    async fn run_round(&mut self, hop: Duration) -> Result<Option<Arc<Hold>>, LockError> {
        let primaries = Arc::clone(self.requests.primaries());
        let n = primaries.members.len();
        let mut tried = vec![false; n];
        loop {
            self.holds.drop_lost();
            let Some(lowest) = self.holds.lowest() else { return Ok(None) };
            let is_open =
                |at: &usize| !tried[*at] && !self.holds.has(*at) && primaries.server(*at).is_some();
            let open: Vec<usize> = (lowest..n).chain((0..lowest).rev()).filter(is_open).collect();
            let Some(&at) = open.first().filter(|_| primaries.are_reached()) else {
                return Ok(None);
            };
            let is_try = self.requests.is_try();
            if self.requests.limits.is_late() {
                return if is_try { Ok(None) } else { Err(self.requests.out_of_time()) };
            }
            // Once only primaries below the lowest held primary are left to try, the round ends if
            // they are too few for a guard.
            let missing = primaries.wanted() - self.holds.count();
            if at < lowest && open.len() < missing {
                return Ok(None);
            }
            let is_endless = at < lowest && open.len() == missing && !is_try;
            if is_endless {
                // A grant in a lower queue would become a hold below the primary it waits for.
                self.requests.queued[..at].fill_with(|| None);
            }
            self.requests.join(at, Role::BesideHold);
            let until = (!is_endless).then(|| Instant::now() + hop);
            let hold = self.wait(Some(at), until).await?;
            if hold.is_some() {
                return Ok(hold);
            }
            let ahead = self.requests.ahead(at);
            if at > lowest && ahead.is_some_and(|ahead| self.requests.is_crowd(ahead)) {
                primaries.set_lead(&self.requests.context.request.lock, at);
            }
            // If a grant at a lower primary has ended the wait early, this primary does not count
            // as tried: the search starts again above the lower primary.
            tried[at] = self.holds.lowest() == Some(lowest);
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
        let primaries = Arc::clone(self.requests.primaries());
        let end = self.requests.limits.end;
        let until = until.map(|until| end.map_or(until, |end| end.min(until)));
        let lowest = self.holds.lowest();
        // When the confirmation of all holds was sent; `None` while a hold is not confirmed.
        let mut confirmed: Option<Instant> = None;
        loop {
            // If only one primary is missing, confirm the other holds during the wait, because a
            // clock jump may have ended a hold. A confirmation also draws a new number. The token
            // of the last primary is mostly not above this number, and `build_hold` then sends no
            // request.
            let is_last = confirmed.is_none() && self.holds.count() + 1 >= primaries.wanted();
            let asked = Instant::now();
            let (event, drawn) = {
                let event = pin!(next(&primaries, None, &mut self.requests.queued, until));
                let confirmation = pin!(self.holds.confirm(end, |_| is_last));
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
            if let Some(drawn) = drawn {
                self.holds.note(drawn, &mut self.requests.answers);
                confirmed = confirmed.or_else(|| is_last.then_some(asked));
            }
            match event {
                Event::Granted(of, step) => {
                    self.take(of, step);
                    if self.holds.are_enough() {
                        if confirmed.is_none_or(|at| at.elapsed() > HOP) {
                            // The holds were confirmed more than a hop ago, so confirm them again.
                            let drawn = self.holds.confirm(end, |_| true).await;
                            self.holds.note(drawn, &mut self.requests.answers);
                        }
                        if let Some(hold) = self.build_hold().await {
                            return Ok(Some(hold));
                        }
                    }
                    // Another grant may follow, and the new hold is not confirmed.
                    confirmed = None;
                    // After a grant at a lower primary, continue above that primary.
                    if self.holds.lowest() != lowest
                        || at.is_none_or(|at| of == at || self.requests.queued[at].is_none())
                    {
                        return Ok(None);
                    }
                }
                Event::Failed(of, failure) => {
                    self.requests.pass(of, failure, false)?;
                    if at == Some(of) {
                        return Ok(None);
                    }
                }
                Event::Changed => {
                    self.requests.drop_stale();
                    if !primaries.are_reached()
                        || at.is_some_and(|at| self.requests.queued[at].is_none())
                    {
                        return Ok(None);
                    }
                }
                Event::Busy | Event::Late => return Ok(None),
            }
        }
    }

    fn take(&mut self, at: usize, step: Step) {
        self.requests.answers.accepted(at);
        self.holds.add(at, step);
    }

    /// Makes way for other acquisitions after `rounds` rounds without a majority: releases all
    /// holds, and keeps only the queue position at a higher primary. Does so if a crowd waits at
    /// that primary, or after [`PATIENCE`] rounds. Returns true if it did.
    fn step_aside(&mut self, rounds: u32) -> bool {
        let Some(lowest) = self.holds.lowest() else { return false };
        let requests = &mut self.requests;
        let is_enough = |ahead: u64| requests.is_crowd(ahead) || rounds >= PATIENCE;
        let mut higher = lowest + 1..requests.queued.len();
        let Some(at) = higher.find(|at| requests.ahead(*at).is_some_and(is_enough)) else {
            return false;
        };
        self.holds.release();
        requests.stay_at(at);
        true
    }

    /// Takes a permit of the [`wait_limit`](Primaries) for all attempts of this acquisition. If too
    /// few primaries have been reachable for the `store_wait`, fails with the error of this outage
    /// instead, even if no permit is left.
    async fn take_slot(&mut self) -> Result<Option<OwnedSemaphorePermit>, LockError> {
        let primaries = Arc::clone(self.requests.primaries());
        let lacking = primaries.view.borrow().lacking;
        if lacking.is_some_and(|since| since.elapsed() >= self.requests.limits.store_wait) {
            self.reach_enough().await?;
        }
        let slot = primaries.wait_limit.take(self.requests.context.request.mode);
        if slot.is_err()
            && let Some(at) = primaries.refusals.turn(self.requests.limits.of_wait(Instant::now()))
        {
            sleep_until(at).await;
        }
        slot
    }

    /// Waits until enough primaries for a guard are reachable; returns at once if they are. Before
    /// waiting, releases all holds and leaves all queues. Waits for `store_wait`, or for longer if
    /// the request was queued. Returns an error when this time is over, for a request that does not
    /// wait, and after a shutdown.
    async fn reach_enough(&mut self) -> Result<(), LockError> {
        let primaries = Arc::clone(self.requests.primaries());
        let mut view = primaries.view.subscribe();
        if view.borrow().is_closed {
            return Err(primaries.closed());
        }
        let Some(lacking) = view.borrow().lacking else { return Ok(()) };
        self.requests.leave();
        self.holds.release();
        let end = self.requests.end_of_outage(Instant::now(), lacking);
        let Requests { context, limits, .. } = &self.requests;
        let reached = view.wait_for(|view| view.is_closed || view.lacking.is_none());
        if context.request.mode == Mode::Wait && timeout_at(end, reached).await.is_ok() {
            return Ok(());
        }
        let latest = limits.end.unwrap_or(end);
        if !context.local.leaves_in_outage
            && let Some(at) = primaries.refusals.turn(latest)
        {
            sleep_until(at).await;
        }
        Err(primaries.unreached())
    }

    /// Waits before the next round while primaries refuse the request; `since` is the begin of the
    /// refusals. Before waiting, releases all holds and leaves all queues, as for unreachable
    /// primaries. Returns the error of a refusal when the time is over.
    async fn outwait_refusal(&mut self, since: Instant) -> Result<(), LockError> {
        self.requests.leave();
        self.holds.release();
        let mut view = self.requests.primaries().view.subscribe();
        let end = self.requests.end_of_outage(since, since);
        // A change of the reachable primaries may also be a shutdown.
        let _ = timeout_at(end.min(Instant::now() + LONGEST_HOP), view.changed()).await;
        if Instant::now() < end {
            self.requests.answers.forget_refusals();
            return Ok(());
        }
        let failure = self.requests.answers.last_failure();
        Err(failure.unwrap_or_else(|| self.requests.out_of_time()))
    }

    /// Creates the quorum hold from the held primaries, once they are settled. Returns `None` if
    /// fewer primaries than needed remain.
    async fn build_hold(&mut self) -> Option<Arc<Hold>> {
        let Requests { context, limits, answers, .. } = &mut self.requests;
        let token = self.holds.settle(context.request.demand, limits.end, answers).await?;
        let (held, waited) = (self.holds.take(), limits.began.elapsed());
        Some(Hold::new(context.clone(), held, token, waited, self.requests.position()))
    }
}
