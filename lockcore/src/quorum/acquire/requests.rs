//! `Requests`: the attempts of an acquisition at the primaries, and the wait for the first hold.

use std::sync::Arc;

use proto::{Demand, LockErrorKind, Mode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::answers::Answers;
use super::limits::Limits;
use crate::node::{Attempt, LocalOptions};
use crate::quorum::context::{AcquireContext, BEHIND};
use crate::quorum::primaries::Primaries;
use crate::quorum::primary::Step;
use crate::quorum::queues::{Event, Failure, Place, Queues, next};
use crate::types::error::LockError;

/// The error text for a request that does not wait, and had no time left for other primaries
/// after a silent one.
const ONE_SILENT: &str = "a primary did not respond in time, but enough others are reachable: \
    repeat the request";

pub(super) struct Requests {
    pub(super) context: AcquireContext,
    pub(super) limits: Limits,
    /// The attempts in the queues of primaries, in list order.
    pub(super) queued: Queues,
    pub(super) answers: Answers,
    /// The queue positions for the caller: at the first primary, or where the request stays when it
    /// steps aside.
    positions: watch::Sender<Option<u64>>,
}

/// The end of the wait for the first hold.
pub(super) enum First {
    /// The primary with this index has granted the lock.
    Granted(usize, Step),
    /// The lock is busy, and the request does not wait.
    Busy,
    /// Too few primaries are reachable, or each attempt has failed.
    Failed,
}

/// The kinds of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The first attempt of a request without a hold. It has the request's own mode, class and
    /// local options, and reports queue positions to the caller. Other attempts wait in any case.
    First,
    /// An attempt of a request without a hold, at the lead of the lock.
    AtLead,
    /// An attempt of a request that holds another primary.
    BesideHold,
}

impl Requests {
    pub(super) fn new(mut context: AcquireContext, positions: watch::Sender<Option<u64>>) -> Self {
        let limits = Limits::new(&context);
        context.label();
        let n = context.primaries.members.len();
        let queued = (0..n).map(|_| None).collect();
        Self { context, limits, queued, answers: Answers::new(n), positions }
    }

    pub(super) fn primaries(&self) -> &Arc<Primaries> {
        &self.context.primaries
    }

    pub(super) fn is_try(&self) -> bool {
        self.context.request.mode == Mode::Try
    }

    /// Returns the number of waiters ahead at the primary at index `at`, or `None` if the request
    /// is not queued there.
    pub(super) fn ahead(&self, at: usize) -> Option<u64> {
        self.queued[at].as_ref().and_then(Place::ahead)
    }

    /// Returns true if `ahead`, the number of waiters ahead at a primary, is a crowd: more than
    /// half the number of primaries. Only a few locks can hold a lower primary, so most waiters of
    /// a crowd hold none. Always false for a read: any number of reads hold a lower primary
    /// together, so the waiters ahead may all be such reads.
    pub(super) fn is_crowd(&self, ahead: u64) -> bool {
        let is_exclusive = self.context.request.demand == Demand::EXCLUSIVE;
        is_exclusive && ahead > (self.queued.len() / 2) as u64
    }

    fn is_queued(&self) -> bool {
        self.queued.iter().any(Option::is_some)
    }

    /// Returns the last queue position for the caller, or `None` if the acquisition was not queued.
    pub(super) fn position(&self) -> Option<u64> {
        *self.positions.borrow()
    }

    /// Waits until a primary is held: at the primaries where this acquisition already queues, or
    /// else at the first reachable primary, and after a failure at the next.
    pub(super) async fn begin(&mut self) -> Result<First, LockError> {
        let primaries = Arc::clone(self.primaries());
        let lock = self.context.request.lock.clone();
        let mut order = primaries.order(&lock).into_iter();
        let is_try = self.is_try();
        // An attempt that waits ends by itself in time. An attempt that does not wait has a whole
        // request timeout, even if an attempt at another primary failed before.
        let end = self.limits.end.filter(|_| is_try);
        loop {
            if self.limits.is_late() && (is_try || !self.is_queued()) {
                // The store is not away, so nobody may continue without the lock.
                return Err(match is_try && self.may_enough_respond() {
                    true => LockError::with_detail(LockErrorKind::Timeout, ONE_SILENT),
                    false => self.out_of_time(),
                });
            }
            if !self.is_queued() {
                let Some(at) = order.next().filter(|_| primaries.are_reached()) else {
                    return Ok(First::Failed);
                };
                self.join(at, Role::First);
                continue;
            }
            match next(&primaries, Some(&lock), &mut self.queued, end).await {
                Event::Granted(at, step) => {
                    if self.position().is_none() {
                        // Granted without a wait: there is no crowd, so this primary is no longer
                        // the lead.
                        primaries.clear_lead(&lock, at);
                    }
                    return Ok(First::Granted(at, step));
                }
                Event::Busy => return Ok(First::Busy),
                Event::Failed(at, failure) => {
                    // Remove the lead, or this request would queue at the failed primary again at
                    // once.
                    primaries.clear_lead(&lock, at);
                    // A full queue there does not end a wait that has a position elsewhere.
                    let is_last = !self.is_queued();
                    self.pass(at, failure, is_last)?;
                    if self.is_refused(|_| false) {
                        return Ok(First::Failed);
                    }
                }
                Event::Changed => {
                    self.drop_stale();
                    if !primaries.are_reached() {
                        return Ok(First::Failed);
                    }
                    // The waiters ahead are about to queue there, too.
                    if let Some(lead) = primaries.lead(&lock)
                        && self.is_queued()
                    {
                        self.join(lead, Role::AtLead);
                    }
                }
                Event::Late => {}
            }
        }
    }

    /// Queues at the primary at index `at`, unless it is unreachable, or already queued there.
    pub(super) fn join(&mut self, at: usize, role: Role) {
        let primaries = self.primaries();
        let (Some(server), Some(node)) = (primaries.server(at), primaries.members[at].node())
        else {
            return;
        };
        if self.queued[at].is_some() {
            return;
        }
        let is_first = role == Role::First;
        let mut request = self.context.at_a_primary();
        let end = self.limits.end;
        request.options.wait = end.map(|end| end.saturating_duration_since(Instant::now()));
        if !is_first {
            request.mode = Mode::Wait;
        }
        if role == Role::BesideHold {
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

    /// Leaves all queues but the queue at index `at`, whose position the request now has.
    pub(super) fn stay_at(&mut self, at: usize) {
        for (other, place) in self.queued.iter_mut().enumerate() {
            drop(place.take_if(|_| other != at));
        }
        if let Some(place) = &self.queued[at] {
            place.attempt.publish_positions_to(self.positions.clone());
            // A new attempt does not: without a position it would hide an earlier one.
            place.attempt.publish_position();
        }
    }

    /// Leaves all queues.
    pub(super) fn leave(&mut self) {
        self.queued.fill_with(|| None);
    }

    /// Leaves the queues of primaries that are unreachable, or that are another server since a
    /// restart or a loss of data.
    pub(super) fn drop_stale(&mut self) {
        for (at, place) in self.queued.iter_mut().enumerate() {
            let server = self.context.primaries.server(at);
            drop(place.take_if(|place| server != Some(place.server)));
        }
    }

    /// Handles the failure of the attempt at index `at`. Returns the error if the acquisition ends
    /// with it: always for `Closed`, and during the wait for the first hold for a wait limit or a
    /// queue limit, if the acquisition is queued nowhere else (`is_last`). Otherwise records the
    /// failure, and the acquisition continues with the other primaries.
    pub(super) fn pass(
        &mut self,
        at: usize,
        failure: Failure,
        is_last: bool,
    ) -> Result<(), LockError> {
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
                    self.answers.accepted(at);
                }
                Ok(())
            }
            _ => {
                self.answers.failed(at, error);
                Ok(())
            }
        }
    }

    /// Returns true if so many reachable primaries refuse the request that the others are too few
    /// for a guard.
    pub(super) fn is_refused(&mut self, is_held: impl Fn(usize) -> bool) -> bool {
        self.answers.look(&self.queued);
        self.answers.are_refusals(&self.context.primaries, &self.queued, is_held)
    }

    /// Returns when the acquisition ends if too few primaries for a guard can be used since
    /// `since`. `from` is the begin of this wait of the request.
    pub(super) fn end_of_outage(&self, from: Instant, since: Instant) -> Instant {
        self.limits.of_outage(from, since, self.position().is_some())
    }

    /// Checks, after a round without a majority, whether another round makes sense. Returns an
    /// error if the time limit is over, or if so many primaries refuse for good that the others are
    /// too few.
    pub(super) fn end_round(&mut self) -> Result<(), LockError> {
        self.answers.look(&self.queued);
        let is_hopeless = self.answers.are_hopeless(self.primaries().wanted());
        if is_hopeless || self.limits.is_late() { Err(self.out_of_time()) } else { Ok(()) }
    }

    /// Returns true if too few primaries for a guard have responded, and another has not yet.
    pub(super) fn awaits_response(&mut self) -> bool {
        !self.have_enough_answered()
            && self.queued.iter().flatten().any(|place| place.ahead().is_none())
    }

    /// Returns true if enough primaries for a guard have granted the lock or queued the request.
    pub(super) fn have_enough_answered(&mut self) -> bool {
        self.answers.look(&self.queued);
        self.answers.count_accepted() >= self.primaries().wanted()
    }

    /// Returns true if enough primaries for a guard may still respond: they are reachable, and have
    /// neither failed nor left this request without a response.
    fn may_enough_respond(&mut self) -> bool {
        self.answers.look(&self.queued);
        let is_silent = |at: usize| {
            self.answers.has_failed(at)
                || self.queued[at].as_ref().is_some_and(|place| place.ahead().is_none())
        };
        let primaries = self.primaries();
        let reached = (0..self.queued.len()).filter(|at| primaries.server(*at).is_some());
        reached.filter(|at| !is_silent(*at)).count() >= primaries.wanted()
    }

    /// Returns the error of an acquisition that ended without a majority: the error of the last
    /// primary in the list whose attempt has failed, or `Timeout` if the lock was merely busy, as
    /// enough other primaries have responded. A request that does not wait ends so only if too few
    /// primaries have responded.
    pub(super) fn out_of_time(&mut self) -> LockError {
        if !self.have_enough_answered()
            && let Some(failure) = self.answers.last_failure()
        {
            return failure;
        }
        match self.context.request.mode {
            Mode::Try if !self.primaries().are_reached() => self.primaries().unreached(),
            Mode::Try => LockError::with_detail(LockErrorKind::Unavailable, "no reply in time"),
            Mode::Wait => LockError::new(LockErrorKind::Timeout),
        }
    }
}
