//! Server faults.

use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::pairs::Mechanism;
use crate::replica::Replica;
use crate::resource::Resource;
use crate::server::Server;
use crate::world::{MS, World};

/// The greatest difference between two servers' clocks.
const APART_US: u64 = 5_000 * MS;
/// How long the server keeps a tombstone: a minute by the server's clock.
const MINUTE_US: u64 = 60_000 * MS;

impl World {
    /// Draws the server's faults before a request. Returns whether the request must look up the
    /// server again.
    pub(crate) fn upset(&mut self, server: usize) -> bool {
        self.copy(server);
        if self.strikes(Fault::Freeze) {
            let longest = if self.dice.one_in(8) { 25_000 } else { 4_000 };
            self.servers[server].frozen_until = self.now + self.dice.of(1, longest * MS);
            self.all_meet(server, Mechanism::Silence);
            return true;
        }
        if self.strikes(Fault::Full) {
            self.servers[server].full_until = self.now + self.dice.below(5_000 * MS);
        }
        if self.strikes(Fault::ReadOnly) {
            self.servers[server].read_only_until = self.now + self.dice.below(5_000 * MS);
        }
        if self.strikes(Fault::Step) {
            self.step_clock(server);
            self.all_may_be_overtaken();
        }
        if self.strikes(Fault::Standstill) {
            let time_us = self.servers[server].time_us(self.now);
            let until = self.now + self.dice.below(10_000 * MS);
            self.servers[server].clock = (until, time_us);
        }
        // Here, more commands may run in a microsecond than on any real server.
        let time_us = self.servers[server].time_us(self.now);
        let counters = &self.servers[server].counters;
        let is_behind = counters.iter().any(Option::is_some)
            && counters.iter().flatten().all(|counter| *counter < time_us);
        if is_behind && self.strikes(Fault::LoseCount) {
            self.servers[server].counters.fill(None);
        }
        if self.strikes(Fault::TurnBack) {
            self.turn_back(server);
            self.all_may_be_overtaken();
            self.servers[server].counters.fill(None);
        }
        if is_behind && self.strikes(Fault::Wipe) {
            self.servers[server].locks = Resource::all(&self.plan);
            self.all_may_be_overtaken();
            self.servers[server].counters.fill(None);
            // The server restarted without data, or was emptied.
            return self.dice.one_in(2) && self.replace(server);
        }
        if self.strikes(Fault::Lag) {
            self.servers[server].replica.behind_until = self.now + self.dice.below(5_000 * MS);
        }
        let fails_over = self.strikes(Fault::FailOver) || self.strikes(Fault::Replace);
        if fails_over && self.take_over(server, 0) {
            self.change_clock(server);
            return self.replace(server);
        }
        if self.strikes(Fault::Promote) {
            let acknowledged = self.servers[server].replica.acknowledged(self.now);
            if self.take_over(server, acknowledged) {
                self.all_have_leases();
                return self.replace(server);
            }
        }
        false
    }

    /// Promotes the replica, with everything up to a time that is not before `from`. Returns
    /// whether the replica had any copy.
    fn take_over(&mut self, server: usize, from: u64) -> bool {
        let upto = self.dice.of(from.max(Replica::earliest(self.now)), self.now);
        let Some(known) = self.servers[server].replica.known(upto) else { return false };
        self.all_meet(server, Mechanism::FailOver);
        self.all_may_be_overtaken();
        let of = &mut self.servers[server];
        (of.locks, of.counters) = known;
        self.takes_back(server);
        self.drop_foreign(server);
        true
    }

    /// Checks that no guard relies on a hold unknown to the new server.
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

    /// Replaces the server, and breaks the connections.
    fn replace(&mut self, server: usize) -> bool {
        let down_until = self.now + self.dice.of(1, 3_000 * MS);
        let of = &mut self.servers[server];
        of.era += 1;
        of.replica = Replica::default();
        of.forget_subscriptions();
        of.down_until = down_until;
        (of.full_until, of.read_only_until) = (0, 0);
        for slot in 0..self.processes.len() {
            let place = Place { slot, name: self.processes[slot].name };
            self.at(self.now, place, What::Reset { server });
        }
        true
    }

    fn copy(&mut self, server: usize) {
        if self.plan.faults.have_any([Fault::FailOver, Fault::Replace, Fault::Promote]) {
            let Server { replica, locks, counters, .. } = &mut self.servers[server];
            replica.follow(self.now, locks, counters);
        }
    }

    /// Changes the clock: another server's clock differs a little, and lags by a minute at most in
    /// all.
    fn change_clock(&mut self, server: usize) {
        let server = &mut self.servers[server];
        let time_us = server.time_us(self.now);
        server.peak_us = server.peak_us.max(time_us);
        let lowest = (server.peak_us - MINUTE_US + MS).min(time_us);
        let to_us = time_us + self.dice.below(2 * APART_US) - APART_US;
        server.show(self.now, to_us.max(lowest));
    }

    /// Sets the clock back, by a minute at most in all: leases end by that clock.
    fn turn_back(&mut self, server: usize) {
        let server = &mut self.servers[server];
        let time_us = server.time_us(self.now);
        server.peak_us = server.peak_us.max(time_us);
        let lowest = (server.peak_us - MINUTE_US + MS).min(time_us);
        let to_us = time_us - self.dice.below(time_us - lowest + 1);
        server.show(self.now, to_us);
    }

    fn step_clock(&mut self, server: usize) {
        let of = &mut self.servers[server];
        let time_us = of.time_us(self.now);
        of.peak_us = of.peak_us.max(time_us);
        let may_run_late =
            self.plan.faults.have_any([Fault::Break, Fault::Late, Fault::Repeat, Fault::Freeze]);
        let to_us = if self.dice.one_in(2) {
            return self.turn_back(server);
        } else if may_run_late {
            // A tombstone must outlast a buffered request.
            if self.now < of.stepped_at + MINUTE_US {
                return;
            }
            of.stepped_at = self.now;
            time_us + self.dice.below(4_000 * MS)
        } else {
            let most = [5_000, 60_000, 3_600_000][self.dice.below(3) as usize];
            time_us + self.dice.below(most * MS)
        };
        of.show(self.now, to_us);
    }
}
