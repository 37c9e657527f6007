//! Local queues: this node's waiters for a lock, touched together.

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

/// Pause before a failed touch is repeated.
pub(super) const TOUCH_RETRY: Duration = Duration::from_millis(500);
/// A touch may be sent this fraction (1/40) of the period early, along with due touches.
const AHEAD: u32 = 40;
/// Maximum jitter of a touch at the end of a lease, so that not all nodes send it at the same
/// instant.
const JITTER_MS: u64 = 50;
/// Minimum time before that touch, so that nothing spins.
pub(super) const FLOOR: Duration = Duration::from_millis(5);

/// Minimum weight of a touched lock: a script takes `MAX_LINES` locks or `MAX_BATCH` members.
pub(super) const MIN_WEIGHT: usize = MAX_BATCH / MAX_LINES;
/// Maximum weight of in-flight touches in each lane: four scripts' worth. With a single script in
/// flight and a round trip of 50 ms, 20 000 locks could not all be touched before the first
/// deadline.
pub(super) const MAX_TOUCHING: usize = 4 * MAX_BATCH;

/// Returns a touch's share of a script: by locks or by members, whichever is more.
pub(super) fn weight(members: &[Member]) -> usize {
    members.len().max(MIN_WEIGHT)
}

impl<P: Mirror> Core<P> {
    /// Starts a recheck of all local queues, because messages may have been missed. Skips queues
    /// touched in the meantime.
    pub(super) fn check_lines(&mut self) {
        self.recheck = Some((Bound::Unbounded, self.now));
    }

    /// Makes queues due, a bounded number at a time. Each queue is touched when the lane has room.
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

    /// Touches due queues, along with queues due soon. Queues awaiting a lease end are not touched
    /// early: they were touched lately, and there is nothing to request before the lease ends.
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

    /// Touches a queue. The next touch is due after the period, minus a random part of up to a
    /// tenth; after a recheck up to half, to spread queues touched together.
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
                // Reported as a grant in the same reply.
                Presence::Holding => {}
                Presence::Superseded => self.superseded(number),
                // The member was force-released, and may have been queued again since.
                Presence::Gone if self.may_be_back_since(number, ask.sent) => {
                    self.table.touch_by(&ask.lock, self.now);
                }
                // A batch has dequeued the member since.
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

    /// Touches a member woken by the server. Only this member: it is next, and the queue may be
    /// long.
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
                // The response is older than this message and may report the lock as held.
                self.table.change(number, |entry| {
                    if let State::Asking { poked, .. } = &mut entry.state {
                        *poked = true;
                    }
                });
            }
            _ => {}
        }
    }

    /// Returns when to touch a lock whose first lease ends after `first_end_ms`; after the usual
    /// period if there is no lease.
    pub(super) fn lease_end(&self, number: u64, first_end_ms: Option<u64>) -> Moment {
        let now = self.now;
        let Some(left_ms) = first_end_ms.filter(|left_ms| *left_ms > 0) else {
            return now + TOUCH_PERIOD;
        };
        let jitter = u64::from(self.chance(number)) * JITTER_MS / 1_000;
        now + Duration::from_millis(left_ms + jitter).max(FLOOR)
    }
}
