//! `Holds`: the primaries that an acquisition holds, and their confirmation: a renewal of each, in
//! case a clock jump has ended the hold, with another number from the token counter.

use std::sync::Arc;

use futures_util::future::join_all;
use proto::{Demand, FencingToken, LockErrorKind};
use tokio::time::Instant;

use super::answers::Answers;
use crate::node::{SLOW, until};
use crate::quorum::primaries::Primaries;
use crate::quorum::primary::Step;
use crate::types::error::LockError;

pub(super) struct Holds {
    primaries: Arc<Primaries>,
    /// The hold at each primary, in list order; `None` where the lock is not held.
    held: Vec<Option<Step>>,
}

/// The index of a primary with the number drawn, or with the error if the hold could not be
/// confirmed before the acquisition has to end.
pub(super) type Confirmation = (usize, Result<FencingToken, LockError>);

impl Holds {
    pub(super) fn new(primaries: Arc<Primaries>) -> Self {
        let held = primaries.members.iter().map(|_| None).collect();
        Self { primaries, held }
    }

    pub(super) fn lowest(&self) -> Option<usize> {
        self.held.iter().position(Option::is_some)
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.held[at].is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    pub(super) fn add(&mut self, at: usize, step: Step) {
        self.held[at] = Some(step);
    }

    pub(super) fn release(&mut self) {
        self.held.fill_with(|| None);
    }

    pub(super) fn take(&mut self) -> Vec<Option<Step>> {
        std::mem::take(&mut self.held)
    }

    pub(super) fn drop_lost(&mut self) {
        for (at, step) in self.held.iter_mut().enumerate() {
            drop(step.take_if(|step| !self.primaries.members[at].has(step)));
        }
    }

    /// Drops the lost holds, and returns true if the others are enough for a guard.
    pub(super) fn are_enough(&mut self) -> bool {
        self.drop_lost();
        self.count() >= self.primaries.wanted()
    }

    /// Confirms the holds for which `is_asked` returns true, until `end` at most.
    pub(super) async fn confirm(
        &self,
        end: Option<Instant>,
        is_asked: impl Fn(&Step) -> bool,
    ) -> Vec<Confirmation> {
        let held = self.held.iter().enumerate().filter_map(|(at, step)| Some((at, step.as_ref()?)));
        let asked = held.filter(|(_, step)| is_asked(step));
        let confirmations = asked.map(async |(at, step)| {
            let drawn = tokio::select! {
                biased;
                drawn = step.guard.confirm() => drawn,
                () = until(end) => Err(LockError::with_detail(LockErrorKind::Timeout, SLOW)),
            };
            (at, drawn)
        });
        join_all(confirmations).await
    }

    /// Records the results of [`confirm`](Self::confirm): stores the numbers drawn, and releases
    /// the holds that could not be confirmed.
    pub(super) fn note(&mut self, drawn: Vec<Confirmation>, answers: &mut Answers) {
        for (at, drawn) in drawn {
            match drawn {
                Ok(drawn) => {
                    if let Some(step) = &mut self.held[at] {
                        step.drawn = drawn;
                    }
                }
                Err(error) => {
                    drop(self.held[at].take());
                    answers.unconfirmed(at, error);
                }
            }
        }
    }

    /// Returns the token for a guard of these holds: the step *settle* in `docs/quorum.md`. First
    /// draws another number from each token counter below the token, and drops the holds whose
    /// counter stays below, so that the next guard has a greater token. Returns `None` if fewer
    /// primaries than needed remain.
    pub(super) async fn settle(
        &mut self,
        demand: Demand,
        end: Option<Instant>,
        answers: &mut Answers,
    ) -> Option<FencingToken> {
        let steps = self.held.iter().flatten();
        let token = steps.map(|step| step.guard.fencing_token()).max()?;
        // Only exclusive guards have a token on a quorum, so reads skip this step.
        if demand == Demand::EXCLUSIVE {
            // Each server has returned a token by now, so each token floor includes the
            // greatest.
            let drawn = self.confirm(end, |step| step.drawn < token).await;
            self.note(drawn, answers);
            self.held.iter_mut().for_each(|step| drop(step.take_if(|step| step.drawn < token)));
        }
        self.are_enough().then_some(token)
    }
}
