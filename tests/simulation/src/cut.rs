//! Follows the members of batches that the holder cuts short: nobody who came later may overtake
//! them.

use std::collections::BTreeSet;

use proto::node::{Core, Phase};
use proto::{Answer, Command, Renewed};

use crate::event_queue::Place;
use crate::facts::Before;
use crate::judge::{Who, who};
use crate::process::Shared;
use crate::resource::{ASIDE_MS, NEWCOMER_MS};
use crate::world::World;
use laws::Law;

/// Returns the attempt that a member belongs to.
fn attempt_of((name, number): Who) -> Who {
    (name, Core::<Shared>::parts_of(number).0)
}

/// A member whose batch ended before its turn, until the member is granted or gone.
pub(crate) struct Returned {
    /// The number of the cut that ended the batch.
    pub(crate) cut: u64,
    /// Whether the member is still to be served.
    pub(crate) waits: bool,
}

impl World {
    /// Whether a batch member is still to be served.
    fn has_turn(&self, (name, number): Who) -> bool {
        let Some(slot) = self.slots[name as usize] else { return false };
        let phase = self.processes[slot].core.phase(number);
        matches!(phase, Some(Phase::Asking | Phase::Parked | Phase::Waiting | Phase::InBatch))
    }

    /// Whether the attempt's caller still waits.
    fn waits(&self, (name, attempt): Who) -> bool {
        let Some(slot) = self.slots[name as usize] else { return false };
        let core = &self.processes[slot].core;
        let phase = core.round(attempt).and_then(|number| core.phase(number));
        matches!(
            phase,
            Some(Phase::Unsent | Phase::Asking | Phase::Parked | Phase::Waiting | Phase::InBatch)
        )
    }

    /// Records the members that wait in this guard's batch, which the holder is about to cut short.
    pub(crate) fn cuts(&mut self, place: Place, lock: usize, guard: u64) {
        let core = &self.processes[place.slot].core;
        let hold = core.held_as(guard);
        if !self.is_held_by(lock, (place.name, hold)) {
            return;
        }
        let is_behind = |number: &u64| {
            core.phase(*number) == Some(Phase::InBatch) && core.held_as(*number) == hold
        };
        let behind: Vec<u64> = core.numbers().filter(is_behind).collect();
        let record = &mut self.records[lock];
        for number in behind {
            let attempt = attempt_of((place.name, number));
            // A batch's first member continues under an id unknown to the server.
            let ticket = record.served.iter().find(|(who, _)| attempt_of(**who) == attempt);
            if let Some((_, ticket)) = ticket {
                record.cut.insert(attempt, *ticket);
            }
        }
    }

    /// Allows that a late or unreachable process's members are overtaken, on all locks.
    pub(crate) fn may_be_overtaken(&mut self, name: u64) {
        for record in &mut self.records {
            record.cut.retain(|(of, _), _| *of != name);
        }
    }

    /// Allows that the members of all processes are overtaken, on all locks.
    pub(crate) fn all_may_be_overtaken(&mut self) {
        self.records.iter_mut().for_each(|record| record.cut.clear());
    }

    /// Follows the members of a batch that this command ends before their turn: they are back at
    /// their positions, in front of the queue. If their node did not end the batch, they are set
    /// aside until the node's next touch.
    pub(crate) fn follow_batch(&mut self, lock: usize, command: &Command, before: &Before) {
        let Some((name, _)) = before.batch_of else { return };
        let has_ended = before.live().next().is_none();
        let (numbers, kept_ms): (Vec<u64>, u64) = match command {
            Command::Reduce { served, back, .. } => {
                let is_back = |number: &&u64| **number != *served && before.batch.contains(number);
                (back.iter().filter(is_back).copied().collect(), NEWCOMER_MS)
            }
            Command::ForceRelease { .. } => (before.batch.clone(), ASIDE_MS),
            _ if has_ended => (before.batch.clone(), ASIDE_MS),
            _ => return,
        };
        let resource = &self.servers[self.homes[lock]].locks[lock];
        // Another batch may have the lock by now.
        let batch: &[u64] = match resource.batch_of() {
            Some((of, _)) if of == name => resource.0.batch(),
            _ => &[],
        };
        let aside = resource.aside();
        let holders: Vec<Who> = resource.holders(before.now_ms).collect();
        let leaves = |number| match command {
            Command::Leave { leaving } => leaving.iter().any(|one| one.member.number() == number),
            _ => false,
        };
        let is_aside = kept_ms == ASIDE_MS;
        if is_aside {
            // The grants of this moment come in between.
            self.records[lock].cut.retain(|(of, _), _| *of != name);
        }
        let waits = |number| self.has_turn((name, number));
        let still: BTreeSet<Who> = before
            .batch
            .iter()
            .filter(|number| waits(**number))
            .map(|number| (name, *number))
            .collect();
        self.cuts_so_far += 1;
        let cut = self.cuts_so_far;
        let mut lost = None;
        for who in numbers.into_iter().map(|number| (name, number)) {
            let record = &mut self.records[lock];
            let is_served = batch.contains(&who.1) || holders.contains(&who);
            if is_served || resource.is_queued(who) || aside.contains(&who) {
                record.put_back(who, before.now_ms + kept_ms);
                let waits = !is_aside || still.contains(&who);
                record.returned.insert(who, Returned { cut, waits });
            } else if !record.is_gone(who) && !leaves(who.1) {
                lost = Some(who);
            }
        }
        if let Some(who) = lost.filter(|_| laws::CUT_BATCHES_KEEP_THEIR_POSITIONS) {
            self.breaks(Law::F2, || {
                format!(
                    "{who:?} has lost its position in lock {lock} with its batch, by {command:?}"
                )
            });
        }
    }

    /// Follows the granted members, and the members served in a batch.
    pub(crate) fn follow_grants(
        &mut self,
        lock: usize,
        (command, answer): (&Command, &Answer),
        all: &[Who],
        batch: &[Who],
    ) {
        if laws::CUT_BATCHES_KEEP_THEIR_POSITIONS {
            self.overtakes_none(lock, all);
        }
        let is_moving = self.is_moving(lock);
        let record = &mut self.records[lock];
        if !batch.is_empty() {
            // The batch's order counts from now on, even for a member granted before.
            let waited = batch.iter().copied().filter(|who| record.ticket(*who).is_some());
            let mut tickets: Vec<u64> =
                waited.clone().filter_map(|who| record.ticket(who)).collect();
            tickets.sort_unstable();
            record.served = waited.zip(tickets).collect();
        }
        match (command, answer) {
            (Command::Reduce { member, .. }, Answer::Renewed(reply))
                if reply.outcome == [Renewed::NotHeld] =>
            {
                record.cut.retain(|(name, _), _| *name != who(member).0);
            }
            _ => {}
        }
        let resource = &self.servers[self.homes[lock]].locks[lock];
        // While the lock's keys move, some are on the other server.
        if !record.returned.is_empty() && !is_moving {
            let aside = resource.aside();
            record.returned.retain(|who, _| aside.contains(who) || resource.is_queued(*who));
        }
    }

    /// Checks that the granted members do not overtake members that wait after their batch was cut.
    fn overtakes_none(&mut self, lock: usize, granted: &[Who]) {
        let record = &self.records[lock];
        if record.cut.is_empty() || granted.is_empty() {
            return;
        }
        let is_granted = |attempt: &Who| granted.iter().any(|who| attempt_of(*who) == *attempt);
        let turn = |who: &Who| record.cut.get(&attempt_of(*who)).copied().or(record.ticket(*who));
        // A member granted earlier and restored may be granted again.
        let anew = granted.iter().filter(|who| !record.returned.contains_key(who));
        let last = anew.map(|who| turn(who).unwrap_or(u64::MAX)).max();
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
                format!("{granted:?} get lock {lock} before the attempt {overtaken:?}, whose batch was cut")
            });
        }
    }
}
