//! Attempts before they hold a lock: sent in order, queued, backing off, retried, and cancelled.

use std::time::Duration;

use super::Core;
use crate::error::{LockErrorKind, StoreError};
use crate::member::{Member, ROUND_BITS};
use crate::node::effect::{Ask, Effect, Note, Way};
use crate::node::entry::{Caller, Entry, Mirror, Refusal, State};
use crate::{Acquired, Command, Mode};

/// The number of member ids per attempt.
const ROUNDS: u64 = 1 << ROUND_BITS;
/// The error when an attempt runs out of member ids.
const TOO_OFTEN: &str = "the request lost its queue position 4095 times: the store loses keys, or \
    the request is polled too rarely";

/// Attempts backing off are retried after this time although both connections are up,
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(100);
/// then after twice this time, and so on up to this maximum.
pub(super) const LAST_RETRY: Duration = Duration::from_secs(2);

impl<P: Mirror> Core<P> {
    /// Returns an attempt's acquire, or `None` if the attempt is backing off because no grant could
    /// reach it.
    pub(super) fn acquire(&mut self, number: u64, background: bool) -> Option<Ask> {
        let entry = self.table.get(number)?;
        if let (Mode::Wait, Some(error)) = (entry.mode, self.subscription.why_down()) {
            let detail = format!("subscription: {}", error.detail);
            self.park(number, StoreError::refused(error.kind, detail));
            return None;
        }
        let Entry { lock, member, mode, options, state, fence, .. } = entry;
        let way = if fence.is_some() { Way::Fast } else { Way::Script };
        let command = Command::Acquire {
            members: vec![member.clone()],
            mode: *mode,
            queue_limit: options.queue_limit,
        };
        let ask = Ask { way, ..self.request(lock.clone(), command, background) };
        // A new attempt is already in this state.
        if !matches!(state, State::Asking { .. }) {
            self.table.change(number, |entry| {
                let error = match &entry.state {
                    State::Parked { error } => Some(error.clone()),
                    _ => None,
                };
                entry.state = State::Asking { error, poked: false };
            });
        }
        Some(ask)
    }

    /// Returns an attempt's first acquire. It counts as the caller's, even if another task sends
    /// it.
    pub(super) fn ask(&mut self, number: u64) -> Option<Ask> {
        let ask = self.acquire(number, false)?;
        self.table.traffic(ask.lane).asking += 1;
        Some(ask)
    }

    /// Like [`ask`](Self::ask), for an attempt not sent when it began: other attempts may have
    /// begun since.
    fn ask_in_its_turn(&mut self, number: u64) -> Option<Ask> {
        let Entry { lock, member, .. } = self.table.get(number)?;
        if self.table.is_asked_for_once(lock) {
            let fence = self.fence(lock, member);
            self.table.set_first(number, fence);
        }
        self.ask(number)
    }

    /// Sends the acquires that had no room, in the order of arrival.
    pub(super) fn ask_in_turn(&mut self, lane: u16, mut budget: usize) -> usize {
        while budget > 0
            && self.room_to_ask(self.table.lane(lane)) > 0
            && let Some(number) = self.table.lane(lane).unsent.first().copied()
        {
            if let Some(ask) = self.ask_in_its_turn(number) {
                self.push(Effect::Send(ask));
            }
            budget -= 1;
        }
        budget
    }

    pub(super) fn ask_in_background(&mut self, number: u64) {
        if let Some(ask) = self.acquire(number, true) {
            self.background(ask);
        }
    }

    /// Retries attempts backing off, in the order of arrival.
    pub(super) fn ask_again(&mut self, lane: u16, mut budget: usize) -> usize {
        while budget > 0
            && self.room_to_repeat(self.table.lane(lane)) > 0
            && let Some(number) = self.table.lane(lane).parked.first().copied()
        {
            // Without a subscription, the attempt would back off again at once, until the
            // connection is back.
            if !self.is_up() && self.table.entries()[&number].mode == Mode::Wait {
                self.table.traffic(lane).retry_at = None;
                return budget;
            }
            self.ask_in_background(number);
            budget -= 1;
        }
        if self.table.lane(lane).parked.is_empty() {
            let traffic = self.table.traffic(lane);
            traffic.retry_at = None;
            traffic.pause = (traffic.pause * 2).min(LAST_RETRY);
        }
        budget
    }

    pub(super) fn park(&mut self, number: u64, error: StoreError) {
        let lane = self.table.change(number, |entry| {
            entry.state = State::Parked { error };
            entry.lane
        });
        let (is_up, now) = (self.is_up(), self.now);
        if let Some(lane) = lane.filter(|_| is_up) {
            let traffic = self.table.traffic(lane);
            traffic.retry_at = traffic.retry_at.or(Some(now + traffic.pause));
        }
    }

    /// Handles a member's outcome in an acquire.
    pub(super) fn acquired(
        &mut self,
        ask: &Ask,
        member: &Member,
        outcome: Acquired,
        first_end_ms: Option<u64>,
    ) {
        let Some(number) = self.table.answered(member, self.now) else { return };
        match outcome {
            // The grant is in the reply's list of grants.
            Acquired::Granted => {}
            Acquired::Queued { position } => {
                self.queued(number, ask, position, first_end_ms);
            }
            // A grant has overtaken this response.
            _ if self.is_in_batch(number) => {}
            Acquired::Busy => self.finish(number, Refusal::Busy),
            Acquired::Full { waiting } => self.finish(number, Refusal::Full(waiting)),
            Acquired::Refused if member.keeps_newest() => self.superseded(number),
            // The tombstone is ours: this member id is useless now.
            Acquired::Refused => self.position_lost(number),
            Acquired::NotServed { may_hold } => self.not_served(number, may_hold),
        }
    }

    pub(super) fn queued(
        &mut self,
        number: u64,
        ask: &Ask,
        position: u64,
        first_end_ms: Option<u64>,
    ) {
        let Some(entry) = self.table.get(number) else { return };
        let is_poked = match entry.state {
            State::Asking { poked, .. } => poked,
            State::Parked { .. } => false,
            // A grant has overtaken this response.
            _ => return,
        };
        let wants = entry.caller == Caller::Waits;
        let of = entry.mirror.clone();
        let position = position.saturating_sub(self.done_in_batch(&ask.lock));
        // Under the table's mutex, so that an older position never replaces a newer position.
        of.queued(position);
        self.table.change(number, |entry| {
            entry.state = State::Waiting;
            entry.anchor = ask.sent;
        });
        if !wants {
            return self.withdraw(number);
        }
        let due = if is_poked { self.now } else { self.lease_end(number, first_end_ms) };
        self.table.touch_by(&ask.lock, due);
        self.push(Effect::Observe(Note::Queued { lock: ask.lock.clone(), position, of }));
    }

    pub(super) fn acquire_failed(&mut self, member: &Member, error: &StoreError) {
        let Some(number) = self.known(member) else { return };
        self.table.change(number, |entry| {
            entry.ambiguous |= error.may_have_run || entry.may_hold;
            entry.unanswered = false;
        });
        let entry = &self.table.entries()[&number];
        if !matches!(entry.state, State::Asking { .. }) {
            // A grant came first.
            return;
        }
        if entry.caller == Caller::Waits && error.is_transient() {
            return self.park(number, error.clone());
        }
        self.finish(number, Refusal::Store(error.clone()));
    }

    /// Ends an attempt without a lock. The member is not in the queue, but another copy of the
    /// acquire may still find the lock free.
    pub(super) fn finish(&mut self, number: u64, refusal: Refusal) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        if !entry.is_attempt() {
            return;
        }
        let (lock, of) = (entry.lock.clone(), entry.mirror.clone());
        let note = Note::Refused { lock, refusal: refusal.clone(), of };
        self.set_refusal(number, refusal);
        self.table.change(number, |entry| {
            entry.state = entry.gone(now);
        });
        self.push(Effect::Observe(note));
    }

    /// The server has removed a waiter from the queue in favor of a newer waiter. A member granted
    /// since was still queued on the granting server, which has taken over: the grant stays.
    pub(super) fn superseded(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        if !matches!(entry.state, State::Asking { .. } | State::Parked { .. } | State::Waiting) {
            return;
        }
        let (lock, member) = (entry.lock.clone(), entry.member.clone());
        // A promoted replica may still have the member queued.
        self.remember_release(Some(number), &lock, &member);
        self.finish(number, Refusal::Kind(LockErrorKind::Superseded));
    }

    pub(super) fn set_refusal(&mut self, number: u64, refusal: Refusal) {
        let mirror = self.table.get(number).map(|entry| entry.mirror.clone());
        let is_waiting = self.table.change(number, |entry| entry.set_refusal(refusal));
        if let (Some(true), Some(mirror)) = (is_waiting, mirror) {
            self.push(Effect::Wake(mirror));
        }
    }

    /// Removes an attempt, here and on the server.
    pub(super) fn withdraw(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        let (lock, of) = (entry.lock.clone(), entry.mirror.clone());
        let waited = now.since(entry.started);
        match entry.state {
            // The response will find the attempt withdrawn: a leave must not overtake an acquire.
            State::Asking { .. } => return,
            State::Missed => {
                self.table.change(number, |entry| entry.state = State::Over);
            }
            State::Unsent | State::Parked { .. } if !entry.ambiguous && !entry.may_hold => {
                // The acquire was never sent.
                self.table.change(number, |entry| entry.state = State::Over);
            }
            State::Unsent | State::Parked { .. } | State::Waiting | State::Confirming { .. } => {
                self.table.change(number, |entry| entry.state = entry.leaving(now));
            }
            State::InBatch => {
                if let Some(first) = self.batches.hold_of(number) {
                    self.withdraw_from_batch(first, number);
                }
            }
            State::Offered(_) => drop(self.hand_back(number, Some(now))),
            _ => {
                // Only the caller was left.
                self.table.change(number, |_| ());
                return;
            }
        }
        self.push(Effect::Observe(Note::Cancelled { lock, waited, of }));
    }

    /// The server no longer knows this waiter: the attempt continues in the next round, at the
    /// tail.
    pub(super) fn position_lost(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number).filter(|entry| entry.is_attempt()) else {
            return;
        };
        let lock = entry.lock.clone();
        let wants = entry.caller == Caller::Waits;
        self.table.count_lost_position();
        let next = if wants { self.next_round_if_any(number) } else { None };
        self.table.change(number, |entry| {
            // A withdrawn attempt never learned whether it was queued.
            entry.state = if wants { entry.gone(now) } else { entry.leaving(now) };
        });
        self.push(Effect::Observe(Note::PositionLost { lock }));
        if let Some(next) = next {
            self.ask_in_background(next);
        }
    }

    /// Continues the attempt under a new member id, like [`next_round`](Self::next_round), or ends
    /// it here: the id after the last belongs to another attempt. The last id is reserved for the
    /// first batch member, under whose id the hold is stored.
    pub(super) fn next_round_if_any(&mut self, number: u64) -> Option<u64> {
        if number % ROUNDS + 2 < ROUNDS {
            return Some(self.next_round(number));
        }
        let entry = self.table.get(number)?;
        let (lock, of) = (entry.lock.clone(), entry.mirror.clone());
        let refusal = Refusal::Store(StoreError::refused(LockErrorKind::Unavailable, TOO_OFTEN));
        self.set_refusal(number, refusal.clone());
        self.push(Effect::Observe(Note::Refused { lock, refusal, of }));
        None
    }

    /// Continues the attempt under a new member id, with caller and mirror. The old member's state
    /// stays as it is.
    pub(super) fn next_round(&mut self, number: u64) -> u64 {
        let next = number + 1;
        let moved = self.table.change(number, Entry::take_caller);
        if let (Some((caller, mirror)), Some(old)) = (moved, self.table.get(number)) {
            let entry = Entry {
                member: old.member.renumbered(next),
                state: State::Missed,
                caller,
                mirror,
                ambiguous: false,
                unanswered: false,
                answered: None,
                unheard: false,
                revoked: None,
                may_hold: false,
                fence: None,
                anchor: self.now,
                ..old.clone()
            };
            self.table.insert(next, entry);
        }
        next
    }
}
