//! The laws at the end: everything comes to rest, and nothing stays behind.

use crate::judge::Who;
use crate::resource::Resource;
use crate::world::World;
use laws::Law;

impl World {
    pub(crate) fn is_at_rest(&self) -> bool {
        self.events_due.arrivals() == 0 && self.processes.iter().all(|process| process.is_at_rest())
    }

    pub(crate) fn busy(&self) -> String {
        let mut busy = String::new();
        for process in self.processes.iter().filter(|process| !process.is_at_rest()) {
            let core = &process.core;
            let phases: Vec<_> =
                core.numbers().map(|number| (number, core.phase(number))).collect();
            busy += &format!(
                "\n{}: {:?} {phases:?} open {:?} next {:?} tick {:?}",
                process.name,
                process.callers,
                process.open,
                core.next(),
                process.tick_at
            );
        }
        busy
    }

    /// Removes all expired keys.
    fn expire(&mut self) {
        for server in &mut self.servers {
            let now_ms = server.time_us(self.now) / 1_000;
            server.locks.iter_mut().for_each(|state| state.0.expire(now_ms));
        }
    }

    /// Each lock as stored by each server, with the server's time.
    fn stored(&self) -> impl Iterator<Item = (usize, &Resource, u64)> {
        self.servers.iter().flat_map(|server| {
            let now_ms = server.time_us(self.now) / 1_000;
            server.locks.iter().enumerate().map(move |(lock, state)| (lock, state, now_ms))
        })
    }

    /// Returns the members set aside, except members served in a batch that their node did not end:
    /// nothing restores them.
    fn aside(&self, lock: usize, state: &Resource) -> Vec<Who> {
        let is_done = |who: &Who| self.records[lock].returned.get(who).is_some_and(|it| !it.waits);
        let is_done = |who: &Who| !laws::SERVED_MEMBERS_STAY_GONE && is_done(who);
        state.aside().into_iter().filter(|who| !is_done(who)).collect()
    }

    /// Whether no leave follows the member: the hold was leaked, or the node has given up.
    fn ends_by_itself(&self, who: &Who) -> bool {
        self.leaked.contains(who) || self.given_up.contains(who)
    }

    /// Any member of the process known to a server, with the lock, unless it ends by itself.
    pub(crate) fn remains_of(&mut self, name: u64) -> Option<(usize, Who)> {
        self.expire();
        self.stored().find_map(|(lock, state, now_ms)| {
            let held = state.holders(now_ms);
            let aside = self.aside(lock, state);
            let mut own = held.chain(state.queue()).chain(aside).filter(|who| who.0 == name);
            own.find(|who| !self.ends_by_itself(who)).map(|who| (lock, who))
        })
    }

    /// Checks, once everything has arrived, that no server knows a finished member of a living
    /// process, except holds that end by themselves, because they were leaked or their node could
    /// not release them in time. With `have_ended`, once every lease has ended, no server may know
    /// any holder.
    pub(crate) fn left_behind(&mut self, have_ended: bool) {
        self.expire();
        let is_left = |(name, number): &Who| {
            let core = self.slots[*name as usize].map(|slot| &self.processes[slot].core);
            core.is_some_and(|core| core.phase(*number).is_none())
                && !self.ends_by_itself(&(*name, *number))
        };
        let left = self.stored().find_map(|(lock, state, now_ms)| {
            let held: Vec<Who> = state.holders(now_ms).collect();
            let mut members =
                held.iter().copied().chain(state.queue()).chain(self.aside(lock, state));
            let left = members.find(is_left);
            let left = left.or_else(|| held.first().copied().filter(|_| have_ended));
            left.map(|who| (lock, who))
        });
        if let Some((lock, who)) = left {
            self.breaks(Law::L3, || format!("{who:?} stays behind in lock {lock}"));
        }
    }

    /// Checks, once every key has expired, that no lock has any state left. Only the counter never
    /// expires.
    pub(crate) fn nothing_is_left(&mut self) {
        self.expire();
        let left = self.stored().find(|(_, state, _)| !state.is_empty());
        if let Some(left) = left.map(|(lock, state, _)| format!("{state:?} of lock {lock}")) {
            self.breaks(Law::L3, || format!("{left} never ends"));
        }
    }
}
