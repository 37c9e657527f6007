//! Timed work: which renewals, releases, leaves, retries and touches are due, and how a tick sends
//! them.

use std::collections::BTreeMap;

use super::lane::Lane;
use super::{Core, MADE_DUE, MAX_AT_ONCE};
use crate::name::LockName;
use crate::node::effect::Effect;
use crate::node::entry::{LEAVE_RETRY_MS, Mirror, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::{Command, Leaving};

/// The kinds of work that a tick does when they are due, in the order in which it does them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueWork {
    /// Holds whose time is over, and granted locks that no caller took in time, are ended. Leaked
    /// holds are forgotten.
    End,
    /// Holds whose renewals are due are renewed.
    Renewal,
    /// Members that were released shortly before another server took over are removed there as
    /// well, because that server may not know of the release. Members whose leaves failed for long
    /// leave again.
    LeaveAgain,
    /// Due releases are sent, and leaves, the requests that take members out of the queue.
    GiveBack,
    /// The renewal of all holds, after a reconnect or a jump of the server's clock, continues: more
    /// renewals and leaves become due.
    RenewAll,
    /// First acquires that had to wait are sent, as far as the limit on requests in flight permits.
    Turn,
    /// Attempts whose acquire failed are retried after a pause.
    Retry,
    /// Waiters whose touches are due are touched: the request keeps them alive on the server and
    /// returns their state.
    Touch,
    /// The recheck of all waiters, after messages may have been missed, continues: more touches
    /// become due.
    Recheck,
}

impl DueWork {
    /// All kinds of work, in the order of a tick.
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

/// Returns the earlier of two moments, or the only moment if the other is `None`.
#[inline]
fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl<P: Mirror> Core<P> {
    /// Does the work that is due, for a bounded number of attempts and holds. Returns true if more
    /// work is due at once.
    pub fn tick(&mut self) -> bool {
        let mut budget = MAX_AT_ONCE;
        self.first_lane = (self.first_lane + 1) % self.table.lanes().len();
        for work in DueWork::ALL {
            if budget > 0 && self.is_due(work) {
                budget = self.handle(work, budget);
            }
        }
        DueWork::ALL.into_iter().any(|work| self.is_due(work))
    }

    /// Returns the time when [`tick`](Self::tick) must be called next; `None` if no work is
    /// scheduled. Any event may change this time.
    pub fn next(&self) -> Option<Moment> {
        // Both loops visit all kinds of work, although each kind belongs either to the node or to
        // the lanes: the compiler can unroll them and drop the other kinds. This matters, because
        // the method runs after every event.
        let mut next = None;
        for work in &DueWork::ALL {
            next = earlier(next, self.first_of_node(*work));
        }
        for lane in self.table.lanes() {
            for work in &DueWork::ALL {
                next = earlier(next, self.first_in(lane, *work));
            }
        }
        next
    }

    fn is_due(&self, work: DueWork) -> bool {
        let is_due = |at: Option<Moment>| at.is_some_and(|at| at <= self.now);
        is_due(self.first_of_node(work))
            || self.table.lanes().iter().any(|lane| is_due(self.first_in(lane, work)))
    }

    /// Returns when the first work of this kind is due, if the node has a single schedule for the
    /// kind; `None` if there is no work, or if each lane (server) has a schedule for it.
    #[inline]
    fn first_of_node(&self, work: DueWork) -> Option<Moment> {
        let at_once = |is_due: bool| is_due.then(Moment::default);
        match work {
            DueWork::End => self.table.ends().first().map(|(at, _)| *at),
            DueWork::GiveBack => self.table.releases().first().map(|(at, _)| *at),
            DueWork::RenewAll => at_once(self.renew_all.is_some()),
            DueWork::Recheck => at_once(self.recheck.is_some()),
            _ => None,
        }
    }

    /// Returns when the first work of this kind is due in a lane (for a server); `None` if there is
    /// no work, or if no more requests of this kind may be in flight to the server.
    #[allow(
        clippy::inline_always,
        reason = "asked after every event: a call costs more than it does"
    )]
    #[inline(always)]
    fn first_in(&self, lane: &Lane, work: DueWork) -> Option<Moment> {
        let at_once = |is_due: bool| is_due.then(Moment::default);
        match work {
            DueWork::Renewal => {
                let first = lane.renewals.first().filter(|_| self.room_to_renew(lane) > 0);
                first.map(|(at, _)| *at)
            }
            DueWork::LeaveAgain => at_once(self.may_leave_again(lane)),
            DueWork::GiveBack => {
                let first = lane.leaves.first().filter(|_| self.room_to_leave(lane) > 0);
                first.map(|(at, _)| *at)
            }
            DueWork::Turn => at_once(!lane.unsent.is_empty() && self.room_to_ask(lane) > 0),
            DueWork::Retry => lane.traffic.retry_at.filter(|_| self.room_to_repeat(lane) > 0),
            DueWork::Touch => {
                let first = lane.touches.first().filter(|_| self.room_to_touch(lane) > 0);
                first.map(|(at, _)| *at)
            }
            DueWork::End | DueWork::RenewAll | DueWork::Recheck => None,
        }
    }

    /// Does due work of this kind, for at most `budget` attempts and holds. Returns the remaining
    /// budget.
    fn handle(&mut self, work: DueWork, budget: usize) -> usize {
        match work {
            DueWork::End => self.end_what_is_due(budget),
            DueWork::Renewal => self.in_each_lane(budget, Self::renew_what_is_due),
            DueWork::LeaveAgain => self.in_each_lane(budget, Self::leave_again),
            DueWork::GiveBack => self.give_back_what_is_due(budget),
            DueWork::RenewAll => self.renew_on(budget),
            DueWork::Turn => self.in_each_lane(budget, Self::send_unsent),
            DueWork::Retry => self.in_each_lane(budget, Self::retry_what_is_due),
            DueWork::Touch => self.in_each_lane(budget, Self::touch_what_is_due),
            DueWork::Recheck => self.recheck_on(budget),
        }
    }

    /// Calls `work` for each lane (server) with an equal share of the budget. The unused part of a
    /// share goes to the following lanes. Returns the remaining budget.
    pub(super) fn in_each_lane(
        &mut self,
        mut budget: usize,
        work: fn(&mut Self, lane: u16, budget: usize) -> usize,
    ) -> usize {
        let count = self.table.lanes().len();
        for nth in 0..count {
            let lane = (self.first_lane + nth) % count;
            let part = budget.div_ceil(count - nth);
            budget -= part - work(self, lane as u16, part);
        }
        budget
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

    /// Retries the attempts in a lane (for a server) whose acquire failed, if the pause is over.
    /// Handles at most `budget` attempts. Returns the remaining budget.
    fn retry_what_is_due(&mut self, lane: u16, budget: usize) -> usize {
        let retry_at = self.table.lane(lane).traffic.retry_at;
        if retry_at.is_some_and(|at| at <= self.now) {
            self.retry_parked(lane, budget)
        } else {
            budget
        }
    }

    /// Sends the due renewals in a lane (to a server). Renewals due soon are sent along, because
    /// many together cost the server little more than one. Handles at most `budget` holds. Returns
    /// the remaining budget.
    pub(super) fn renew_what_is_due(&mut self, lane: u16, budget: usize) -> usize {
        let now = self.now;
        let lane = self.table.lane(lane);
        let room = budget.min(self.room_to_renew(lane));
        let soon = |number| now + lease::ahead(&self.table.entries()[number].options);
        let due = lane.renewals.iter().take(room).filter(|(at, number)| *at <= soon(number));
        let due: Vec<u64> = due.map(|(_, number)| *number).collect();
        for number in &due {
            self.renew(*number);
        }
        budget - due.len()
    }

    /// Sends the due releases, and then the due leaves (requests that take members out of the
    /// queue), as many as may be in flight to each server. Releases have no such limit, because
    /// there are never more than grants. Leaves for the same lock are sent together. Returns the
    /// part of `budget` that neither has used.
    pub(super) fn give_back_what_is_due(&mut self, mut budget: usize) -> usize {
        while let Some(&(at, number)) = self.table.releases().first()
            && at <= self.now
        {
            self.send(number, &mut BTreeMap::new());
            budget = budget.saturating_sub(1);
        }
        // This check is cheap, and mostly no leave is due.
        match self.is_due(DueWork::GiveBack) {
            true => self.in_each_lane(budget, Self::leave_what_is_due),
            false => budget,
        }
    }

    fn leave_what_is_due(&mut self, lane: u16, mut budget: usize) -> usize {
        let mut leaving = BTreeMap::new();
        while budget > 0
            && let Some(&(at, number)) = self.table.lane(lane).leaves.first()
            && at <= self.now
            && (leaving.len() < self.room_to_leave(self.table.lane(lane))
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
        let request = self.request(lock, Command::Renew { members }, true);
        self.table.change(number, |entry| {
            if let State::Held(lease) | State::Serving(lease) = &mut entry.state {
                // The response schedules the next renewal.
                lease.renew_at = None;
            }
        });
        self.background(request);
        self.show_batch(number);
    }

    pub(super) fn send(&mut self, number: u64, leaving: &mut BTreeMap<LockName, Vec<Leaving>>) {
        let Some(entry) = self.table.get(number) else { return };
        match &entry.state {
            State::Releasing { .. } => {
                let request = self.release_request(number, false);
                self.table.change(number, |entry| {
                    if let State::Releasing { due, .. } = &mut entry.state {
                        *due = None;
                    }
                });
                self.push(Effect::Send(request));
            }
            State::Leaving { .. } if self.batches.contains(number) => {
                let request = self.release_request(number, true);
                self.table.change(number, |entry| {
                    if let State::Leaving { due, .. } = &mut entry.state {
                        *due = None;
                    }
                });
                self.background(request);
            }
            State::Leaving { .. } => {
                let member = entry.member.clone();
                let ambiguous = entry.may_run_again();
                let of_lock = leaving.entry(entry.lock.clone()).or_default();
                of_lock.push(Leaving::new(member, ambiguous));
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
            let request = self.request(lock, command, true);
            self.background(request);
        }
    }

    /// Continues the renewal of all holds after a reconnect or a jump of the server's clock. Makes
    /// the renewals and leaves of some members due at once; they are sent as soon as their lanes
    /// have room. Handles at most [`MADE_DUE`] members, and at most `budget`. Returns the remaining
    /// budget.
    pub(super) fn renew_on(&mut self, budget: usize) -> usize {
        let Some((from, since)) = self.renew_all else { return budget };
        let (numbers, next) = self.stale(from, since, budget.min(MADE_DUE));
        for number in &numbers {
            self.make_due(*number);
        }
        self.renew_all = next.map(|next| (next, since));
        budget - numbers.len()
    }

    /// Returns the ids of up to `most` members whose requests the renewal of all holds must send,
    /// from the id `from` on. These are holds with a lease requested before `since`, and members
    /// for which a leave is to be repeated. Requests in flight are left out. Also returns the id
    /// from which to continue; `None` at the end.
    fn stale(&self, from: u64, since: Moment, most: usize) -> (Vec<u64>, Option<u64>) {
        self.part_of(from, most, |entry| match &entry.state {
            State::Held(lease) | State::Serving(lease) => {
                lease.asked < since && lease.renew_at.is_some()
            }
            State::Leaving { due, .. } => due.is_some(),
            _ => false,
        })
    }

    /// Makes the renewal of a hold, or the next leave of a member that was given up, due at once.
    /// The pause between repeated leaves starts over, because it may have grown while there was no
    /// connection.
    pub(super) fn make_due(&mut self, number: u64) {
        let now = self.now;
        self.table.change(number, |entry| match &mut entry.state {
            State::Leaving { due, pause_ms, .. } => {
                (*due, *pause_ms) = (Some(now), LEAVE_RETRY_MS);
            }
            State::Held(lease) | State::Serving(lease) => {
                lease.renew_at = lease.renew_at.map(|at| at.min(now));
            }
            _ => {}
        });
    }
}
