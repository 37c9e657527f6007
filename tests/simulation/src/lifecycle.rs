//! The lifecycle of processes: born, ticking, stopped, suspended, killed, shut down.

use proto::LockErrorKind;

use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::network::REQUEST_TIMEOUT_US;
use crate::pairs::Mechanism;
use crate::process::{Closing, Process};
use crate::world::{MS, World};
use laws::Law;

/// The longest interval at which a process checks whether the machine was suspended.
const LOOKS_US: u64 = 1_000 * MS;
/// The interval at which a closing node checks the progress.
const PROGRESS_US: u64 = 2 * MS;

impl World {
    pub(crate) fn born(&mut self, slot: usize) -> Process {
        let name = self.slots.len() as u64;
        self.slots.push(Some(slot));
        self.ended_well.push(false);
        // The clock differs from the server's by less than the margin, or by more.
        let rate = match self.strikes(Fault::Drift) {
            true => self.dice.of(950_000, 1_050_000),
            false => self.dice.of(994_500, 1_005_500),
        };
        let seed = self.dice.next();
        self.servers.iter_mut().for_each(|server| server.subscribe(name));
        let waits = self.plan.faults.have_any([Fault::Promote]);
        let now = self.now;
        let servers = self.servers.iter().map(|server| (server.era, server.time_us(now)));
        let servers = (servers.collect(), self.cluster.owners().to_vec());
        let callers = self.plan.callers as usize;
        let mut process = Process::new(name, seed, now, rate, servers, callers, waits);
        match self.lanes(&process) {
            Some(lanes) => process.core.set_lanes(lanes),
            // A Cluster has no fast path, and some users lack the right.
            None => process.core.set_fast_path(!seed.is_multiple_of(4)),
        }
        process
    }

    pub(crate) fn wake_all(&mut self, slot: usize) {
        let place = Place { slot, name: self.processes[slot].name };
        for caller in 0..self.plan.callers as usize {
            let turn_at = self.now + self.dice.below(20 * MS);
            self.at(turn_at, place, What::Turn { caller, turn: 0 });
        }
    }

    /// Replaces a process by another.
    fn succeed(&mut self, place: Place) {
        for server in 0..self.servers.len() {
            let noticed = self.dice.below(4_000 * MS);
            self.notice(place, server, noticed);
        }
        self.slots[place.name as usize] = None;
        for record in &mut self.records {
            record.guards.retain(|guard| guard.name != place.name);
        }
        let releases = std::mem::take(&mut self.processes[place.slot].open);
        for request in releases.keys() {
            self.releases.remove(request);
        }
        self.processes[place.slot] = self.born(place.slot);
        self.wake_all(place.slot);
    }

    pub(crate) fn plan_tick(&mut self, place: Place) {
        let process = &mut self.processes[place.slot];
        if process.unseen > 0 {
            // The process's timers were suspended with it.
            return;
        }
        let Some(next) = process.core.next() else { return };
        let tick_at = process.world_us(next).max(self.now + 5).max(process.stopped_until);
        if process.tick_at.is_none_or(|planned| tick_at < planned) {
            process.tick_at = Some(tick_at);
            self.at(tick_at, place, What::Tick);
        }
    }

    pub(crate) fn tick(&mut self, place: Place) {
        let process = &mut self.processes[place.slot];
        if process.tick_at.is_none_or(|planned| planned > self.now) {
            return;
        }
        process.tick_at = None;
        self.looks(place, |core| core.tick());
        if self.strikes(Fault::Kill) {
            self.succeed(place);
        } else if self.strikes(Fault::Stop) {
            let until = self.now + self.dice.below(20_000 * MS);
            self.stop(place, until);
        } else if self.strikes(Fault::Suspend) {
            let longest = [2_000, 60_000][self.dice.below(2) as usize];
            let until = self.now + self.dice.below(longest * MS);
            self.processes[place.slot].unseen += until - self.now;
            self.stop(place, until);
        } else if self.strikes(Fault::ShutDown) {
            self.ends(place);
        }
    }

    /// Shuts the node down, unless that has begun already.
    pub(crate) fn ends(&mut self, place: Place) {
        if self.processes[place.slot].closing.is_none() {
            self.shut_down(place);
        }
    }

    fn stop(&mut self, place: Place, until: u64) {
        let reads = if self.dice.one_in(2) { self.dice.below(300 * MS) } else { 0 };
        let process = &mut self.processes[place.slot];
        (process.stopped_until, process.hears_at) = (until, until + reads);
        self.may_be_overtaken(place.name);
        self.at(until, place, What::Continued);
    }

    pub(crate) fn continued(&mut self, place: Place) {
        let late = self.dice.below(LOOKS_US);
        let process = &mut self.processes[place.slot];
        if process.unseen == 0 {
            return self.plan_tick(place);
        }
        let tick_at = self.now + late.min(process.unseen);
        process.tick_at = Some(tick_at);
        self.at(tick_at, place, What::Tick);
    }

    /// Shuts the node down, like `Locks::shutdown`.
    fn shut_down(&mut self, place: Place) {
        self.own_meet(place.name, Mechanism::ShutDown);
        self.may_be_overtaken(place.name);
        self.event(place, |core| core.close());
        let mut from = Some(0);
        while let Some(start) = from {
            let kind = LockErrorKind::Closed;
            (_, from) = self.event(place, |core| core.end_attempts(start, kind));
        }
        let longest = if self.dice.one_in(2) { 3_000 } else { 20_000 };
        let patience = self.dice.below(longest * MS);
        let process = &mut self.processes[place.slot];
        process.failed_before = process.core.counts().failed;
        process.closing = Some((Closing::Attempts, self.now + patience));
        self.at(self.now, place, What::Closing);
    }

    pub(crate) fn close_on(&mut self, place: Place) {
        let process = &mut self.processes[place.slot];
        let Some((stage, deadline)) = process.closing else { return };
        let end = deadline + REQUEST_TIMEOUT_US;
        let counts = process.core.counts();
        let next = match stage {
            Closing::Attempts if counts.attempts + counts.given_back == 0 || self.now >= end => {
                Closing::Holds
            }
            Closing::Holds if counts.holds == 0 || self.now >= deadline => {
                let mut from = Some(0);
                while let Some(start) = from {
                    (_, from) =
                        self.event(place, |core| core.take_holds(start, "the node was shut down"));
                }
                Closing::Rest
            }
            Closing::Rest if counts.given_back == 0 || self.now >= end => {
                return self.has_shut_down(place);
            }
            stage => stage,
        };
        self.processes[place.slot].closing = Some((next, deadline));
        self.at(self.now + PROGRESS_US, place, What::Closing);
    }

    fn has_shut_down(&mut self, place: Place) {
        let Process { core, failed_before, .. } = &self.processes[place.slot];
        let counts = core.counts();
        // Like `Locks::shutdown`, which reports only what was given up since its beginning.
        if counts.attempts + counts.given_back + counts.failed == *failed_before {
            self.ended_well[place.name as usize] = true;
            if let Some((lock, who)) = self.remains_of(place.name) {
                let phase = self.processes[place.slot].core.phase(who.1);
                self.breaks(Law::L6, || format!("{who:?}, {phase:?}, is left in lock {lock}"));
            }
        }
        self.succeed(place);
    }
}
