//! The members of a run that its holder has cut short: nobody who came later overtakes them.

use proto::Command;
use proto::node::{Core, Phase};

use crate::event_queue::Place;
use crate::judge::Who;
use crate::process::Shared;
use crate::world::World;
use laws::Law;

/// The attempt of a member.
fn attempt_of((name, number): Who) -> Who {
    (name, Core::<Shared>::parts_of(number).0)
}

impl World {
    /// Whether the caller of this attempt waits for its turn.
    fn waits(&self, (name, attempt): Who) -> bool {
        let Some(slot) = self.slots[name as usize] else { return false };
        let core = &self.processes[slot].core;
        let phase = core.round(attempt).and_then(|number| core.phase(number));
        matches!(
            phase,
            Some(Phase::Unsent | Phase::Asking | Phase::Parked | Phase::Waiting | Phase::InRun)
        )
    }

    /// Notes the members that wait in the run of this guard, of which its holder is about to make
    /// something else.
    pub(crate) fn cuts(&mut self, place: Place, lock: usize, guard: u64) {
        let core = &self.processes[place.slot].core;
        let hold = core.held_as(guard);
        let is_behind = |number: &u64| {
            core.phase(*number) == Some(Phase::InRun) && core.held_as(*number) == hold
        };
        let behind: Vec<u64> = core.numbers().filter(is_behind).collect();
        let record = &mut self.records[lock];
        for number in behind {
            let attempt = attempt_of((place.name, number));
            // The first of a run goes on under a number that the server does not know.
            let ticket = record.served.iter().find(|(who, _)| attempt_of(**who) == attempt);
            if let Some((_, ticket)) = ticket {
                record.cut.insert(attempt, *ticket);
            }
        }
    }

    /// Whoever is late, or not reached, may be overtaken: the members of a process, on all locks.
    pub(crate) fn may_be_overtaken(&mut self, name: u64) {
        for record in &mut self.records {
            record.cut.retain(|(of, _), _| *of != name);
        }
    }

    /// The same for all processes.
    pub(crate) fn all_may_be_overtaken(&mut self) {
        self.records.iter_mut().for_each(|record| record.cut.clear());
    }

    /// Follows the members that were granted, and those that are served in a run.
    pub(crate) fn follow_runs(&mut self, lock: usize, command: &Command, all: &[Who], run: &[Who]) {
        self.overtakes_none(lock, all);
        let record = &mut self.records[lock];
        if !run.is_empty() {
            let ticket = |who: &Who| Some((*who, record.ticket(*who)?));
            record.served = run.iter().filter_map(ticket).collect();
        }
        if let Command::ForceRelease { .. } = command {
            record.cut.clear();
        }
    }

    /// Checks that the members that are granted overtake none that waits behind a run that was cut
    /// short.
    fn overtakes_none(&mut self, lock: usize, granted: &[Who]) {
        let record = &self.records[lock];
        if record.cut.is_empty() || granted.is_empty() {
            return;
        }
        let is_granted = |attempt: &Who| granted.iter().any(|who| attempt_of(*who) == *attempt);
        let turn = |who: &Who| record.cut.get(&attempt_of(*who)).copied().or(record.ticket(*who));
        let last = granted.iter().map(|who| turn(who).unwrap_or(u64::MAX)).max();
        let is_overtaken = |(attempt, ticket): &(&Who, &u64)| {
            Some(**ticket) < last && !is_granted(attempt) && self.home(lock).hears(attempt.0)
        };
        let waiting = record.cut.iter().filter(|(attempt, _)| self.waits(**attempt));
        let overtaken = waiting.clone().find(is_overtaken).map(|(attempt, _)| *attempt);
        let left = waiting.filter(|(attempt, _)| !is_granted(attempt));
        let left = left.map(|(attempt, ticket)| (*attempt, *ticket)).collect();
        self.records[lock].cut = left;
        if let Some(overtaken) = overtaken {
            self.breaks(Law::F1, || {
                format!("{granted:?} get lock {lock} before the attempt {overtaken:?}, whose run was cut")
            });
        }
    }
}
