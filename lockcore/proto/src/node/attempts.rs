//! Attempts without a lock yet: how they are sent, queued, retried after errors, and cancelled.

use std::time::Duration;

use super::Core;
use crate::error::{LockErrorKind, StoreError};
use crate::member::{Member, ROUND_BITS};
use crate::name::LockName;
use crate::node::effect::{Effect, Note, StoreRequest, Way};
use crate::node::entry::{Caller, Entry, Mirror, Refusal, State};
use crate::{Acquired, Command, Mode};

/// The number of member ids per attempt. After each lost queue position, and each grant that its
/// caller missed, an attempt continues under the next id.
const ROUNDS: u64 = 1 << ROUND_BITS;
/// The error text for an attempt that has used all its member ids.
const TOO_OFTEN: &str = "the request lost its queue position 4095 times: the store loses keys, or \
    the request is polled too rarely";

/// Pause before attempts whose acquire failed are retried, while both connections (for commands and
/// for messages) are open. After a reconnect, they are retried at once.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Maximum pause between two retries. The pause doubles with each retry, up to this time.
pub(super) const LAST_RETRY: Duration = Duration::from_secs(2);

impl<P: Mirror> Core<P> {
    /// Returns the acquire for an attempt: the request to be granted the lock or queued. The caller
    /// of this method must send it and count it as in flight. `background` is false for an
    /// attempt's first acquire, and true for later ones, after an error or under a new member id;
    /// both are limited separately. Returns `None` if the attempt would have to wait for a message,
    /// and the connection for messages is down. The attempt is then retried after the reconnect.
    pub(super) fn acquire(&mut self, number: u64, background: bool) -> Option<StoreRequest> {
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
        let request = StoreRequest { way, ..self.request(lock.clone(), command, background) };
        // A new attempt is already in the state `Asking`.
        if !matches!(state, State::Asking { .. }) {
            self.table.change(number, |entry| {
                let error = match &entry.state {
                    State::Parked { error } => Some(error.clone()),
                    _ => None,
                };
                entry.state = State::Asking { error, poked: false };
            });
        }
        Some(request)
    }

    /// Returns the acquire of an attempt that has not sent any yet, or only on the fast path
    /// (without a script). The caller of this method sends it. Counts it as in flight, in
    /// [`Traffic::asking`](super::lane::Traffic). `None` as for [`acquire`](Self::acquire).
    pub(super) fn first_acquire(&mut self, number: u64) -> Option<StoreRequest> {
        let request = self.acquire(number, false)?;
        self.table.traffic(request.lane).asking += 1;
        Some(request)
    }

    /// Returns the first acquire of an attempt that had to wait: too many requests were in flight,
    /// or another acquire for the lock came first. Tries the fast path if no other acquire for the
    /// lock is in flight or unsent.
    fn unsent_acquire(&mut self, number: u64) -> Option<StoreRequest> {
        let Entry { lock, member, .. } = self.table.get(number)?;
        if self.table.is_asked_for_once(lock) {
            let fence = self.fence(lock, member);
            self.table.set_first(number, fence);
        }
        self.first_acquire(number)
    }

    /// Sends the first acquires that had to wait, in the order of their attempts, as long as the
    /// lane (server) has room for more in flight. Handles at most `budget` attempts. Returns the
    /// remaining budget.
    pub(super) fn send_unsent(&mut self, lane: u16, mut budget: usize) -> usize {
        while budget > 0
            && self.room_to_ask(self.table.lane(lane)) > 0
            && let Some(number) = self.table.lane(lane).unsent.first().copied()
        {
            if let Some(request) = self.unsent_acquire(number) {
                self.push(Effect::Send(request));
            }
            budget -= 1;
        }
        budget
    }

    pub(super) fn acquire_in_background(&mut self, number: u64) {
        if let Some(request) = self.acquire(number, true) {
            self.background(request);
        }
    }

    /// Retries the attempts in a lane (for a server) whose last acquire failed, in the order in
    /// which they began, as long as there is room for more in flight. In a round each attempt is
    /// retried at most once, and a pause follows. Handles at most `budget` attempts. Returns the
    /// remaining budget.
    pub(super) fn retry_parked(&mut self, lane: u16, mut budget: usize) -> usize {
        while budget > 0
            && self.room_to_repeat(self.table.lane(lane)) > 0
            && let Some(number) = self.table.lane(lane).next_parked()
        {
            // Without a subscription the attempt would back off again at once, so retries wait
            // until the connection is back.
            if !self.is_up() && self.table.entries()[&number].mode == Mode::Wait {
                self.table.traffic(lane).retry_at = None;
                return budget;
            }
            self.table.traffic(lane).retry_from = number + 1;
            self.acquire_in_background(number);
            budget -= 1;
        }
        let now = self.now;
        if self.table.lane(lane).next_parked().is_none() {
            let is_parked = !self.table.lane(lane).parked.is_empty();
            let traffic = self.table.traffic(lane);
            traffic.retry_from = 0;
            traffic.pause = (traffic.pause * 2).min(LAST_RETRY);
            traffic.retry_at = is_parked.then_some(now + traffic.pause);
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

    /// Handles the outcome for a member in the response to its acquire: queued, refused, or not
    /// served by the fast path. A grant is handled with the rest of the reply, in `absorb`.
    pub(super) fn acquired(
        &mut self,
        request: &StoreRequest,
        member: &Member,
        outcome: Acquired,
        first_end_ms: Option<u64>,
    ) {
        let Some(number) = self.table.answered(member, self.now) else { return };
        match outcome {
            // The reply also contains the grant, which is handled separately.
            Acquired::Granted => {}
            Acquired::Queued { position } => {
                self.queued(number, request, position, first_end_ms);
            }
            // A grant has overtaken this response, so the refusal is out of date.
            _ if self.is_in_batch(number) => {}
            Acquired::Busy => self.finish(number, Refusal::Busy),
            Acquired::Full { waiting } => self.finish(number, Refusal::Full(waiting)),
            Acquired::Refused if member.keeps_newest() => self.superseded(number),
            // This node left the tombstone itself, so the member id is useless now.
            Acquired::Refused => self.position_lost(number),
            Acquired::NotServed { may_hold } => self.not_served(number, may_hold),
        }
    }

    /// Handles a member that is still asking after the response to its acquire: the response
    /// reports a grant that cannot be offered yet, because the lease may be over, or the hold is
    /// stored under another member of this node. The member waits, and is touched.
    pub(super) fn settle_granted(&mut self, member: &Member) {
        let Some(number) = self.known(member) else { return };
        let Some(entry) = self.table.get(number) else { return };
        if !matches!(entry.state, State::Asking { .. }) {
            return;
        }
        let (lock, wants) = (entry.lock.clone(), entry.caller == Caller::Waits);
        self.table.change(number, |entry| entry.state = State::Waiting);
        match wants {
            true => self.table.touch_by(&lock, self.now),
            false => self.withdraw(number),
        }
    }

    pub(super) fn queued(
        &mut self,
        number: u64,
        request: &StoreRequest,
        position: u64,
        first_end_ms: Option<u64>,
    ) {
        let Some(entry) = self.table.get(number) else { return };
        let is_poked = match entry.state {
            State::Asking { poked, .. } => poked,
            State::Parked { .. } => false,
            // A grant has overtaken this response, so the member does not wait.
            _ => return,
        };
        let wants = entry.caller == Caller::Waits;
        let of = entry.mirror.clone();
        let position = position.saturating_sub(self.done_in_batch(&request.lock));
        // Written under the table's mutex, so that an older position never replaces a newer one.
        of.queued(position);
        self.table.change(number, |entry| {
            entry.state = State::Waiting;
            entry.anchor = request.sent;
        });
        if !wants {
            return self.withdraw(number);
        }
        let due = if is_poked { self.now } else { self.lease_end(number, first_end_ms) };
        self.table.touch_by(&request.lock, due);
        self.push(Effect::Observe(Note::Queued { lock: request.lock.clone(), position, of }));
    }

    pub(super) fn acquire_failed(&mut self, member: &Member, error: &StoreError) {
        let Some(number) = self.known(member) else { return };
        self.table.change(number, |entry| {
            entry.ambiguous |= error.may_have_run || entry.may_hold;
            entry.unanswered = false;
        });
        let entry = &self.table.entries()[&number];
        if !matches!(entry.state, State::Asking { .. }) {
            // A grant has overtaken the error, so the attempt goes on.
            return;
        }
        if entry.caller == Caller::Waits && error.is_transient() {
            return self.park(number, error.clone());
        }
        self.finish(number, Refusal::Store(error.clone()));
    }

    /// Ends an attempt without a lock, and refuses it to a caller who still waits. Called after
    /// the acquire was refused or has failed for good, and after the server has removed the waiter.
    /// If the acquire may still run on the server, as after a time-out, the node also sends a
    /// leave. This stores a tombstone there, by which the server refuses the late acquire.
    pub(super) fn finish(&mut self, number: u64, refusal: Refusal) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        if !entry.is_attempt() {
            return;
        }
        self.refuse(number, refusal);
        self.table.change(number, |entry| {
            entry.state = entry.gone(now);
        });
    }

    /// Handles the report that the server removed this waiter because a newer one is to take its
    /// place. If the waiter has been granted the lock since, the grant stays: it comes from a
    /// server that took over and still had the waiter in the queue.
    /// Does nothing for a member without `KeepNewest`: the report of its end is forged.
    pub(super) fn superseded(&mut self, number: u64) {
        let entry = self.table.get(number).filter(|entry| entry.member.keeps_newest());
        let Some(entry) = entry else { return };
        if !matches!(entry.state, State::Asking { .. } | State::Parked { .. } | State::Waiting) {
            return;
        }
        let (lock, member) = (entry.lock.clone(), entry.member.clone());
        // A promoted replica may still have the member in the queue.
        self.remember_release(Some(number), &lock, &member);
        self.finish(number, Refusal::Kind(LockErrorKind::Superseded));
    }

    /// Sets the refusal for the caller of an attempt, and logs it. Does nothing if no caller waits
    /// any more: a caller that was cancelled or has timed out has counted this itself.
    pub(super) fn refuse(&mut self, number: u64, refusal: Refusal) {
        if let Some((lock, of)) = self.set_refusal(number, refusal.clone()) {
            self.push(Effect::Observe(Note::Refused { lock, refusal, of }));
        }
    }

    /// Sets the refusal for the caller of an attempt. Returns the lock and the mirror if such a
    /// caller waits; otherwise does nothing.
    pub(super) fn set_refusal(&mut self, number: u64, refusal: Refusal) -> Option<(LockName, P)> {
        let entry = self.table.get(number)?;
        let (lock, mirror) = (entry.lock.clone(), entry.mirror.clone());
        let is_waiting = self.table.change(number, |entry| entry.set_refusal(refusal))?;
        if is_waiting {
            self.push(Effect::Wake(mirror.clone()));
        }
        is_waiting.then_some((lock, mirror))
    }

    /// Ends an attempt whose caller no longer waits, and removes it on the server by a leave. If
    /// the acquire is in flight, does nothing: the attempt is withdrawn when the response arrives.
    pub(super) fn withdraw(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        let (lock, of) = (entry.lock.clone(), entry.mirror.clone());
        let waited = now.since(entry.started);
        match entry.state {
            // The response will find the attempt without a caller. A leave sent now could overtake
            // the acquire.
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
                // Nothing but the caller was left of the attempt.
                self.table.change(number, |_| ());
                return;
            }
        }
        self.push(Effect::Observe(Note::Cancelled { lock, waited, of }));
    }

    /// Handles a lost position: the server does not know this waiter any more, for example because
    /// Redis has lost data. The attempt continues at the queue's tail under the next member id.
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
            // A withdrawn attempt does not know whether it was queued, so it leaves.
            entry.state = if wants { entry.gone(now) } else { entry.leaving(now) };
        });
        self.push(Effect::Observe(Note::PositionLost { lock }));
        if let Some(next) = next {
            self.acquire_in_background(next);
        }
    }

    /// Continues the attempt under the next member id, like [`next_round`](Self::next_round). If no
    /// id is left, ends the attempt with an error and returns `None`. The last id is kept for
    /// batches: a batch's hold has the id of its first member, and this member's attempt needs
    /// another id from then on.
    pub(super) fn next_round_if_any(&mut self, number: u64) -> Option<u64> {
        if number % ROUNDS + 2 < ROUNDS {
            return Some(self.next_round(number));
        }
        let error = StoreError::refused(LockErrorKind::Unavailable, TOO_OFTEN);
        self.refuse(number, Refusal::Store(error));
        None
    }

    /// Continues the attempt under the next member id, with the same caller and mirror, and returns
    /// this id. The new entry is in the state `Missed`, which means that nothing is requested,
    /// until the caller of this method requests the lock. The entry of the old member stays as it
    /// is.
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
                shares_with: Box::default(),
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
