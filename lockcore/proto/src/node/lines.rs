//! Lines: the attempts of this node that wait for one lock, touched together.

use std::ops::Bound;
use std::time::Duration;

use super::table::Line;
use super::{Core, MADE_DUE};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Mirror, State};
use crate::node::lease::TOUCH_PERIOD;
use crate::node::moment::Moment;
use crate::{Command, MAX_BATCH, MAX_LINES, Presence, Reply, Touched};

/// A touch that failed is repeated after this time.
pub(super) const TOUCH_RETRY: Duration = Duration::from_millis(500);
/// A touch goes out sooner with others that are due, by this part of its period at most.
const AHEAD: u32 = 40;
/// A lease's end is asked for this much later at most, so that not all nodes ask in the same
/// instant,
const JITTER_MS: u64 = 50;
/// and after this time at the earliest, so that nothing spins.
pub(super) const FLOOR: Duration = Duration::from_millis(5);

/// A touch of one lock, where a script takes this many members.
pub(super) const MIN_WEIGHT: usize = MAX_BATCH / MAX_LINES;
/// Four scripts' worth of touches on their way at once, in each lane. With one, 20 000 locks would
/// not come round before their first deadline where the way to the server and back takes 50 ms.
pub(super) const MAX_TOUCHING: usize = 4 * MAX_BATCH;

/// A touch's part of a script: of the locks or of the members that one takes, whichever is more.
pub(super) fn weight(members: &[Member]) -> usize {
    members.len().max(MIN_WEIGHT)
}

impl<P: Mirror> Core<P> {
    /// Messages may have been missed: every line is touched that was not since now.
    pub(super) fn check_lines(&mut self) {
        self.recheck = Some((Bound::Unbounded, self.now));
    }

    /// Makes lines due, a bounded number at a time: each is touched when its lane has room.
    pub(super) fn recheck_on(&mut self, budget: usize) -> usize {
        let Some((mut from, since)) = self.recheck.take() else { return budget };
        for left in (budget.saturating_sub(MADE_DUE)..budget).rev() {
            let next = self.table.lines().range((from, Bound::Unbounded)).next();
            let Some((lock, line)) = next else { return left };
            let (lock, is_stale) = (lock.clone(), line.touched <= since);
            if is_stale {
                self.table.recheck(&lock, self.now);
            }
            from = Bound::Excluded(lock);
        }
        self.recheck = Some((from, since));
        budget.saturating_sub(MADE_DUE)
    }

    /// Lines that would be due soon go out with those that are. Not those that wait for a lease to
    /// end, before which there is nothing to ask for: they were touched lately.
    pub(super) fn touch_what_is_due(&mut self, lane: u16, mut budget: usize) -> usize {
        let now = self.now;
        let room = self.room_to_touch(self.table.lane(lane)).div_ceil(MIN_WEIGHT).min(budget);
        let is_soon = |(at, lock): &&(Moment, LockName)| {
            let Line { period, touched, .. } = self.table.lines()[lock];
            *at <= now || *at <= now + period / AHEAD && now.since(touched) >= period - period / 8
        };
        let due = self.table.lane(lane).touches.iter().take(room).filter(is_soon);
        let due: Vec<LockName> = due.map(|(_, lock)| lock.clone()).collect();
        for lock in &due {
            if self.room_to_touch(self.table.lane(lane)) == 0 {
                break;
            }
            self.touch_line(lock);
            budget -= 1;
        }
        budget
    }

    /// The next touch is due after the period, earlier by up to a tenth of it. A random half of it
    /// parts the next touches of lines that were all touched together.
    pub(super) fn touch_line(&mut self, lock: &LockName) {
        let now = self.now;
        let Some(line) = self.table.lines().get(lock) else { return };
        let part = if line.is_rechecked { 2 } else { 10 };
        let numbers: Vec<u64> = line.numbers.iter().copied().collect();
        let chance = numbers.first().map_or(0, |first| self.chance(*first));
        let due = now + (line.period - line.period / part / 1_000 * chance);
        self.table.touched(lock, now);
        self.table.touch_at(lock, due);
        for numbers in numbers.chunks(MAX_BATCH) {
            let members = numbers.iter().map(|number| self.table.entries()[number].member.clone());
            let command = Command::Touch { members: members.collect() };
            let ask = self.request(lock.clone(), command, true);
            self.background(ask);
        }
    }

    fn may_be_back_since(&self, number: u64, sent: Moment) -> bool {
        self.table.get(number).is_some_and(|entry| entry.may_be_back_since(sent))
    }

    pub(super) fn touched(&mut self, ask: &Ask, members: &[Member], reply: &Reply<Touched>) {
        for (member, presence) in members.iter().zip(&reply.outcome.members) {
            let Some(number) = self.known(member) else { continue };
            match presence {
                Presence::Waiting => {
                    let now = self.now;
                    self.table.change(number, |entry| entry.found_waiting(ask.sent, now));
                }
                // Told as a grant in the same reply.
                Presence::Holding => {}
                Presence::Superseded => self.superseded(number),
                // It was force-released, and queued again since.
                Presence::Gone if self.may_be_back_since(number, ask.sent) => {
                    self.table.touch_by(&ask.lock, self.now);
                }
                // A run has taken it out of the queue since.
                Presence::Gone if self.is_in_run(number) => {}
                Presence::Gone => self.place_lost(number),
            }
        }
        let first =
            self.table.lines().get(&ask.lock).and_then(|line| line.numbers.first().copied());
        if let Some(first) = first {
            let due = self.lease_end(first, reply.first_end_ms);
            self.table.touch_by(&ask.lock, due);
        }
        if reply.outcome.listeners == 0 && self.subscription.is_up() {
            self.push(Effect::Observe(Note::Deaf));
            self.push(Effect::Reopen);
        }
    }

    /// A member is told to come. Asks for that one alone: it is next, and the line may be long.
    pub(super) fn poked(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        match entry.state {
            State::Waiting => {
                let lock = entry.lock.clone();
                let command = Command::Touch { members: vec![entry.member.clone()] };
                let ask = self.request(lock, command, true);
                self.background(ask);
            }
            State::Asking { .. } => {
                // Its answer is older than this and may say that the lock is held.
                self.table.change(number, |entry| {
                    if let State::Asking { poked, .. } = &mut entry.state {
                        *poked = true;
                    }
                });
            }
            _ => {}
        }
    }

    /// The moment at which to ask for a lock whose first lease ends after these milliseconds; as
    /// usual if there is none.
    pub(super) fn lease_end(&self, number: u64, first_end_ms: Option<u64>) -> Moment {
        let now = self.now;
        let Some(left_ms) = first_end_ms.filter(|left_ms| *left_ms > 0) else {
            return now + TOUCH_PERIOD;
        };
        let jitter = u64::from(self.chance(number)) * JITTER_MS / 1_000;
        now + Duration::from_millis(left_ms + jitter).max(FLOOR)
    }
}
