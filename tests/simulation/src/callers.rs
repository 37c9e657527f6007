//! The callers of locks: they request, wait, cancel, and come late.

use std::time::Duration;

use proto::node::{Outcome as End, Phase, Request, StoreRequest};
use proto::{
    Answer, Command, Demand, Label, LockErrorKind, Member, Mode, Renewal, Renewed, StoreError,
    Terms, WhenBusy,
};

use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::judge::Guard;
use crate::pairs::Mechanism;
use crate::process::{Caller, Open, Section, Shared};
use crate::resource::Form;
use crate::routing::Way;
use crate::server::{index, reported_by};
use crate::world::{MS, World};
use laws::Law;

/// Returns the lease of a request, in µs.
pub(crate) fn lease_us(terms: &Terms) -> u64 {
    terms.lease.as_micros() as u64
}

/// A response that arrives this long after the request, in µs, is late.
const LATE_US: u64 = 500 * MS;

impl World {
    /// Plans the caller's next turn, after a while.
    pub(crate) fn rest(&mut self, place: Place, caller: usize) {
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
            Caller::Holds(_) => self.has_worked(place, caller),
            _ => {}
        }
    }

    fn begin(&mut self, place: Place, caller: usize, turn: u64) {
        if self.outcome.size.operations >= self.plan.operations {
            return;
        }
        self.outcome.size.operations += 1;
        let lock = self.dice.below(self.plan.locks) as usize;
        // Most use the run's usual lease: only neighbours with equal leases join a batch.
        let usual = 1_000 * (1 + self.plan.seed % 9);
        let rare = if self.plan.is_crowded() { 4 } else { 1 };
        let lease_ms = if self.dice.one_in(4 * rare) { self.dice.of(1_000, 9_000) } else { usual };
        let lease = Duration::from_millis(lease_ms);
        let kind = self.dice.below(6 * rare);
        let terms = match kind {
            0 => Terms { lease, renewal: Renewal::Fixed, ..Terms::default() },
            1 => {
                let longest = Duration::from_millis(self.dice.of(1_000, 15_000));
                Terms { lease, max_hold: Some(longest), ..Terms::default() }
            }
            _ => Terms { lease, ..Terms::default() },
        };
        let terms = match self.dice.one_in(16) {
            true => Terms { queue_limit: self.dice.of(1, 4) as u32, ..terms },
            false => terms,
        };
        let mode = if self.dice.one_in(4 * rare) { Mode::Try } else { Mode::Wait };
        let shared = Shared::of(caller);
        let demand = Form::of(&self.plan, lock as u64).demand(&mut self.dice);
        let keeps_newest = demand == Demand::EXCLUSIVE && self.dice.one_in(6 * rare);
        let when_busy = if keeps_newest { WhenBusy::KeepNewest } else { WhenBusy::Wait };
        let terms = Terms { when_busy, ..terms };
        let Some(attempt) = self.ask(place, lock, terms, mode, demand, shared.clone()) else {
            // The node has been shut down, so there is no caller.
            return;
        };
        self.asks_with(lock, &terms, demand);
        self.processes[place.slot].callers[caller] =
            Caller::Waits { attempt, lock, terms, shared, woken: None };
        if self.strikes(Fault::Force) {
            let lock = self.names[lock].clone();
            let sent = self.processes[place.slot].timers(self.now);
            let command = Command::ForceRelease { member: None };
            let request = self.processes[place.slot].core.untracked_request(lock, command, sent);
            self.send(place, request);
        }
        if mode == Mode::Wait && self.dice.one_in(4) {
            let longest = [50, 1_000, 20_000][self.dice.below(3) as usize];
            let ends = self.now + self.dice.below(longest * MS);
            self.at(ends, place, What::WaitEnds { caller, turn });
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
        let (attempt, store_request) = begun?;
        if let Some(store_request) = store_request {
            self.send(place, store_request);
        }
        Some(attempt)
    }

    /// Records the terms of a member that requests or holds a lock.
    fn asks_with(&mut self, lock: usize, terms: &Terms, demand: Demand) {
        if terms.renewal == Renewal::Fixed {
            self.meets(lock, Mechanism::FixedLease);
        }
        if terms.max_hold.is_some() {
            self.meets(lock, Mechanism::LongestHold);
        }
        if demand != Demand::EXCLUSIVE {
            self.meets(lock, Mechanism::Parts);
        }
    }

    /// Plans for a caller to look up the outcome.
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
            // Otherwise it is the attempt's turn to be sent.
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
            Caller::Waits { attempt, lock, terms, shared, woken } => {
                let attempt = *attempt;
                let lock = *lock;
                let shared = shared.clone();
                let terms = *terms;
                let woken = woken.take();
                if let Some(woken) = woken {
                    self.lapses(place, attempt, lock, lease_us(&terms), woken);
                }
                self.find(place, caller, attempt, lock, (shared, terms));
            }
            Caller::Holds(Section { again: Some(attempt), .. }) => {
                let attempt = *attempt;
                self.find_again(place, caller, attempt);
            }
            _ => {}
        }
    }

    /// Looks up an attempt's outcome.
    fn find(
        &mut self,
        place: Place,
        caller: usize,
        attempt: u64,
        lock: usize,
        (shared, terms): (Shared, Terms),
    ) {
        let (number, token) = match self.event(place, |core| core.take(attempt)) {
            End::Waits => return,
            End::Refused(_) => return self.rest(place, caller),
            End::Granted { number, token, .. } => (number, token),
        };
        self.outcome.holds += 1;
        let name = place.name;
        let member = self.processes[place.slot].core.member(number);
        let demand = member.map_or(Demand::EXCLUSIVE, Member::demand);
        let weight = demand.weight();
        self.outcome.parts += u64::from(demand != Demand::EXCLUSIVE);
        let hold = self.processes[place.slot].core.held_as(number);
        self.outcome.in_batches += u64::from(hold != number);
        let shared_of = shared.clone();
        let guard = Guard { slot: place.slot, name, number, hold, weight, shared: shared_of };
        self.goes_with_others(lock, &guard, token);
        self.records[lock].guards.push(guard);
        self.has_lease(place, lock, number);
        self.has_token(place, lock, number, token);
        let (again, guards) = (None, 1);
        let section = Section { number, lock, terms, shared, again, guards };
        self.processes[place.slot].callers[caller] = Caller::Holds(section);
        self.asks_with(lock, &terms, demand);
        self.works(place, caller);
        if self.strikes(Fault::Reenter) {
            self.reenters(place, caller, demand);
        }
    }

    /// Begins another attempt by a holder on its own lock.
    pub(crate) fn asks_again(
        &mut self,
        place: Place,
        caller: usize,
        lock: usize,
        demand: Demand,
    ) -> Option<u64> {
        let mode = if self.dice.one_in(2) { Mode::Try } else { Mode::Wait };
        self.ask(place, lock, Terms::default(), mode, demand, Shared::of(caller))
    }

    pub(crate) fn cancel(&mut self, place: Place, caller: usize, turn: u64) {
        self.withdraws(place, caller, turn, Mechanism::Cancel);
    }

    fn withdraws(&mut self, place: Place, caller: usize, turn: u64, why: Mechanism) {
        let process = &self.processes[place.slot];
        let Caller::Waits { attempt, lock, .. } = process.callers[caller] else { return };
        if process.turns[caller] == turn {
            self.meets(lock, why);
            self.event(place, |core| core.cancel(attempt));
            self.rest(place, caller);
        }
    }

    /// Ends a caller's wait. A grant at the same moment counts.
    pub(crate) fn wait_ends(&mut self, place: Place, caller: usize, turn: u64) {
        self.look(place, caller, turn);
        self.withdraws(place, caller, turn, Mechanism::TimedWait);
    }

    pub(crate) fn answered(
        &mut self,
        place: Place,
        request: u64,
        answer: Result<Answer, StoreError>,
        replicas: Option<u32>,
    ) {
        let Some(open) = self.processes[place.slot].open.remove(&request) else { return };
        let Open { store_request, way } = open;
        if self.now > way.since() + LATE_US {
            self.meets(index(&store_request), Mechanism::LateAnswer);
        }
        self.print(place, "is answered", &(&store_request, &answer));
        let believed = self.believed(place, &store_request);
        if let Ok(answer) = &answer {
            self.notes(place, &store_request, &way, answer);
        }
        let failed = self.processes[place.slot].core.counts().failed;
        self.looks(place, |core| match (&answer, replicas) {
            (Ok(answer), Some(0)) => core.unconfirmed(&store_request, Some(answer), &no_replica()),
            (Ok(answer), _) => core.replied(&store_request, answer),
            (Err(error), _) => core.unanswered(&store_request, error),
        });
        if self.processes[place.slot].core.counts().failed > failed {
            self.gives_up(&store_request.command);
        }
        if answer.is_err() {
            self.may_be_overtaken(place.name);
        }
        if let Ok(answer) = &answer {
            self.understood(place, &store_request, answer, &believed);
        }
        if let Some(caller) = self.releases.remove(&request) {
            self.rest(place, caller);
        }
    }

    /// Records the tokens and the time in a reply, as the store does before the core receives it.
    fn notes(&mut self, place: Place, request: &StoreRequest, way: &Way, answer: &Answer) {
        let slot = self.plan.slot(index(request));
        let process = &mut self.processes[place.slot];
        let seen = &mut process.shards[way.server].seen[slot];
        if let Some(now_us) = answer.now_us() {
            seen.note(now_us);
        }
        answer.grants().iter().for_each(|grant| seen.note_token(grant.last_token().get()));
        let tokens = reported_by(answer).into_iter().map(|(_, token)| token);
        process.receives(slot, tokens);
        if !way.asking {
            process.note_answer(way.server, slot);
        }
    }

    /// Returns the guards that a renewal is for: each as the index of the renewed member, the
    /// guard's number, and whether the guard is valid.
    fn believed(&self, place: Place, request: &StoreRequest) -> Vec<(usize, u64, bool)> {
        let guards = &self.records[index(request)].guards;
        let now = self.processes[place.slot].moment(self.now);
        let members = request.command.renews().iter().enumerate();
        let guard_of = |(at, member): (usize, &Member)| {
            let own = (place.name, member.number());
            let guard = guards.iter().find(|guard| (guard.name, guard.hold) == own)?;
            Some((at, guard.number, guard.shared.believes(now)))
        };
        members.filter_map(guard_of).collect()
    }

    /// Checks a reply after the node has processed it.
    fn understood(
        &mut self,
        place: Place,
        request: &StoreRequest,
        answer: &Answer,
        believed: &[(usize, u64, bool)],
    ) {
        let Answer::Renewed(reply) = answer else { return self.is_known(place, request, answer) };
        // An invalid guard has nothing to compare with.
        let valid = self.believed(place, request).into_iter().filter(|(.., believes)| *believes);
        for (at, number, _) in valid.collect::<Vec<_>>() {
            if reply.outcome.get(at) == Some(&Renewed::NotHeld) {
                self.breaks(Law::L4, || {
                    format!("{:?} finds nothing, and its guard stays valid", request.command)
                });
            }
            if believed.contains(&(at, number, false)) {
                self.breaks(Law::L4, || {
                    format!("a guard that had ended is valid again by {:?}", request.command)
                });
            }
            self.has_lease(place, index(request), number);
        }
        self.is_known(place, request, answer);
    }
}

/// Returns the error of a write that the replica did not acknowledge in time.
fn no_replica() -> StoreError {
    StoreError::refused(LockErrorKind::Unavailable, "0 of 1 replicas")
}
