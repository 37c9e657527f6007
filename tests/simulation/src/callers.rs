//! The callers of locks: they ask, wait, hold, release, cancel, come late, leak and forget.

use std::time::Duration;

use proto::node::{Ask, GivenBack, Outcome as End, Phase, Request};
use proto::{
    Answer, Command, Demand, Label, Member, Mode, Renewal, Renewed, StoreError, Terms, WhenBusy,
};

use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::judge::Guard;
use crate::process::{Caller, Open, Shared};
use crate::resource::Form;
use crate::server::index;
use crate::world::{MS, World};
use laws::Law;

impl World {
    /// Plans the next turn of a caller, after a while.
    fn rest(&mut self, place: Place, caller: usize) {
        let process = &mut self.processes[place.slot];
        process.callers[caller] = Caller::Idle;
        process.turns[caller] += 1;
        let turn = process.turns[caller];
        if !self.is_calm {
            let again = self.now + self.dice.below(30 * MS);
            self.at(again, place, What::Turn { caller, turn });
        }
    }

    pub(crate) fn turn(&mut self, place: Place, caller: usize, turn: u64) {
        let process = &self.processes[place.slot];
        if process.turns[caller] != turn {
            return;
        }
        match process.callers[caller] {
            Caller::Idle if !self.is_calm => self.begin(place, caller, turn),
            Caller::Holds { .. } => self.has_worked(place, caller),
            _ => {}
        }
    }

    fn begin(&mut self, place: Place, caller: usize, turn: u64) {
        if self.outcome.size.operations >= self.plan.operations {
            return;
        }
        self.outcome.size.operations += 1;
        let lock = self.dice.below(self.plan.locks) as usize;
        // Most have the lease of their run: only neighbours with the same are served together.
        let usual = 1_000 * (1 + self.plan.seed % 9);
        let lease_ms = if self.dice.one_in(4) { self.dice.of(1_000, 9_000) } else { usual };
        let lease_us = lease_ms * MS;
        let lease = Duration::from_micros(lease_us);
        let kind = self.dice.below(6);
        let options = match kind {
            0 => Terms { lease, renewal: Renewal::Fixed, ..Terms::default() },
            1 => {
                let longest = Duration::from_millis(self.dice.of(1_000, 15_000));
                Terms { lease, max_hold: Some(longest), ..Terms::default() }
            }
            _ => Terms { lease, ..Terms::default() },
        };
        let options = match self.dice.one_in(16) {
            true => Terms { queue_limit: self.dice.of(1, 4) as u32, ..options },
            false => options,
        };
        let mode = if self.dice.one_in(4) { Mode::Try } else { Mode::Wait };
        let shared = Shared::of(caller);
        let demand = Form::of(&self.plan, lock as u64).demand(&mut self.dice);
        let keeps_newest = demand == Demand::ALONE && self.dice.one_in(6);
        let when_busy = if keeps_newest { WhenBusy::KeepNewest } else { WhenBusy::Wait };
        let options = Terms { when_busy, ..options };
        let Some(attempt) = self.ask(place, lock, options, mode, demand, shared.clone()) else {
            // The node is shut down.
            return;
        };
        self.processes[place.slot].callers[caller] =
            Caller::Waits { attempt, lock, lease_us, shared, woken: None, ends: kind < 2 };
        if self.strikes(Fault::Force) {
            let lock = self.names[lock].clone();
            let sent = self.processes[place.slot].timers(self.now);
            let command = Command::ForceRelease { member: None };
            let ask = self.processes[place.slot].core.aside(lock, command, sent);
            self.send(place, ask);
        }
        if self.strikes(Fault::Cancel) {
            let scale = [1, MS, 100 * MS, 5_000 * MS][self.dice.below(4) as usize];
            let cancel_at = self.now + self.dice.below(scale);
            self.at(cancel_at, place, What::Cancel { caller, turn });
        }
    }

    fn ask(
        &mut self,
        place: Place,
        lock: usize,
        options: Terms,
        mode: Mode,
        demand: Demand,
        shared: Shared,
    ) -> Option<u64> {
        let request = Request {
            lock: self.names[lock].clone(),
            options,
            mode,
            label: Label::new(""),
            demand,
        };
        let begun = self.event(place, |core| core.begin(request, shared));
        let (attempt, ask) = begun?;
        if let Some(ask) = ask {
            self.send(place, ask);
        }
        Some(attempt)
    }

    /// Plans for a caller to look something up.
    pub(crate) fn wake(&mut self, place: Place, caller: usize) {
        let late = match self.strikes(Fault::Unread) {
            true => self.dice.below(15_000 * MS),
            false => self.dice.below(60),
        };
        let now = self.now;
        let process = &mut self.processes[place.slot];
        let turn = process.turns[caller];
        if let Caller::Waits { attempt, woken, .. } = &mut process.callers[caller] {
            let number = process.core.round(*attempt);
            // Or it is its turn to be sent.
            if number.is_some_and(|n| process.core.phase(n) == Some(Phase::Offered)) {
                woken.get_or_insert(now);
            }
        }
        self.at(now + late, place, What::Look { caller, turn });
    }

    pub(crate) fn look(&mut self, place: Place, caller: usize, turn: u64) {
        let process = &mut self.processes[place.slot];
        if process.turns[caller] != turn {
            return;
        }
        match &mut process.callers[caller] {
            Caller::Waits { attempt, lock, shared, lease_us, woken, ends } => {
                let attempt = *attempt;
                let lock = *lock;
                let shared = shared.clone();
                let ends = *ends;
                let lease_us = *lease_us;
                let woken = woken.take();
                if let Some(woken) = woken {
                    self.lapses(place, attempt, lock, lease_us, woken);
                }
                self.find(place, caller, attempt, lock, shared, ends);
            }
            Caller::Holds { again: Some(attempt), .. } => {
                let attempt = *attempt;
                self.find_again(place, caller, attempt);
            }
            _ => {}
        }
    }

    /// Looks up the outcome of an attempt.
    fn find(
        &mut self,
        place: Place,
        caller: usize,
        attempt: u64,
        lock: usize,
        shared: Shared,
        ends: bool,
    ) {
        let (number, token) = match self.event(place, |core| core.take(attempt)) {
            End::Waits => return,
            End::Refused(_) => return self.rest(place, caller),
            End::Granted { number, token, .. } => (number, token),
        };
        self.outcome.holds += 1;
        let name = place.name;
        let member = self.processes[place.slot].core.member(number);
        let demand = member.map_or(Demand::ALONE, Member::demand);
        let weight = demand.weight();
        self.outcome.parts += u64::from(demand != Demand::ALONE);
        let hold = self.processes[place.slot].core.held_as(number);
        self.outcome.in_runs += u64::from(hold != number);
        let shared_of = shared.clone();
        let guard = Guard { slot: place.slot, name, number, hold, weight, shared: shared_of };
        self.goes_with_others(lock, &guard, token);
        self.records[lock].guards.push(guard);
        self.has_lease(place, lock, number);
        self.has_token(place, lock, number, token);
        self.processes[place.slot].callers[caller] =
            Caller::Holds { number, lock, shared, again: None, ends };
        let is_long = self.dice.one_in(40) && !self.is_calm;
        let longest = if is_long { 15_000 } else { 5 };
        let held = self.dice.below(longest * MS);
        let turn = self.processes[place.slot].turns[caller];
        self.at(self.now + held, place, What::Turn { caller, turn });
        if self.strikes(Fault::Reenter) {
            let mode = if self.dice.one_in(2) { Mode::Try } else { Mode::Wait };
            let asked = self.ask(place, lock, Terms::default(), mode, demand, Shared::of(caller));
            if let Caller::Holds { again, .. } = &mut self.processes[place.slot].callers[caller] {
                *again = asked;
            }
        }
    }

    /// Looks up the outcome of an attempt that a holder of its lock has begun.
    fn find_again(&mut self, place: Place, caller: usize, attempt: u64) {
        let found = self.event(place, |core| core.take(attempt));
        if matches!(found, End::Waits) {
            return;
        }
        if let Caller::Holds { again, .. } = &mut self.processes[place.slot].callers[caller] {
            *again = None;
        }
        if let End::Granted { number, .. } = found {
            // Its first hold was lost. If it was not, the judge says so, which has seen the grant.
            self.event(place, |core| core.dropped(number));
        }
    }

    pub(crate) fn cancel(&mut self, place: Place, caller: usize, turn: u64) {
        let process = &self.processes[place.slot];
        let Caller::Waits { attempt, .. } = process.callers[caller] else { return };
        if process.turns[caller] == turn {
            self.event(place, |core| core.cancel(attempt));
            self.rest(place, caller);
        }
    }

    fn has_worked(&mut self, place: Place, caller: usize) {
        if !self.downgrades(place, caller) {
            self.give_back(place, caller);
        }
    }

    /// Makes some holders of a whole lock readers. From then on the guard counts on a read only,
    /// whether the server hears of it or not.
    fn downgrades(&mut self, place: Place, caller: usize) -> bool {
        let process = &self.processes[place.slot];
        let Caller::Holds { number, lock, .. } = process.callers[caller] else { return false };
        let all = Demand::ALONE.weight();
        let is_own = |guard: &&mut Guard| (guard.name, guard.number) == (place.name, number);
        let guard = self.records[lock].guards.iter_mut().find(is_own);
        let Some(guard) = guard.filter(|guard| guard.weight == all) else { return false };
        if Form::of(&self.plan, lock as u64) == Form::Locks || !self.dice.one_in(4) {
            return false;
        }
        guard.weight = Demand::READ.weight();
        let turn = process.turns[caller];
        if let Some(ask) = self.event(place, |core| core.downgrade(number)) {
            self.send(place, ask);
        }
        let held = self.dice.below(5 * MS);
        self.at(self.now + held, place, What::Turn { caller, turn });
        true
    }

    fn give_back(&mut self, place: Place, caller: usize) {
        let process = &mut self.processes[place.slot];
        let Caller::Holds { number, lock, ref shared, again, ends } = process.callers[caller]
        else {
            return;
        };
        let shared = shared.clone();
        if !shared.believes(process.moment(self.now)) {
            self.outcome.lost += 1;
            self.was_told(place, &shared);
        }
        if ends && self.strikes(Fault::Forget) {
            // Its guard is never heard of again.
            if let Some(again) = again {
                self.event(place, |core| core.cancel(again));
            }
            return self.rest(place, caller);
        }
        self.records[lock]
            .guards
            .retain(|guard| (guard.name, guard.number) != (place.name, number));
        let cancels_first = self.dice.one_in(2);
        if let (Some(again), true) = (again, cancels_first) {
            self.event(place, |core| core.cancel(again));
        }
        let ask = if self.strikes(Fault::Leak) {
            let hold = self.processes[place.slot].core.held_as(number);
            self.leaked.insert((place.name, hold));
            self.event(place, |core| core.leak(number));
            None
        } else if self.dice.one_in(3) {
            self.event(place, |core| core.dropped(number));
            None
        } else {
            let hold = self.processes[place.slot].core.held_as(number);
            let server = self.home(lock);
            let now_ms = server.time_us(self.now) / MS;
            let mut holders = server.locks[lock].holders(now_ms);
            let was_there = holders.any(|who| who == (place.name, hold));
            drop(holders);
            match self.event(place, |core| core.release(number)) {
                GivenBack::By(ask) => Some(ask),
                GivenBack::InRun => {
                    shared.return_to_run(was_there);
                    self.processes[place.slot].returned.push(shared);
                    None
                }
                GivenBack::Nothing => None,
            }
        };
        if let (Some(again), false) = (again, cancels_first) {
            self.event(place, |core| core.cancel(again));
        }
        let Some(ask) = ask else { return self.rest(place, caller) };
        self.processes[place.slot].callers[caller] = Caller::Releases;
        // The answer to a request that breaks with its connection has another number.
        let request = self.send(place, ask);
        let is_open = self.processes[place.slot].open.contains_key(&request);
        let request = if is_open { request } else { self.requests };
        self.releases.insert(request, caller);
    }

    pub(crate) fn answered(
        &mut self,
        place: Place,
        request: u64,
        answer: Result<Answer, StoreError>,
        replicas: Option<u32>,
    ) {
        let Some(open) = self.processes[place.slot].open.remove(&request) else { return };
        let Open { ask, way } = open;
        self.tell(place, "is answered", &(&ask, &answer));
        let believed = self.believed(place, &ask);
        self.looks(place, |core| match (&answer, replicas) {
            (Ok(answer), Some(count)) => core.confirmed(&ask, (answer, count)),
            (Ok(answer), None) => core.replied(&ask, answer),
            (Err(error), _) => core.unanswered(&ask, error),
        });
        if let Ok(answer) = &answer {
            let slot = self.plan.slot(index(&ask));
            let process = &mut self.processes[place.slot];
            if let Some(now_us) = answer.now_us() {
                process.shards[way.server].seen[slot].note(now_us);
            }
            for grant in answer.grants() {
                process.note_token(way.server, slot, grant.token.get());
            }
            if !way.asking {
                process.note_answer(way.server, slot);
            }
            self.understood(place, &ask, answer, believed);
        }
        if let Some(caller) = self.releases.remove(&request) {
            self.rest(place, caller);
        }
    }

    /// The number of the guard of a renewal, if it has one, and whether the guard says that it is
    /// valid.
    fn believed(&self, place: Place, ask: &Ask) -> Option<(u64, bool)> {
        let member = match ask.command.renews() {
            [] => return None,
            [member] => member,
            _ => unreachable!("a table renews one at a time"),
        };
        let own = (place.name, member.number());
        let guards = &self.records[index(ask)].guards;
        let guard = guards.iter().find(|guard| (guard.name, guard.hold) == own)?;
        let now = self.processes[place.slot].moment(self.now);
        Some((guard.number, guard.shared.believes(now)))
    }

    /// Passes an answer to the node, which acts on it.
    fn understood(
        &mut self,
        place: Place,
        ask: &Ask,
        answer: &Answer,
        believed: Option<(u64, bool)>,
    ) {
        // A guard that is not valid has nothing to be compared with.
        let valid = self.believed(place, ask).filter(|(_, believes)| *believes);
        if let (Answer::Renewed(reply), Some((number, _))) = (answer, valid) {
            if reply.outcome == [Renewed::NotHeld] {
                self.breaks(Law::L4, || {
                    format!("{:?} finds nothing, and its guard stays valid", ask.command)
                });
            }
            if believed == Some((number, false)) {
                self.breaks(Law::L4, || {
                    format!("a guard that had ended is valid again by {:?}", ask.command)
                });
            }
            self.has_lease(place, index(ask), number);
        }
        self.is_known(place, ask, answer);
    }
}
