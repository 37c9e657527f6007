//! Holds: renewed in time, and lost.

use std::time::Duration;

use super::{Core, Effects};
use crate::error::StoreError;
use crate::member::Member;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Seat, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::store::protocol::Command;
use crate::store::{Grant, Renewed, Reply};

/// A renewal before the hand-out that failed is followed by a touch after this time.
const CONFIRM_RETRY: Duration = Duration::from_millis(250);

impl<P: Seat> Core<P> {
    pub(super) fn renewed(
        &mut self,
        now: Moment,
        ask: &Ask,
        member: &Member,
        reply: &Reply<Renewed>,
        fx: &mut Effects<P>,
    ) {
        let Some(number) = self.known(member) else { return };
        let left = match reply.outcome {
            Renewed::Held => Duration::from_millis(reply.left_ms),
            Renewed::NotHeld => Duration::ZERO,
        };
        let (chance, doubt) = (self.chance(number, now), self.doubt);
        let entry = &self.entries[&number];
        match &entry.state {
            State::Confirming { token, handed_over } => {
                let handed_over = *handed_over;
                // What is held now may have been granted later than what is confirmed.
                let is_own = |grant: &&Grant| grant.member == *member;
                let token = reply.grant.as_ref().filter(is_own).map_or(*token, |grant| grant.token);
                if lease::certain_until(ask.sent, left) > now {
                    if entry.is_revoked_since(ask.sent) {
                        return self.confirm(now, number, fx);
                    }
                    return self.offer(now, number, token, ask.sent, left, handed_over, fx);
                }
                self.change(number, |entry| entry.state = State::Waiting);
                self.touch_by(&ask.lock, now);
            }
            State::Held(_) if left.is_zero() => {
                self.lose(now, number, "the server no longer knows the hold", fx);
            }
            // The caller that asked has been told so.
            State::Held(lease) if now >= lease.until() => {
                self.lose(now, number, "its renewal came too late", fx);
            }
            State::Held(_) => {
                self.change(number, |entry| {
                    if let State::Held(lease) = &mut entry.state {
                        lease.extend(&entry.options, ask.sent, left, chance);
                        lease.doubted(now, doubt);
                    }
                });
                fx.push(Effect::Observe(Note::Renewed { lock: ask.lock.clone() }));
            }
            // Its own release has overtaken it, and tells how the hold ended.
            _ => {}
        }
    }

    /// What makes a read of a held write; nothing if it is not held.
    pub fn downgrade(&self, now: Moment, number: u64) -> Option<Ask> {
        let entry = self.entries.get(&number)?;
        let member = matches!(entry.state, State::Held(_)).then(|| entry.member.clone())?;
        let command = Command::Downgrade { member };
        Some(Ask { lock: entry.lock.clone(), command, sent: now, background: false })
    }

    /// A write was to become a read. Its lease stays as it is.
    pub(super) fn downgraded(
        &mut self,
        now: Moment,
        member: &Member,
        reply: &Reply<Renewed>,
        fx: &mut Effects<P>,
    ) {
        if let (Some(number), Renewed::NotHeld) = (self.known(member), reply.outcome) {
            self.lose(now, number, "the server no longer knows the hold", fx);
        }
    }

    pub(super) fn renewal_failed(
        &mut self,
        now: Moment,
        member: &Member,
        error: &StoreError,
        fx: &mut Effects<P>,
    ) {
        let Some(number) = self.known(member) else { return };
        let lock = self.entries[&number].lock.clone();
        match self.entries[&number].state {
            State::Confirming { .. } => {
                self.change(number, |entry| entry.state = State::Waiting);
                self.touch_by(&lock, now + CONFIRM_RETRY);
            }
            State::Held(_) => {
                self.change(number, |entry| {
                    if let State::Held(lease) = &mut entry.state {
                        lease.retry(now);
                    }
                });
                fx.push(Effect::Observe(Note::RenewalFailed { lock, error: error.clone() }));
            }
            _ => {}
        }
    }

    /// The hold is over without having been released. What is left of its lease on the server stays
    /// as it is until its guard is dropped.
    pub(super) fn lose(
        &mut self,
        now: Moment,
        number: u64,
        why: &'static str,
        fx: &mut Effects<P>,
    ) {
        let Some(entry) = self.entries.get(&number) else { return };
        let (State::Held(lease) | State::Offered(lease)) = &entry.state else { return };
        let held = now.since(lease.since);
        let (lock, seat) = (entry.lock.clone(), entry.seat.clone());
        self.change(number, |entry| entry.state = State::Lost);
        fx.push(Effect::TellLost(seat));
        fx.push(Effect::Observe(Note::Lost { lock, held, why }));
    }

    /// A hold of the member was force-released. The message may overtake the answer that tells of
    /// that hold, since the two come on different connections: it is remembered for that answer.
    pub(super) fn revoked(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        match self.entries[&number].state {
            State::Asking { .. }
            | State::Parked { .. }
            | State::Waiting
            | State::Confirming { .. } => {
                let lock = self.entries[&number].lock.clone();
                self.change(number, |entry| entry.revoked = Some(now));
                // Its place is lost, too: the touch finds it gone.
                self.touch_by(&lock, now);
            }
            State::Held(_) => self.lose(now, number, "it was force-released", fx),
            State::Offered(_) => {
                self.miss(now, number, fx);
                // What was force-released is not released again.
                self.change(number, |entry| entry.state = entry.gone(now));
                let current = number + 1;
                if let Some(entry) = self.entries.get(&current) {
                    fx.push(Effect::Wake(entry.seat.clone()));
                }
            }
            _ => {}
        }
    }

    /// A hold or an offer ends by the clock, or one that ends on the server by itself has done so.
    pub(super) fn ended(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number) else { return };
        match &entry.state {
            State::Held(lease) => {
                let why = lease.end(&entry.options);
                self.lose(now, number, why, fx);
            }
            State::Offered(_) => {
                self.miss(now, number, fx);
            }
            State::Leaked { .. } => {
                self.change(number, |entry| entry.state = entry.gone(now));
            }
            _ => {}
        }
    }
}
