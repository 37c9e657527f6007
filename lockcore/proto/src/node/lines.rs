//! Local queues: all waiters of this node for a lock, which are touched together.

use std::ops::Bound;
use std::time::Duration;

use super::table::Line;
use super::{Core, MADE_DUE};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::{Mirror, State};
use crate::node::lease::{TOUCH_PERIOD, touch_period};
use crate::node::moment::Moment;
use crate::{Command, MAX_LINES, MAX_MEMBERS, Presence, Reply, Touched};

/// Pause before a failed touch, the request that keeps waiters alive, is repeated.
pub(super) const TOUCH_RETRY: Duration = Duration::from_millis(500);
/// The divisor of the time between two touches of a lock's waiters. A touch may be sent early by
/// this part, to go together with touches that are due.
const AHEAD: u32 = 40;
/// Maximum random delay, in ms, of a touch that is sent when another holder's lease ends. Without
/// it, all nodes with waiters would touch the lock at the same instant.
const JITTER_MS: u64 = 50;
/// Minimum time until a touch that is sent when another holder's lease ends. Without it, touches
/// could follow each other without a pause while the lease is about to end.
pub(super) const MIN_DELAY: Duration = Duration::from_millis(5);

/// Minimum weight of a touch, by which the touches in flight are limited. A script call takes at
/// most `MAX_LINES` locks and `MAX_MEMBERS` members, so a lock with few waiters still uses this
/// share of a call.
pub(super) const MIN_WEIGHT: usize = MAX_MEMBERS / MAX_LINES;
/// Maximum total weight of the touches in flight in each lane (to a server): as much as four full
/// script calls. With a single call at a time and a round trip of 50 ms, touching 20 000 locks
/// would take too long: the server would no longer believe the waiters alive.
pub(super) const MAX_TOUCHING: usize = 4 * MAX_MEMBERS;

/// Returns the weight of a touch of these members: their number, but at least [`MIN_WEIGHT`].
pub(super) fn weight(members: &[Member]) -> usize {
    members.len().max(MIN_WEIGHT)
}

impl<P: Mirror> Core<P> {
    /// Starts a recheck: all waiters of this node are touched, to learn their state, because
    /// messages from the server may have been missed. [`recheck_on`](Self::recheck_on) does the
    /// work in the following ticks.
    pub(super) fn check_lines(&mut self) {
        self.recheck = Some((Bound::Unbounded, self.now));
    }

    /// Continues the recheck of all waiters: makes the touches for the next locks due at once,
    /// unless they were touched since the recheck began. Examines at most [`MADE_DUE`] locks, and
    /// at most `budget`. Returns the remaining budget.
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

    /// Sends the due touches in a lane (to a server). Touches due soon are sent along, unless they
    /// are scheduled for the end of another holder's lease, before which nothing changes. Handles
    /// at most `budget` locks. Returns the remaining budget.
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

    /// Touches all waiters of this node for a lock, which keeps them alive on the server and
    /// returns their state. Schedules the next touch after the usual period. A random part is
    /// subtracted, so that locks touched together spread out: up to a tenth, or up to half after a
    /// recheck.
    pub(super) fn touch_line(&mut self, lock: &LockName) {
        let now = self.now;
        let Some(line) = self.table.lines().get(lock) else { return };
        let part = if line.is_rechecked { 2 } else { 10 };
        let numbers: Vec<u64> = line.numbers.iter().copied().collect();
        // The waiter with the shortest claim may have left since the last touch.
        let periods = numbers.iter().filter_map(|number| self.table.get(*number));
        let periods = periods.map(|entry| touch_period(&entry.options));
        let period = periods.min().unwrap_or(TOUCH_PERIOD);
        let chance = numbers.first().map_or(0, |first| self.chance(*first));
        let due = now + (period - period / part / 1_000 * chance);
        self.table.touched(lock, now, period);
        self.table.touch_at(lock, due);
        for numbers in numbers.chunks(MAX_MEMBERS) {
            let members = numbers.iter().map(|number| self.table.entries()[number].member.clone());
            let command = Command::Touch { members: members.collect() };
            let request = self.request(lock.clone(), command, true);
            self.background(request);
        }
    }

    fn may_be_back_since(&self, number: u64, sent: Moment) -> bool {
        self.table.get(number).is_some_and(|entry| entry.may_be_back_since(sent))
    }

    pub(super) fn touched(
        &mut self,
        request: &StoreRequest,
        members: &[Member],
        reply: &Reply<Touched>,
    ) {
        for (member, presence) in members.iter().zip(&reply.outcome.members) {
            let Some(number) = self.known(member) else { continue };
            match presence {
                Presence::Waiting => {
                    let now = self.now;
                    self.table.change(number, |entry| entry.found_waiting(request.sent, now));
                }
                // The same reply contains the grant, which was handled before.
                Presence::Holding => {}
                Presence::Superseded => self.superseded(number),
                // The member was force-released and may have been queued again since, so another
                // touch follows.
                Presence::Gone if self.may_be_back_since(number, request.sent) => {
                    self.table.touch_by(&request.lock, self.now);
                }
                // The member has been granted the lock in a batch since.
                Presence::Gone if self.is_in_batch(number) => {}
                Presence::Gone => self.position_lost(number),
            }
        }
        let first =
            self.table.lines().get(&request.lock).and_then(|line| line.numbers.first().copied());
        if let Some(first) = first {
            let due = self.lease_end(first, reply.first_end_ms);
            self.table.touch_by(&request.lock, due);
        }
        let is_of_present = self.subscription.is_up() && request.sent >= self.subscribed;
        if reply.outcome.listeners == 0 && is_of_present {
            // The touches in flight would report the same.
            self.subscribed = self.now;
            self.push(Effect::Observe(Note::Deaf));
            self.push(Effect::Reopen);
        }
    }

    /// Handles the message that the lock of a waiting member may be free: touches this member, so
    /// that the server grants it the lock if it is. Other members need no touch, because this one
    /// is next in the queue.
    pub(super) fn poked(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        match entry.state {
            State::Waiting => {
                let lock = entry.lock.clone();
                let command = Command::Touch { members: vec![entry.member.clone()] };
                let request = self.request(lock, command, true);
                self.background(request);
            }
            State::Asking { .. } => {
                // The response in flight is older than this message, so it may report the lock as
                // still held.
                self.table.change(number, |entry| {
                    if let State::Asking { poked, .. } = &mut entry.state {
                        *poked = true;
                    }
                });
            }
            _ => {}
        }
    }

    /// Returns when to touch a lock's waiters next: just after the first lease of a holder ends, in
    /// `first_end_ms` from now; after [`TOUCH_PERIOD`] if there is no lease. The member id `number`
    /// only varies the random delay.
    pub(super) fn lease_end(&self, number: u64, first_end_ms: Option<u64>) -> Moment {
        let now = self.now;
        let Some(left_ms) = first_end_ms.filter(|left_ms| *left_ms > 0) else {
            return now + TOUCH_PERIOD;
        };
        let jitter = u64::from(self.chance(number)) * JITTER_MS / 1_000;
        now + Duration::from_millis(left_ms + jitter).max(MIN_DELAY)
    }
}
