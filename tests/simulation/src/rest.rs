//! The laws of the end: everything comes to rest, and nothing stays behind.

use crate::judge::Who;
use crate::world::World;
use laws::Law;

impl World {
    pub(crate) fn is_at_rest(&self) -> bool {
        self.agenda.arrivals() == 0 && self.processes.iter().all(|process| process.is_at_rest())
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

    /// The member of a process that the server knows, in the first lock where it knows one.
    pub(crate) fn remains_of(&mut self, name: u64) -> Option<(usize, Who)> {
        let now_ms = self.server.time_us(self.now) / 1_000;
        let leaked = &self.leaked;
        self.server.locks.iter_mut().enumerate().find_map(|(lock, state)| {
            state.0.expire(now_ms);
            let held = state.holders(now_ms);
            let mut own =
                held.chain(state.queue()).chain(state.aside()).filter(|who| who.0 == name);
            let left = own.find(|who| !leaked.contains(who));
            left.map(|who| (lock, who))
        })
    }

    /// Checks, when everything has arrived, that the server knows no member that lives and has
    /// gone, but holds that end by themselves, because they were leaked or their node could not
    /// release them in time. Once every lease has ended, it knows no holder at all.
    pub(crate) fn left_behind(&mut self, have_ended: bool) {
        let now_ms = self.server.time_us(self.now) / 1_000;
        for lock in 0..self.server.locks.len() {
            let state = &mut self.server.locks[lock];
            state.0.expire(now_ms);
            let held: Vec<Who> = state.holders(now_ms).collect();
            let mut members = held.iter().copied().chain(state.queue()).chain(state.aside());
            let is_left = |(name, number): &Who| {
                let name = *name;
                let number = *number;
                let core = self.slots[name as usize].map(|slot| &self.processes[slot].core);
                core.is_some_and(|core| core.phase(number).is_none() && core.counts().failed == 0)
                    && !self.leaked.contains(&(name, number))
            };
            let left = members.find(is_left);
            let left = left.or_else(|| held.first().copied().filter(|_| have_ended));
            if let Some(who) = left {
                self.breaks(Law::L3, || format!("{who:?} stays behind in lock {lock}"));
            }
        }
    }

    /// Checks, once every key has ended, that nothing is left of any lock. Only the counter has no
    /// end.
    pub(crate) fn nothing_is_left(&mut self) {
        let now_ms = self.server.time_us(self.now) / 1_000;
        for lock in 0..self.server.locks.len() {
            let state = &mut self.server.locks[lock];
            state.0.expire(now_ms);
            if !state.is_empty() {
                let left = format!("{state:?} of lock {lock} never ends");
                self.breaks(Law::L3, || left);
            }
        }
    }
}
