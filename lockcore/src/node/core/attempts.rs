//! Attempts on their way to a lock: sent in order, queued, parked, sent again, and cancelled.

use std::time::Duration;

use super::{Core, Effects};
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Caller, Entry, Refusal, Seat, State};
use crate::node::moment::Moment;
use crate::store::protocol::Command;
use crate::store::{Acquired, Link, Mode, Reply};

/// Parked attempts are asked for again after this time although both connections are up,
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(100);
/// then twice that, and so on up to this.
pub(super) const LAST_RETRY: Duration = Duration::from_secs(2);

impl<P: Seat> Core<P> {
    /// The acquire of an attempt, or nothing if it is parked because no grant could reach it.
    pub(super) fn acquire(&mut self, now: Moment, number: u64, background: bool) -> Option<Ask> {
        let entry = self.entries.get(&number)?;
        if let (Mode::Wait, Link::Down { reason }) = (entry.mode, &self.subscription) {
            let detail = format!("subscription: {reason}");
            self.park(now, number, StoreError::refused(LockErrorKind::Unavailable, detail));
            return None;
        }
        let Entry { lock, member, mode, options, .. } = entry;
        let command = Command::Acquire {
            member: member.clone(),
            mode: *mode,
            queue_limit: options.queue_limit,
        };
        let ask = Ask { lock: lock.clone(), command, sent: now, background };
        self.change(number, |entry| {
            let error = match &mut entry.state {
                State::Asking { error, .. } => error.take(),
                State::Parked { error } => Some(error.clone()),
                _ => None,
            };
            entry.state = State::Asking { error, poked: false };
        });
        Some(ask)
    }

    /// The first acquire of an attempt: its caller's, also if another task sends it.
    pub(super) fn ask(&mut self, now: Moment, number: u64) -> Option<Ask> {
        let ask = self.acquire(now, number, false);
        self.asking += usize::from(ask.is_some());
        ask
    }

    /// Acquires for which there was no room, in the order in which their attempts came.
    pub(super) fn ask_in_turn(
        &mut self,
        now: Moment,
        mut budget: usize,
        fx: &mut Effects<P>,
    ) -> usize {
        while budget > 0
            && self.may_ask()
            && let Some(number) = self.unsent.first().copied()
        {
            fx.extend(self.ask(now, number).map(Effect::Send));
            budget -= 1;
        }
        budget
    }

    pub(super) fn ask_in_background(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        if let Some(ask) = self.acquire(now, number, true) {
            self.background(ask, fx);
        }
    }

    /// Parked attempts, in the order in which they came.
    pub(super) fn ask_again(
        &mut self,
        now: Moment,
        mut budget: usize,
        fx: &mut Effects<P>,
    ) -> usize {
        while budget > 0 && self.has_room() {
            let Some(number) = self.parked.first().copied() else {
                self.retry_at = None;
                self.pause = (self.pause * 2).min(LAST_RETRY);
                return budget;
            };
            // Parked again at once, without a subscription: its return is what to wait for.
            if !self.is_up() && self.entries[&number].mode == Mode::Wait {
                self.retry_at = None;
                return budget;
            }
            self.ask_in_background(now, number, fx);
            budget -= 1;
        }
        if self.parked.is_empty() {
            self.retry_at = None;
            self.pause = (self.pause * 2).min(LAST_RETRY);
        }
        budget
    }

    pub(super) fn park(&mut self, now: Moment, number: u64, error: StoreError) {
        self.change(number, |entry| entry.state = State::Parked { error });
        if self.is_up() && self.retry_at.is_none() {
            self.retry_at = Some(now + self.pause);
        }
    }

    pub(super) fn acquired(
        &mut self,
        now: Moment,
        ask: &Ask,
        member: &Member,
        reply: &Reply<Acquired>,
        fx: &mut Effects<P>,
    ) {
        let Some((number, entry)) = self.known_mut(member) else { return };
        // No copy of this request is on its way any more.
        entry.unanswered = false;
        match reply.outcome {
            // The grant is in the reply's second part.
            Acquired::Granted if reply.grant.is_some() || !reply.several.is_empty() => {}
            Acquired::Granted => {
                self.finish(now, number, Refusal::Kind(LockErrorKind::Protocol), fx);
            }
            Acquired::Queued { position } => {
                self.queued(now, number, ask, position, reply.left_ms, fx);
            }
            Acquired::Busy => self.finish(now, number, Refusal::Busy, fx),
            Acquired::Full => {
                self.finish(now, number, Refusal::Kind(LockErrorKind::QueueFull), fx);
            }
            // Our own tombstone: this number is of no use any more.
            Acquired::Refused => self.place_lost(now, number, fx),
        }
    }

    pub(super) fn queued(
        &mut self,
        now: Moment,
        number: u64,
        ask: &Ask,
        position: u64,
        left_ms: u64,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get(&number) else { return };
        let is_poked = match entry.state {
            State::Asking { poked, .. } => poked,
            State::Parked { .. } => false,
            // A grant has overtaken this answer.
            _ => return,
        };
        let wants = entry.caller == Caller::Waits;
        self.change(number, |entry| {
            entry.state = State::Waiting;
            entry.anchor = ask.sent;
        });
        if !wants {
            return self.withdraw(now, number, fx);
        }
        let due = if is_poked { now } else { self.lease_end(now, number, left_ms) };
        self.touch_by(&ask.lock, due);
        fx.push(Effect::Observe(Note::Queued { lock: ask.lock.clone(), position }));
    }

    pub(super) fn acquire_failed(
        &mut self,
        now: Moment,
        member: &Member,
        error: &StoreError,
        fx: &mut Effects<P>,
    ) {
        let Some(number) = self.known(member) else { return };
        self.change(number, |entry| {
            entry.ambiguous |= error.may_have_run;
            entry.unanswered = false;
        });
        let entry = &self.entries[&number];
        if !matches!(entry.state, State::Asking { .. }) {
            // A grant was there before.
            return;
        }
        if entry.caller == Caller::Waits && error.is_transient() {
            return self.park(now, number, error.clone());
        }
        self.finish(now, number, Refusal::Store(error.clone()), fx);
    }

    /// An attempt ends without a lock. It is not in the queue, but another copy of its acquire may
    /// still find the lock free.
    pub(super) fn finish(
        &mut self,
        now: Moment,
        number: u64,
        refusal: Refusal,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get(&number) else { return };
        if !entry.is_attempt() {
            return;
        }
        let note = Note::Refused { lock: entry.lock.clone(), refusal: refusal.clone() };
        self.tell(number, refusal, fx);
        self.change(number, |entry| {
            entry.state = entry.gone(now);
        });
        fx.push(Effect::Observe(note));
    }

    pub(super) fn tell(&mut self, number: u64, refusal: Refusal, fx: &mut Effects<P>) {
        let seat = self.entries.get(&number).map(|entry| entry.seat.clone());
        let told = self.change(number, |entry| entry.tell(refusal));
        if let (Some(true), Some(seat)) = (told, seat) {
            fx.push(Effect::Wake(seat));
        }
    }

    /// Takes an attempt out, here and on the server.
    pub(super) fn withdraw(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number) else { return };
        let (lock, waited) = (entry.lock.clone(), now.since(entry.started));
        match entry.state {
            // Its answer will find it withdrawn: a leave must not overtake an acquire.
            State::Asking { .. } => return,
            State::Missed | State::Unsent => {
                self.change(number, |entry| entry.state = State::Over);
            }
            State::Parked { .. } if !entry.ambiguous => {
                // It was never sent.
                self.change(number, |entry| entry.state = State::Over);
            }
            State::Parked { .. } | State::Waiting | State::Confirming { .. } => {
                self.change(number, |entry| entry.state = entry.leaving(now));
            }
            State::Offered(_) => {
                self.change(number, |entry| entry.state = State::Releasing { due: Some(now) });
            }
            _ => {
                // Only its caller was left of it.
                self.change(number, |_| ());
                return;
            }
        }
        fx.push(Effect::Observe(Note::Cancelled { lock, waited }));
    }

    /// The server does not know this waiting member any more: its attempt goes on in the next
    /// round, at the tail.
    pub(super) fn place_lost(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number).filter(|entry| entry.is_attempt()) else {
            return;
        };
        let (lock, wants) = (entry.lock.clone(), entry.caller == Caller::Waits);
        self.counts.places_lost += 1;
        let next = wants.then(|| self.next_round(now, number));
        self.change(number, |entry| {
            // The caller that withdraws it never learned whether it was queued.
            entry.state = if wants { entry.gone(now) } else { entry.leaving(now) };
        });
        fx.push(Effect::Observe(Note::PlaceLost { lock }));
        if let Some(next) = next {
            self.ask_in_background(now, next, fx);
        }
    }

    /// The attempt goes on under a new number; what becomes of the old one is the caller's to say.
    pub(super) fn next_round(&mut self, now: Moment, number: u64) -> u64 {
        let next = number + 1;
        let caller = self
            .change(number, |entry| std::mem::replace(&mut entry.caller, Caller::Gone))
            .unwrap_or(Caller::Gone);
        if let Some(old) = self.entries.get(&number) {
            let entry = Entry {
                member: old.member.renumbered(next),
                state: State::Missed,
                caller,
                ambiguous: false,
                unanswered: false,
                revoked: None,
                anchor: now,
                ..old.clone()
            };
            self.insert(next, entry);
        }
        next
    }
}
