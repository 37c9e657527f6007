//! The faults of the server.

use crate::agenda::{Place, What};
use crate::fault::Fault;
use crate::replica::Replica;
use crate::resource::Resource;
use crate::server::Server;
use crate::world::{MS, World};

/// The greatest difference between the clocks of two servers.
const APART_US: u64 = 5_000 * MS;
/// The time for which the server remembers a tombstone: a minute by its clock.
const MINUTE_US: u64 = 60_000 * MS;

impl World {
    /// Draws the server's faults before a request. Returns whether the request has to look up the
    /// server again.
    pub(crate) fn upset(&mut self) -> bool {
        self.copy();
        if self.strikes(Fault::Freeze) {
            let longest = if self.dice.one_in(8) { 25_000 } else { 4_000 };
            self.server.frozen_until = self.now + self.dice.of(1, longest * MS);
            return true;
        }
        if self.strikes(Fault::Full) {
            self.server.full_until = self.now + self.dice.below(5_000 * MS);
        }
        if self.strikes(Fault::ReadOnly) {
            self.server.read_only_until = self.now + self.dice.below(5_000 * MS);
        }
        if self.strikes(Fault::Step) {
            self.step_clock();
        }
        if self.strikes(Fault::Standstill) {
            let time_us = self.server.time_us(self.now);
            let until = self.now + self.dice.below(10_000 * MS);
            self.server.clock = (until, time_us);
        }
        // More commands may run in a microsecond here than on any server.
        let time_us = self.server.time_us(self.now);
        let is_behind = self.server.counter.is_some_and(|counter| counter < time_us);
        if is_behind && self.strikes(Fault::LoseCount) {
            self.server.counter = None;
        }
        if self.strikes(Fault::TurnBack) {
            self.turn_back();
            self.server.counter = None;
        }
        if is_behind && self.strikes(Fault::Wipe) {
            self.server.locks = Resource::all(&self.plan);
            self.server.counter = None;
            // The server began anew, or somebody has emptied it.
            return self.dice.one_in(2) && self.replace();
        }
        if self.strikes(Fault::Lag) {
            self.server.replica.behind_until = self.now + self.dice.below(5_000 * MS);
        }
        if self.strikes(Fault::FailOver) && self.take_over(0) {
            self.change_clock();
            return self.replace();
        }
        if self.strikes(Fault::Promote) {
            let acknowledged = self.server.replica.acknowledged(self.now);
            if self.take_over(acknowledged) {
                self.all_have_leases();
                return self.replace();
            }
        }
        false
    }

    /// Makes the replica the primary, with everything up to a time that is not before `from`.
    /// Returns whether the replica has followed at all.
    fn take_over(&mut self, from: u64) -> bool {
        let upto = self.dice.of(from.max(Replica::earliest(self.now)), self.now);
        let Some(known) = self.server.replica.known(upto) else { return false };
        (self.server.locks, self.server.counter) = known;
        true
    }

    /// Checks that no guard relies on a hold that the new server does not know.
    fn all_have_leases(&mut self) {
        for lock in 0..self.records.len() {
            let guards = self.records[lock].guards.iter();
            let guards: Vec<_> =
                guards.map(|guard| (guard.slot, guard.name, guard.number)).collect();
            for (slot, name, number) in guards {
                self.has_lease(Place { slot, name }, lock, number);
            }
        }
    }

    /// Puts another server in its place, without its connections.
    fn replace(&mut self) -> bool {
        self.server.era += 1;
        self.server.replica = Replica::default();
        self.server.forget_subscriptions();
        self.server.down_until = self.now + self.dice.of(1, 3_000 * MS);
        (self.server.full_until, self.server.read_only_until) = (0, 0);
        for slot in 0..self.processes.len() {
            let place = Place { slot, name: self.processes[slot].name };
            self.at(self.now, place, What::Reset);
        }
        true
    }

    fn copy(&mut self) {
        if self.plan.faults.have_any([Fault::FailOver, Fault::Promote]) {
            let Server { replica, locks, counter, .. } = &mut self.server;
            replica.follow(self.now, locks, *counter);
        }
    }

    /// Changes the clock: another server's differs a little, and lags by no more than a minute in
    /// all.
    fn change_clock(&mut self) {
        let server = &mut self.server;
        let time_us = server.time_us(self.now);
        server.peak_us = server.peak_us.max(time_us);
        let lowest = (server.peak_us - MINUTE_US + MS).min(time_us);
        let to_us = time_us + self.dice.below(2 * APART_US) - APART_US;
        server.show(self.now, to_us.max(lowest));
    }

    /// Sets the clock back, by a minute at most in all: leases end by that clock.
    fn turn_back(&mut self) {
        let server = &mut self.server;
        let time_us = server.time_us(self.now);
        server.peak_us = server.peak_us.max(time_us);
        let lowest = (server.peak_us - MINUTE_US + MS).min(time_us);
        let to_us = time_us - self.dice.below(time_us - lowest + 1);
        server.show(self.now, to_us);
    }

    fn step_clock(&mut self) {
        let server = &mut self.server;
        let time_us = server.time_us(self.now);
        server.peak_us = server.peak_us.max(time_us);
        let may_run_late =
            self.plan.faults.have_any([Fault::Break, Fault::Late, Fault::Repeat, Fault::Freeze]);
        let to_us = if self.dice.one_in(2) {
            return self.turn_back();
        } else if may_run_late {
            // A tombstone must last longer than a request may sit in a buffer.
            if self.now < server.stepped_at + MINUTE_US {
                return;
            }
            server.stepped_at = self.now;
            time_us + self.dice.below(4_000 * MS)
        } else {
            let most = [5_000, 60_000, 3_600_000][self.dice.below(3) as usize];
            time_us + self.dice.below(most * MS)
        };
        server.show(self.now, to_us);
    }
}
