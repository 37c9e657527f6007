//! What time does: renewals, releases, leaves and repetitions, when they are due and there is room
//! for them.

use std::collections::BTreeMap;

use super::{Core, MAX_AT_ONCE};
use crate::key::LockName;
use crate::node::effect::Ask;
use crate::node::entry::{Seat, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::store::{Command, Leaving};

impl<P: Seat> Core<P> {
    /// Handles what is due, a bounded part of it at a time. Returns whether there is more to be
    /// done at once.
    pub fn tick(&mut self) -> bool {
        let now = self.now;
        let mut budget = MAX_AT_ONCE;
        while budget > 0
            && let Some(&(at, number)) = self.table.ends().first()
            && at <= now
        {
            self.ended(number);
            budget -= 1;
        }
        budget = self.renew_what_is_due(budget);
        self.leave_again();
        budget = self.send_what_is_due(budget);
        budget = self.renew_on(budget);
        budget = self.ask_in_turn(budget);
        if self.retry_at.is_some_and(|at| at <= now) {
            budget = self.ask_again(budget);
        }
        budget = self.touch_what_is_due(budget);
        self.recheck_on(budget);
        self.next().is_some_and(|next| next <= now)
    }

    /// When [`tick`](Self::tick) has something to do next, as far as is known now.
    pub fn next(&self) -> Option<Moment> {
        let at_once = Some(Moment::default());
        let room = self.has_room();
        let renewal = self.table.renewals().first().filter(|_| self.renewing < MAX_AT_ONCE);
        let send = self.table.sends().first().filter(|_| room);
        let touch = self.table.touches().first().filter(|_| self.may_touch());
        [
            self.table.ends().first().map(|(at, _)| *at),
            renewal.map(|(at, _)| *at),
            send.map(|(at, _)| *at),
            touch.map(|(at, _)| *at),
            at_once.filter(|_| self.may_leave_again()),
            at_once.filter(|_| !self.table.unsent().is_empty() && self.may_ask()),
            self.retry_at.filter(|_| room),
            at_once.filter(|_| self.recheck.is_some() && self.may_touch()),
            at_once.filter(|_| self.renew_all.is_some() && self.renewing < MAX_AT_ONCE),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What would be due soon goes out with what is due: together they cost little more than one.
    pub(super) fn renew_what_is_due(&mut self, budget: usize) -> usize {
        let now = self.now;
        if self.table.renewals().first().is_none_or(|(at, _)| *at > now) {
            return budget;
        }
        let room = budget.min(MAX_AT_ONCE.saturating_sub(self.renewing));
        let soon = |number| now + lease::ahead(&self.table.entries()[number].options);
        let due =
            self.table.renewals().iter().take(room).filter(|(at, number)| *at <= soon(number));
        let due: Vec<u64> = due.map(|(_, number)| *number).collect();
        for number in &due {
            self.renew(*number);
        }
        budget - due.len()
    }

    /// Releases and leaves.
    pub(super) fn send_what_is_due(&mut self, mut budget: usize) -> usize {
        let mut leaving = BTreeMap::new();
        while budget > 0
            && self.on_their_way + leaving.len() < self.rules.window
            && let Some(&(at, number)) = self.table.sends().first()
            && at <= self.now
        {
            self.send(number, &mut leaving);
            budget -= 1;
        }
        self.leave(leaving);
        budget
    }

    pub(super) fn renew(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        let command = Command::Renew { members: vec![entry.member.clone()] };
        let ask = Ask { lock: entry.lock.clone(), command, sent: self.now, background: true };
        self.table.change(number, |entry| {
            if let State::Held(lease) = &mut entry.state {
                // The answer sets the next one.
                lease.renew_at = None;
            }
        });
        self.background(ask);
    }

    pub(super) fn send(&mut self, number: u64, leaving: &mut BTreeMap<LockName, Vec<Leaving>>) {
        let Some(entry) = self.table.get(number) else { return };
        match &entry.state {
            State::Releasing { .. } => {
                let ask = self.release_request(number, true);
                self.table.change(number, |entry| entry.state = State::Releasing { due: None });
                self.background(ask);
            }
            State::Leaving { .. } => {
                let (member, ambiguous) = (entry.member.clone(), entry.may_run_again());
                let batch = leaving.entry(entry.lock.clone()).or_default();
                batch.push(Leaving { member, ambiguous });
                self.table.change(number, |entry| {
                    if let State::Leaving { due, .. } = &mut entry.state {
                        *due = None;
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, leaving: BTreeMap<LockName, Vec<Leaving>>) {
        for (lock, leaving) in leaving {
            let command = Command::Leave { leaving };
            self.background(Ask { lock, command, sent: self.now, background: true });
        }
    }

    pub(super) fn renew_on(&mut self, mut budget: usize) -> usize {
        let Some((mut from, since)) = self.renew_all else { return budget };
        while budget > 0 && self.renewing < MAX_AT_ONCE {
            let (numbers, next) = self.stale_holds(from, since);
            for number in numbers {
                self.renew(number);
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
