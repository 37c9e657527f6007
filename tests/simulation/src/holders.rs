//! The holders: they work, request their own lock again, downgrade, leak, forget, and release.

use proto::node::{GivenBack, Outcome as End, StoreRequest};
use proto::{Demand, Renewal};

use crate::callers::lease_us;
use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::pairs::Mechanism;
use crate::process::{Caller, Returned, Section, Shared};
use crate::resource::Form;
use crate::world::{MS, World};

impl World {
    /// Lets a holder work for a while: in more than a third of all draws longer than a lease, so
    /// over several renewals. Once the faults are over, only for a moment.
    pub(crate) fn works(&mut self, place: Place, caller: usize) {
        let Caller::Holds(Section { terms, .. }) = &self.processes[place.slot].callers[caller]
        else {
            return;
        };
        let lease_us = lease_us(terms);
        let is_long = !self.is_calm && self.dice.below(5) < 2;
        let time = match is_long {
            true => lease_us + self.dice.below(2 * lease_us),
            false => self.dice.below(5 * MS),
        };
        self.outcome.works += 1;
        self.outcome.long_works += u64::from(is_long);
        let turn = self.processes[place.slot].turns[caller];
        self.at(self.now + time, place, What::Turn { caller, turn });
    }

    /// Lets a holder acquire the lock twice: by a second guard of the same hold, or by another
    /// attempt, which waits behind the holder's own hold.
    pub(crate) fn reenters(&mut self, place: Place, caller: usize, demand: Demand) {
        let Caller::Holds(section) = &mut self.processes[place.slot].callers[caller] else {
            return;
        };
        let lock = section.lock;
        let is_guard = self.dice.one_in(2);
        section.guards += u32::from(is_guard);
        self.meets(lock, Mechanism::Reenter);
        if is_guard {
            return;
        }
        let again = self.asks_again(place, caller, lock, demand);
        if let Caller::Holds(section) = &mut self.processes[place.slot].callers[caller] {
            section.again = again;
        }
    }

    /// Looks up the outcome of a holder's second attempt on the same lock.
    pub(crate) fn find_again(&mut self, place: Place, caller: usize, attempt: u64) {
        let found = self.event(place, |core| core.take(attempt));
        if matches!(found, End::Waits) {
            return;
        }
        if let Caller::Holds(section) = &mut self.processes[place.slot].callers[caller] {
            section.again = None;
        }
        if let End::Granted { number, .. } = found {
            // The first hold was lost. If it was not, the judge, which has seen the grant, reports
            // it.
            self.event(place, |core| core.dropped(number));
        }
    }

    pub(crate) fn has_worked(&mut self, place: Place, caller: usize) {
        let Caller::Holds(section) = &mut self.processes[place.slot].callers[caller] else {
            return;
        };
        if section.guards > 1 && !self.is_calm && self.dice.one_in(2) {
            // The other guard keeps the hold.
            section.guards -= 1;
            return self.works(place, caller);
        }
        if self.downgrades(place, caller) {
            return self.works(place, caller);
        }
        self.give_back(place, caller);
    }

    /// Turns some exclusive holders into readers. From then on the guard relies only on a read,
    /// whether or not the server receives the downgrade.
    fn downgrades(&mut self, place: Place, caller: usize) -> bool {
        let Caller::Holds(Section { number, lock, .. }) =
            self.processes[place.slot].callers[caller]
        else {
            return false;
        };
        let all = Demand::EXCLUSIVE.weight();
        let mut guards = self.records[lock].guards.iter_mut();
        let guard = guards.find(|guard| (guard.name, guard.number) == (place.name, number));
        let Some(guard) = guard.filter(|guard| guard.weight == all) else { return false };
        if Form::of(&self.plan, lock as u64) == Form::Locks || !self.dice.one_in(4) {
            return false;
        }
        guard.weight = Demand::READ.weight();
        self.meets(lock, Mechanism::Downgrade);
        self.cuts(place, lock, number);
        if let Some(request) = self.event(place, |core| core.downgrade(number)) {
            self.send(place, request);
        }
        true
    }

    fn give_back(&mut self, place: Place, caller: usize) {
        let process = &mut self.processes[place.slot];
        let Caller::Holds(section) = &process.callers[caller] else { return };
        let Section { number, lock, terms, ref shared, again, guards } = *section;
        let shared = shared.clone();
        if !shared.believes(process.moment(self.now)) {
            self.outcome.lost += 1;
            self.check_notified(place, &shared);
        }
        if self.strikes(Fault::Forget) {
            self.meets(lock, Mechanism::Forget);
            // The guard is never used again. If nothing else ends the hold, the process's end does.
            if let Some(again) = again {
                self.event(place, |core| core.cancel(again));
            }
            if terms.renewal == Renewal::Watchdog && terms.max_hold.is_none() {
                let until = self.now + self.dice.below(4 * lease_us(&terms));
                self.at(until, place, What::Ends);
            }
            return self.rest(place, caller);
        }
        self.records[lock]
            .guards
            .retain(|guard| (guard.name, guard.number) != (place.name, number));
        if self.strikes(Fault::Leak) {
            let hold = self.processes[place.slot].core.held_as(number);
            self.leaked.insert((place.name, hold));
            self.meets(lock, Mechanism::Leak);
            self.cuts(place, lock, number);
            self.event(place, |core| core.leak(number));
            if guards > 1 {
                // The hold's other guard is lost, too.
                if let Caller::Holds(section) = &mut self.processes[place.slot].callers[caller] {
                    section.guards = 1;
                }
                return self.works(place, caller);
            }
        }
        let cancels_first = self.dice.one_in(2);
        if let (Some(again), true) = (again, cancels_first) {
            self.event(place, |core| core.cancel(again));
        }
        let store_request = if self.dice.one_in(3) {
            self.meets(lock, Mechanism::Drop);
            self.event(place, |core| core.dropped(number));
            None
        } else {
            self.releases(place, number, lock, &shared)
        };
        if let (Some(again), false) = (again, cancels_first) {
            self.event(place, |core| core.cancel(again));
        }
        let Some(store_request) = store_request else { return self.rest(place, caller) };
        self.processes[place.slot].callers[caller] = Caller::Releases;
        // A request failed by a lost connection gets a response under another number.
        let request = self.send(place, store_request);
        let is_open = self.processes[place.slot].open.contains_key(&request);
        let request = if is_open { request } else { self.requests };
        self.releases.insert(request, caller);
    }

    /// Releases a hold as a caller waiting for the response.
    fn releases(
        &mut self,
        place: Place,
        number: u64,
        lock: usize,
        shared: &Shared,
    ) -> Option<StoreRequest> {
        let who = (place.name, self.processes[place.slot].core.held_as(number));
        let was_there = self.is_held_by(lock, who).then(|| self.records[lock].grants);
        match self.event(place, |core| core.release(number)) {
            GivenBack::By(request) => Some(request),
            GivenBack::InBatch => {
                let returned = Returned { shared: shared.clone(), lock, who, was_there };
                self.processes[place.slot].returned.push(returned);
                None
            }
            GivenBack::Nothing => None,
        }
    }
}
