//! The effects of time: renewals, releases, leaves and repetitions, when they are due and there is
//! room for them.

use std::collections::BTreeMap;

use super::{Core, MAX_AT_ONCE};
use crate::name::LockName;
use crate::node::effect::{Ask, Effect};
use crate::node::entry::{LEAVE_RETRY_MS, Mirror, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::{Command, Leaving};

/// The work that time makes due, in the order in which a tick does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueWork {
    /// A hold or an offer ends, or is forgotten.
    End,
    /// A hold is renewed.
    Renewal,
    /// Members leave once more where another server has taken over.
    LeaveAgain,
    /// Holds and places are given back.
    GiveBack,
    /// Holds are renewed, and members leave, after a new connection.
    RenewAll,
    /// Acquires go out for which there was no room.
    Turn,
    /// Parked attempts are asked for again.
    Retry,
    /// A line is touched.
    Touch,
    /// Lines are touched after a new connection.
    Recheck,
}

impl DueWork {
    /// All work that can be due: the one list of it.
    pub(super) const ALL: [Self; 9] = [
        Self::End,
        Self::Renewal,
        Self::LeaveAgain,
        Self::GiveBack,
        Self::RenewAll,
        Self::Turn,
        Self::Retry,
        Self::Touch,
        Self::Recheck,
    ];
}

impl<P: Mirror> Core<P> {
    /// Handles the entries that are due, a bounded number at a time. Returns whether there is more
    /// to be done at once.
    pub fn tick(&mut self) -> bool {
        let mut budget = MAX_AT_ONCE;
        for work in DueWork::ALL {
            if budget > 0 && self.is_due(work) {
                budget = self.handle(work, budget);
            }
        }
        DueWork::ALL.into_iter().any(|work| self.is_due(work))
    }

    /// The moment at which [`tick`](Self::tick) has something to do next, as far as is known now.
    pub fn next(&self) -> Option<Moment> {
        let mut next: Option<Moment> = None;
        for work in DueWork::ALL {
            if let Some(at) = self.first(work)
                && next.is_none_or(|next| at < next)
            {
                next = Some(at);
            }
        }
        next
    }

    fn is_due(&self, work: DueWork) -> bool {
        self.first(work).is_some_and(|at| at <= self.now)
    }

    /// The moment at which this work is due, if there is room for it.
    #[inline]
    fn first(&self, work: DueWork) -> Option<Moment> {
        let at_once = |is_due: bool| is_due.then(Moment::default);
        let may_renew = self.renewing < MAX_AT_ONCE;
        match work {
            DueWork::End => self.table.ends().first().map(|(at, _)| *at),
            DueWork::Renewal => {
                self.table.renewals().first().filter(|_| may_renew).map(|(at, _)| *at)
            }
            DueWork::LeaveAgain => at_once(self.may_leave_again()),
            DueWork::GiveBack => {
                let release = self.table.releases().first();
                let leave = self.table.leaves().first().filter(|_| self.may_leave());
                release.into_iter().chain(leave).map(|(at, _)| *at).min()
            }
            DueWork::RenewAll => at_once(self.renew_all.is_some() && may_renew),
            DueWork::Turn => at_once(!self.table.unsent().is_empty() && self.may_ask()),
            DueWork::Retry => self.retry_at.filter(|_| self.may_repeat()),
            DueWork::Touch => {
                self.table.touches().first().filter(|_| self.may_touch()).map(|(at, _)| *at)
            }
            DueWork::Recheck => at_once(self.recheck.is_some() && self.may_touch()),
        }
    }

    /// Does this work as far as it is due. Returns the rest of the budget.
    fn handle(&mut self, work: DueWork, budget: usize) -> usize {
        match work {
            DueWork::End => self.end_what_is_due(budget),
            DueWork::Renewal => self.renew_what_is_due(budget),
            DueWork::LeaveAgain => {
                self.leave_again();
                budget
            }
            DueWork::GiveBack => self.give_back_what_is_due(budget),
            DueWork::RenewAll => self.renew_on(budget),
            DueWork::Turn => self.ask_in_turn(budget),
            DueWork::Retry => self.ask_again(budget),
            DueWork::Touch => self.touch_what_is_due(budget),
            DueWork::Recheck => self.recheck_on(budget),
        }
    }

    fn end_what_is_due(&mut self, mut budget: usize) -> usize {
        while budget > 0
            && let Some(&(at, number)) = self.table.ends().first()
            && at <= self.now
        {
            self.ended(number);
            budget -= 1;
        }
        budget
    }

    /// Renews the holds that are due, and with them those that are due soon: together they cost
    /// little more than one.
    pub(super) fn renew_what_is_due(&mut self, budget: usize) -> usize {
        let now = self.now;
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

    /// Releases, however many there are: each ends a hold, so there are no more of them than were
    /// granted. Then leaves, those of one lock together, as far as there is room for them.
    pub(super) fn give_back_what_is_due(&mut self, mut budget: usize) -> usize {
        while let Some(&(at, number)) = self.table.releases().first()
            && at <= self.now
        {
            self.send(number, &mut BTreeMap::new());
            budget = budget.saturating_sub(1);
        }
        let mut leaving = BTreeMap::new();
        while budget > 0
            && let Some(&(at, number)) = self.table.leaves().first()
            && at <= self.now
            && (self.leaving + leaving.len() < self.most_leaves()
                || leaving.contains_key(&self.table.entries()[&number].lock))
        {
            self.send(number, &mut leaving);
            budget -= 1;
        }
        self.leave(leaving);
        budget
    }

    pub(super) fn renew(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        let (lock, members) = (entry.lock.clone(), vec![entry.member.clone()]);
        let command = Command::Renew { members };
        let ask = Ask { lock, command, sent: self.now, background: true };
        self.table.change(number, |entry| {
            if let State::Held(lease) | State::Serving(lease) = &mut entry.state {
                // The answer sets the next one.
                lease.renew_at = None;
            }
        });
        self.background(ask);
        self.show_run(number);
    }

    pub(super) fn send(&mut self, number: u64, leaving: &mut BTreeMap<LockName, Vec<Leaving>>) {
        let Some(entry) = self.table.get(number) else { return };
        match &entry.state {
            State::Releasing { .. } => {
                let ask = self.release_request(number, false);
                self.table.change(number, |entry| entry.state = State::Releasing { due: None });
                self.push(Effect::Send(ask));
            }
            State::Leaving { .. } if self.runs.contains(number) => {
                let ask = self.release_request(number, true);
                self.table.change(number, |entry| {
                    if let State::Leaving { due, .. } = &mut entry.state {
                        *due = None;
                    }
                });
                self.background(ask);
            }
            State::Leaving { .. } => {
                let member = entry.member.clone();
                let ambiguous = entry.may_run_again();
                let batch = leaving.entry(entry.lock.clone()).or_default();
                batch.push(Leaving::new(member, ambiguous));
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
            let (numbers, next) = self.stale(from, since);
            for number in numbers {
                self.tell_anew(number);
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

    /// Holds that were not asked for since then, and members that leave, of which no request is on
    /// its way.
    pub(super) fn stale(&self, from: u64, since: Moment) -> (Vec<u64>, Option<u64>) {
        self.part_of(from, |entry| match &entry.state {
            State::Held(lease) | State::Serving(lease) => {
                lease.asked < since && lease.renew_at.is_some()
            }
            State::Leaving { due, .. } => due.is_some(),
            _ => false,
        })
    }

    /// Renews a hold, or lets a member leave now that waits to be tried again: the pauses of its
    /// tries have grown while there was no connection.
    fn tell_anew(&mut self, number: u64) {
        let now = self.now;
        let is_held = self.table.change(number, |entry| match &mut entry.state {
            State::Leaving { due, pause_ms, .. } => {
                (*due, *pause_ms) = (Some(now), LEAVE_RETRY_MS);
                false
            }
            State::Held(_) | State::Serving(_) => true,
            _ => false,
        });
        if is_held == Some(true) {
            self.renew(number);
        }
    }
}
