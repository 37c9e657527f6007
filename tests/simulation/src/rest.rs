//! The laws of the end: everything comes to rest, and nothing stays behind.

use lockcore::internals::Member;

use crate::judge::who;
use crate::law::Law;
use crate::world::World;

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

    /// What the server has of a process, in the first lock where it has something.
    pub(crate) fn remains_of(&mut self, name: u64) -> Option<(usize, Member)> {
        let now_ms = self.server.time_us(self.now) / 1_000;
        let leaked = &self.leaked;
        self.server.locks.iter_mut().enumerate().find_map(|(lock, state)| {
            state.expire(now_ms);
            let members = state.hold.iter().map(|hold| &hold.member).chain(&state.queue);
            let mut own = members.filter(|member| who(member).0 == name);
            let left = own.find(|member| !leaked.contains(&who(member)));
            left.map(|member| (lock, member.clone()))
        })
    }

    /// When everything has arrived, the server knows nobody who lives and has gone, but what ends
    /// by itself because it was leaked, or because its node could not give it back in time. Once
    /// every lease has ended, it knows no holder at all.
    pub(crate) fn left_behind(&mut self, have_ended: bool) {
        let now_ms = self.server.time_us(self.now) / 1_000;
        for lock in 0..self.server.locks.len() {
            let state = &mut self.server.locks[lock];
            state.expire(now_ms);
            let holder = state.hold.iter().map(|hold| &hold.member);
            let mut members = holder.clone().chain(&state.queue);
            let is_left = |member: &Member| {
                let (name, number) = who(member);
                let core = self.slots[name as usize].map(|slot| &self.processes[slot].core);
                core.is_some_and(|core| core.phase(number).is_none() && core.counts().failed == 0)
                    && !self.leaked.contains(&(name, number))
            };
            let left = members.find(|member| is_left(member));
            let left = left.or_else(|| holder.clone().find(|_| have_ended)).cloned();
            if let Some(member) = left {
                self.breaks(Law::L3, || format!("{member} stays behind in lock {lock}"));
            }
        }
    }
}
