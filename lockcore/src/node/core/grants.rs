//! Grants, however they are told: from the server's word to an offer.

use std::time::Duration;

use super::{Core, Effects};
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::Member;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Caller, Entry, Refusal, Seat, State};
use crate::node::lease::{self, Lease};
use crate::node::moment::Moment;
use crate::options::LockOptions;
use crate::store::protocol::Command;
use crate::store::{Grant, Mode, Reply, Share};
use crate::token::FencingToken;

/// What tells of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// The answer to its own acquire, sent then.
    Answer(Moment),
    /// The answer to another request, sent then.
    Aside(Moment),
    /// A message.
    Message,
}

impl<P: Seat> Core<P> {
    /// Takes in what every reply tells besides its outcome.
    pub(super) fn absorb<T>(
        &mut self,
        now: Moment,
        ask: &Ask,
        reply: &Reply<T>,
        fx: &mut Effects<P>,
    ) {
        if reply.foreign && !self.rules.peers {
            fx.push(Effect::Observe(Note::Foreign { lock: ask.lock.clone() }));
        }
        if reply.passed_over > 0 {
            let (lock, waiters) = (ask.lock.clone(), reply.passed_over);
            fx.push(Effect::Observe(Note::PassedOver { lock, waiters }));
        }
        for Share { member, token, left_ms } in &reply.several {
            self.told(now, ask, member, *token, *left_ms, fx);
        }
        if let Some(Grant { member, token }) = &reply.grant {
            self.told(now, ask, member, *token, reply.left_ms, fx);
        }
        if reply.more {
            // For no member in particular: what is left to do, the server knows.
            let command = Command::Touch { members: Vec::new() };
            let ask = Ask { lock: ask.lock.clone(), command, sent: now, background: true };
            self.background(ask, fx);
        }
    }

    /// A reply says that a member of ours holds its lock.
    fn told(
        &mut self,
        now: Moment,
        ask: &Ask,
        member: &Member,
        token: FencingToken,
        left_ms: u64,
        fx: &mut Effects<P>,
    ) {
        let Some(number) = self.number(member) else { return };
        if self.entries.contains_key(&number) {
            let source = match &ask.command {
                Command::Acquire { member: own, .. } if own == member => Source::Answer(ask.sent),
                _ => Source::Aside(ask.sent),
            };
            return self.granted(now, number, token, left_ms, source, fx);
        }
        if self.gone.since(number, ask.sent) {
            // An answer that its release has overtaken: there is nothing left to give back.
            return;
        }
        // Nothing here waits for it any more, and no copy of its acquire is on its way.
        self.give_back(now, ask.lock.clone(), member.clone());
    }

    /// Lets a member leave that is not in the table, and that the server may still know.
    pub(super) fn give_back(&mut self, now: Moment, lock: LockName, member: Member) {
        let Some((_, ours)) = member.parts() else { return };
        let (number, lease) = (ours.number, Duration::from_millis(ours.lease_ms));
        let mut stray = Entry {
            lock,
            member,
            options: LockOptions::new().lease(lease).terms(),
            mode: Mode::Try,
            state: State::Over,
            caller: Caller::Gone,
            ambiguous: false,
            unanswered: false,
            revoked: None,
            anchor: now,
            started: now,
            seat: P::default(),
        };
        stray.state = stray.leaving(now);
        self.insert(number, stray);
    }

    /// A member of ours holds its lock, with `left_ms` counted from the request that was answered,
    /// or from its own anchor if a message tells of it.
    pub(super) fn granted(
        &mut self,
        now: Moment,
        number: u64,
        token: FencingToken,
        left_ms: u64,
        source: Source,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if !matches!(entry.state, State::Asking { .. } | State::Parked { .. } | State::Waiting) {
            // Known already, or on its way out.
            return;
        }
        if !matches!(source, Source::Answer(_)) {
            // In place, since nothing is found by it.
            entry.unanswered |= matches!(entry.state, State::Asking { .. });
        }
        let left = Duration::from_millis(left_ms);
        let is_message = matches!(source, Source::Message);
        let anchor = match source {
            Source::Answer(sent) | Source::Aside(sent) => sent,
            Source::Message => entry.anchor,
        };
        let certain = lease::certain_until(anchor, left).since(now);
        let wants = entry.caller == Caller::Waits;
        if certain.is_zero() {
            // Too late to be a guard: a touch decides.
            self.change(number, |entry| entry.state = State::Waiting);
            let lock = self.entries[&number].lock.clone();
            self.touch_by(&lock, now);
            if !wants {
                self.withdraw(now, number, fx);
            }
            return;
        }
        let short = certain < lease::claim(&entry.options) / 2;
        let is_doubted = anchor < self.doubt;
        // Two copies of its acquire may have run: the first was granted, its claim lapsed, and the
        // second queued it again. The message may tell of the first.
        let may_be_old = is_message && entry.ambiguous;
        let is_forgeable = is_message && self.rules.confirm_grants;
        let is_alone = self.rules.replicas > 0;
        let may_be_revoked = entry.is_revoked_since(anchor);
        if short || is_doubted || may_be_old || is_forgeable || is_alone || may_be_revoked {
            self.change(number, |entry| {
                entry.state = State::Confirming { token, handed_over: is_message };
            });
            self.confirm(now, number, fx);
            if !wants {
                self.withdraw(now, number, fx);
            }
            return;
        }
        self.offer(now, number, token, anchor, left, is_message, fx);
    }

    /// Asks whether a hold that is not handed out yet is still held.
    pub(super) fn confirm(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number) else { return };
        let command = Command::Renew { member: entry.member.clone() };
        let ask = Ask { lock: entry.lock.clone(), command, sent: now, background: true };
        self.background(ask, fx);
    }

    /// Too few replicas have the grant or the renewal: after a failover the lock could be granted
    /// to another, while a guard still relies on it here.
    pub(super) fn unacknowledged(
        &mut self,
        now: Moment,
        member: &Member,
        replicas: u32,
        fx: &mut Effects<P>,
    ) {
        let Some(number) = self.known(member) else { return };
        let (kind, wanted) = (LockErrorKind::Unavailable, self.rules.replicas);
        let refused = |what: &str| {
            let detail = format!("{replicas} of {wanted} replicas acknowledged the {what} in time");
            StoreError::refused(kind, detail)
        };
        let entry = &self.entries[&number];
        if !matches!(entry.state, State::Confirming { .. }) {
            return self.renewal_failed(now, member, &refused("renewal"), fx);
        }
        let (lock, refusal) = (entry.lock.clone(), Refusal::Store(refused("grant")));
        self.tell(number, refusal.clone(), fx);
        self.change(number, |entry| entry.state = entry.leaving(now));
        fx.push(Effect::Observe(Note::Refused { lock, refusal }));
    }

    #[allow(clippy::too_many_arguments, reason = "each is one fact of the grant")]
    pub(super) fn offer(
        &mut self,
        now: Moment,
        number: u64,
        token: FencingToken,
        anchor: Moment,
        left: Duration,
        handed_over: bool,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get(&number) else { return };
        let lease = Lease::granted(&entry.options, token, now, anchor, left);
        let (lock, waited) = (entry.lock.clone(), now.since(entry.started));
        let (wants, seat) = (entry.caller == Caller::Waits, entry.seat.clone());
        self.change(number, |entry| entry.state = State::Offered(lease));
        if !wants {
            return self.withdraw(now, number, fx);
        }
        fx.push(Effect::Wake(seat));
        fx.push(Effect::Observe(Note::Granted { lock, waited, handed_over }));
    }

    /// An offer was not taken in time: it is given on, and its attempt goes on in the next round
    /// once its caller comes.
    pub(super) fn miss(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let next = self.next_round(now, number);
        self.change(number, |entry| entry.state = State::Releasing { due: Some(now) });
        self.counts.places_lost += 1;
        if let Some(entry) = self.entries.get(&number) {
            fx.push(Effect::Observe(Note::Missed { lock: entry.lock.clone() }));
        }
        if self.is_closed {
            // Nothing begins any more: it would hold the lock when its node says that nothing is
            // left.
            self.tell(next, Refusal::Kind(LockErrorKind::Closed), fx);
            self.withdraw(now, next, fx);
        }
    }
}
