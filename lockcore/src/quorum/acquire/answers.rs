//! `Answers`: the last response of each primary to an acquisition, and whether too many primaries
//! refuse the request.
//!
//! # Implementation notes
//!
//! - Refusals for good end an acquisition at once: they count if all other primaries are too few,
//!   reachable or not. Other refusals are waited for, like an outage: they count if the other
//!   reachable primaries are too few, and an attempt that is under way may end a refusal.

use std::time::Duration;

use proto::LockErrorKind;
use tokio::time::Instant;

use crate::quorum::primaries::Primaries;
use crate::quorum::queues::{Place, Queues};
use crate::types::error::LockError;

pub(super) struct Answers {
    /// The last response of each primary, in list order; `None` before the first response.
    last: Vec<Option<Answer>>,
    /// Since when too few primaries for a guard accept the request, because others refuse it;
    /// `None` while enough do.
    refused: Option<Instant>,
}

/// A primary's last response.
enum Answer {
    /// The primary granted the lock, or queued the request.
    Accepted,
    /// The attempt failed with this error.
    Failed(LockError),
}

impl Answer {
    /// Returns true if the primary refuses the request, so that it counts as unreachable. A primary
    /// that is busy, or whose queue is full, does not.
    fn is_refusal(&self) -> bool {
        use LockErrorKind::{QueueFull, Timeout, WaitTooLong};
        let Self::Failed(error) = self else { return false };
        !matches!(error.kind(), Timeout | QueueFull | WaitTooLong)
    }

    /// Returns true if the primary refuses the request for good. Memory that is full counts as such
    /// a refusal, as on a single server.
    fn is_for_good(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        error.kind() == LockErrorKind::OutOfMemory || !error.is_retryable() && !error.is_outage()
    }
}

impl Answers {
    /// Creates the answers of `n` primaries, none of which has responded.
    pub(super) fn new(n: usize) -> Self {
        Self { last: (0..n).map(|_| None).collect(), refused: None }
    }

    /// Records that the primary at index `at` has granted the lock, or queued the request.
    pub(super) fn accepted(&mut self, at: usize) {
        self.last[at] = Some(Answer::Accepted);
    }

    /// Records that the attempt at the primary at index `at` has failed.
    pub(super) fn failed(&mut self, at: usize, error: LockError) {
        self.last[at] = Some(Answer::Failed(error));
    }

    /// Records that the hold at the primary at index `at` could not be confirmed: the grant no
    /// longer shows that the primary responds. A hold that was lost meanwhile shows nothing either.
    pub(super) fn unconfirmed(&mut self, at: usize, error: LockError) {
        let is_lost = error.kind() == LockErrorKind::Lost;
        self.last[at] = (!is_lost).then_some(Answer::Failed(error));
    }

    /// Records which attempts are queued, and which have failed and are repeated. Polls no attempt:
    /// the outcome would be lost.
    pub(super) fn look(&mut self, queued: &Queues) {
        for (place, answer) in queued.iter().zip(&mut self.last) {
            let Some(place) = place else { continue };
            if place.ahead().is_some() {
                *answer = Some(Answer::Accepted);
            } else if let Some(error) = place.attempt.failure() {
                *answer = Some(Answer::Failed(error));
            }
        }
    }

    /// Returns true if the last response from the primary at index `at` was a failure.
    pub(super) fn has_failed(&self, at: usize) -> bool {
        matches!(self.last[at], Some(Answer::Failed(_)))
    }

    /// Returns the number of primaries that have granted the lock or queued the request.
    pub(super) fn count_accepted(&self) -> usize {
        let is_accepted = |answer: &&Answer| matches!(answer, Answer::Accepted);
        self.last.iter().flatten().filter(is_accepted).count()
    }

    /// Returns the error of the last primary in the list whose attempt has failed, or `None`.
    pub(super) fn last_failure(&self) -> Option<LockError> {
        self.last.iter().flatten().rev().find_map(|answer| match answer {
            Answer::Failed(error) => Some(error.clone()),
            Answer::Accepted => None,
        })
    }

    /// Returns true if so many primaries refuse for good that the others are too few for a guard.
    pub(super) fn are_hopeless(&self, wanted: usize) -> bool {
        let refusing = self.last.iter().flatten().filter(|answer| answer.is_for_good()).count();
        self.last.len() - refusing < wanted
    }

    /// Returns true if so many reachable primaries refuse the request that the others are too few
    /// for a guard.
    pub(super) fn are_refusals(
        &mut self,
        primaries: &Primaries,
        queued: &Queues,
        is_held: impl Fn(usize) -> bool,
    ) -> bool {
        let (mut accepting, mut usable) = (0, 0);
        for at in (0..self.last.len()).filter(|at| primaries.server(*at).is_some()) {
            let place = queued[at].as_ref();
            let accepts = is_held(at) || place.and_then(Place::ahead).is_some();
            // An attempt that is under way may end an earlier refusal.
            let is_new = place.is_some_and(|place| place.attempt.failure().is_none());
            // While a connection is down, the view decides whether the primary counts.
            let refuses = primaries.members[at].is_connected()
                && self.last[at].as_ref().is_some_and(Answer::is_refusal);
            accepting += usize::from(accepts);
            usable += usize::from(accepts || is_new || !refuses);
        }
        if accepting >= primaries.wanted() {
            self.refused = None;
        }
        usable < primaries.wanted() && primaries.are_reached()
    }

    /// Returns since when the request is refused: since `now`, unless it was refused before.
    pub(super) fn refused_since(&mut self, now: Instant) -> Instant {
        *self.refused.get_or_insert(now)
    }

    /// Does not count the last `wait` as a part of the refusals: the request was queued meanwhile.
    pub(super) fn exclude(&mut self, wait: Duration) {
        if let Some(refused) = &mut self.refused {
            *refused += wait;
        }
    }

    /// Forgets all refusals. Otherwise they would keep the next round from primaries that accept
    /// again.
    pub(super) fn forget_refusals(&mut self) {
        for answer in &mut self.last {
            drop(answer.take_if(|answer| answer.is_refusal()));
        }
    }
}
