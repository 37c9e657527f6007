//! What time does: renewals, releases, leaves and repetitions, when they are due and there is room
//! for them.

use std::collections::BTreeMap;

use super::{Core, Effects, MAX_AT_ONCE};
use crate::key::LockName;
use crate::node::effect::Ask;
use crate::node::entry::{Seat, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::store::Leaving;
use crate::store::protocol::Command;

impl<P: Seat> Core<P> {
    /// Handles what is due, a bounded part of it at a time. Returns whether there is more to be
    /// done at once.
    pub fn tick(&mut self, now: Moment, fx: &mut Effects<P>) -> bool {
        let mut budget = MAX_AT_ONCE;
        while budget > 0
            && let Some(&(at, number)) = self.ends.first()
            && at <= now
        {
            self.ended(now, number, fx);
            budget -= 1;
        }
        budget = self.renew_what_is_due(now, budget, fx);
        self.leave_again(now);
        budget = self.send_what_is_due(now, budget, fx);
        budget = self.renew_on(now, budget, fx);
        budget = self.ask_in_turn(now, budget, fx);
        if self.retry_at.is_some_and(|at| at <= now) {
            budget = self.ask_again(now, budget, fx);
        }
        budget = self.touch_what_is_due(now, budget, fx);
        self.recheck_on(now, budget, fx);
        self.next().is_some_and(|next| next <= now)
    }

    /// When [`tick`](Self::tick) has something to do next, as far as is known now.
    pub fn next(&self) -> Option<Moment> {
        let at_once = Some(Moment::default());
        let room = self.has_room();
        let renewal = self.renewals.first().filter(|_| self.renewing < MAX_AT_ONCE);
        let send = self.sends.first().filter(|_| room);
        let touch = self.touches.first().filter(|_| self.may_touch());
        [
            self.ends.first().map(|(at, _)| *at),
            renewal.map(|(at, _)| *at),
            send.map(|(at, _)| *at),
            touch.map(|(at, _)| *at),
            at_once.filter(|_| self.may_leave_again()),
            at_once.filter(|_| !self.unsent.is_empty() && self.may_ask()),
            self.retry_at.filter(|_| room),
            at_once.filter(|_| self.recheck.is_some() && self.may_touch()),
            at_once.filter(|_| self.renew_all.is_some() && self.renewing < MAX_AT_ONCE),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What would be due soon goes out with what is due: together they cost little more than one.
    pub(super) fn renew_what_is_due(
        &mut self,
        now: Moment,
        budget: usize,
        fx: &mut Effects<P>,
    ) -> usize {
        if self.renewals.first().is_none_or(|(at, _)| *at > now) {
            return budget;
        }
        let room = budget.min(MAX_AT_ONCE.saturating_sub(self.renewing));
        let soon = |number| now + lease::ahead(&self.entries[number].options);
        let due = self.renewals.iter().take(room).filter(|(at, number)| *at <= soon(number));
        let due: Vec<u64> = due.map(|(_, number)| *number).collect();
        for number in &due {
            self.renew(now, *number, fx);
        }
        budget - due.len()
    }

    /// Releases and leaves.
    pub(super) fn send_what_is_due(
        &mut self,
        now: Moment,
        mut budget: usize,
        fx: &mut Effects<P>,
    ) -> usize {
        let mut leaving = BTreeMap::new();
        while budget > 0
            && self.on_their_way + leaving.len() < self.rules.window
            && let Some(&(at, number)) = self.sends.first()
            && at <= now
        {
            self.send(now, number, &mut leaving, fx);
            budget -= 1;
        }
        self.leave(now, leaving, fx);
        budget
    }

    pub(super) fn renew(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number) else { return };
        let command = Command::Renew { member: entry.member.clone() };
        let ask = Ask { lock: entry.lock.clone(), command, sent: now, background: true };
        self.change(number, |entry| {
            if let State::Held(lease) = &mut entry.state {
                // The answer sets the next one.
                lease.renew_at = None;
            }
        });
        self.background(ask, fx);
    }

    pub(super) fn send(
        &mut self,
        now: Moment,
        number: u64,
        leaving: &mut BTreeMap<LockName, Vec<Leaving>>,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get(&number) else { return };
        match &entry.state {
            State::Releasing { .. } => {
                let ask = self.release_request(now, number, true);
                self.change(number, |entry| entry.state = State::Releasing { due: None });
                self.background(ask, fx);
            }
            State::Leaving { .. } => {
                let (member, ambiguous) = (entry.member.clone(), entry.may_run_again());
                let batch = leaving.entry(entry.lock.clone()).or_default();
                batch.push(Leaving { member, ambiguous });
                self.change(number, |entry| {
                    if let State::Leaving { due, .. } = &mut entry.state {
                        *due = None;
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn leave(
        &mut self,
        now: Moment,
        leaving: BTreeMap<LockName, Vec<Leaving>>,
        fx: &mut Effects<P>,
    ) {
        for (lock, leaving) in leaving {
            let command = Command::Leave { leaving };
            self.background(Ask { lock, command, sent: now, background: true }, fx);
        }
    }

    pub(super) fn renew_on(
        &mut self,
        now: Moment,
        mut budget: usize,
        fx: &mut Effects<P>,
    ) -> usize {
        let Some((mut from, since)) = self.renew_all else { return budget };
        while budget > 0 && self.renewing < MAX_AT_ONCE {
            let (numbers, next) = self.stale_holds(from, since);
            for number in numbers {
                self.renew(now, number, fx);
                budget = budget.saturating_sub(1);
            }
            match next {
                Some(next) => from = next,
                None => {
                    self.renew_all = None;
                    return budget;
                }
            }
        }
        self.renew_all = Some((from, since));
        budget
    }

    /// Holds that were not asked for since then and whose renewal is not on its way.
    pub(super) fn stale_holds(&self, from: u64, since: Moment) -> (Vec<u64>, Option<u64>) {
        self.part_of(from, |entry| match &entry.state {
            State::Held(lease) => lease.asked < since && lease.renew_at.is_some(),
            _ => false,
        })
    }
}
