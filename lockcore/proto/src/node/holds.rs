//! Holds: renewed in time, and lost.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Core, lines};
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Entry, Mirror, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::{Command, Grant, Released, Renewed};

/// A renewal before the hand-out that failed is followed by a touch after this time.
const CONFIRM_RETRY: Duration = Duration::from_millis(250);
const UNPROVEN: &str =
    "the lease expired before a renewal could confirm that the hold existed at the release";
/// A request that has waited for so long behind a hold of its own node is told.
const LONG_BEHIND_OWN: Duration = Duration::from_secs(30);
/// The weight of a read, to which a downgrade reduces a lock.
const READ: NonZeroU32 = NonZeroU32::MIN;

impl<P: Mirror> Core<P> {
    pub(super) fn renewed(
        &mut self,
        ask: &Ask,
        member: &Member,
        outcome: Renewed,
        grants: &[Grant],
    ) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let left = match outcome {
            Renewed::Held => Duration::from_millis(member.lease_ms()),
            Renewed::NotHeld => Duration::ZERO,
        };
        let chance = self.chance(number);
        let doubt = self.doubt;
        let entry = &self.table.entries()[&number];
        let is_own = |grant: &&Grant| grant.member == *member;
        match &entry.state {
            State::ConfirmingRun => {
                let grant = grants.iter().find(is_own);
                self.run_confirmed(number, ask.sent, left, grant);
            }
            State::Serving(_) => self.run_renewed(number, ask.sent, left),
            State::Confirming { token, handed_over } => {
                let (handed_over, mut later) = (*handed_over, None);
                // The present hold may have been granted later than the confirmed one.
                let token = grants.iter().find(is_own).map_or(*token, |grant| grant.token);
                if lease::certain_until(ask.sent, left) > now {
                    let too_soon = self.too_soon(ask.sent);
                    match (self.may_be_revoked(entry, ask.sent), too_soon) {
                        (false, _) => {
                            return self.offer(number, token, ask.sent, left, handed_over);
                        }
                        (true, None) => return self.confirm(number),
                        (true, Some(_)) => {}
                    }
                    later = too_soon;
                }
                self.table.change(number, |entry| entry.state = State::Waiting);
                self.table.touch_by(&ask.lock, later.unwrap_or(now));
            }
            State::Held(_) if left.is_zero() => {
                self.lose(number, "the server no longer has the hold");
            }
            // The caller that asked has been told so.
            State::Held(lease) if now >= lease.until() => {
                self.lose(number, "the renewal came too late");
            }
            State::Held(_) => {
                self.table.change(number, |entry| {
                    if let State::Held(lease) = &mut entry.state {
                        lease.extend(&entry.options, ask.sent, left, chance);
                        lease.doubted(now, doubt);
                    }
                });
                self.push(Effect::Observe(Note::Renewed { lock: ask.lock.clone() }));
                self.tell_waits_behind(number);
            }
            // Its own release has overtaken it, and tells how the hold ended.
            _ => {}
        }
    }

    /// Tells of a request of this node that has waited for long behind this hold: it may be the
    /// holder's own, which then waits for itself. Looked at when the hold is renewed, since there
    /// is no index of holds by their locks.
    pub(super) fn tell_waits_behind(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        let (State::Held(lease), Some(line)) = (&entry.state, self.table.lines().get(&entry.lock))
        else {
            return;
        };
        let first = line.numbers.first().and_then(|first| self.table.get(*first));
        let Some(started) = first.map(|waiting| waiting.started) else { return };
        let waited = self.now.since(started.max(lease.since));
        if waited >= LONG_BEHIND_OWN {
            let lock = entry.lock.clone();
            self.push(Effect::Observe(Note::WaitsBehindOwn { lock, waited }));
        }
    }

    /// The moment to ask again if a request of this moment is answered within it, as in memory: one
    /// that is sent now would be no later.
    pub(super) fn too_soon(&self, sent: Moment) -> Option<Moment> {
        (sent == self.now).then(|| self.now + lines::FLOOR)
    }

    /// Whether a hold that a request of this moment confirmed may have been force-released since.
    pub(super) fn may_be_revoked(&self, entry: &Entry<P>, sent: Moment) -> bool {
        self.is_doubted(sent) || entry.is_revoked_since(sent)
    }

    /// Whether a revocation may be among the messages that a new connection has missed, since this
    /// request. Of the same moment it counts: asked for once more, it would not be later.
    pub(super) fn is_doubted(&self, sent: Moment) -> bool {
        sent + Duration::from_micros(1) < self.doubt
    }

    /// The request that renews a hold of a guard now, and draws a token above its floor. Its answer
    /// is taken as that of a renewal; the guard keeps its token. `None` if it is not held.
    pub fn confirmation(&self, number: u64) -> Option<Ask> {
        let entry = self.table.get(number)?;
        let State::Held(_) = entry.state else { return None };
        let command = Command::Confirm { member: entry.member.clone() };
        Some(self.request(entry.lock.clone(), command, false))
    }

    /// The request that downgrades a held lock to a read; `None` if it is not held.
    pub fn downgrade(&mut self, number: u64) -> Option<Ask> {
        let is_held = |entry: &Entry<P>| matches!(entry.state, State::Held(_));
        self.table.get(number).filter(|entry| is_held(entry))?;
        // No member of a run can be alone beside other reads.
        self.cut_by_guard(self.held_as(number), READ)
    }

    /// A write was to become a read. Its lease stays as it is.
    pub(super) fn reduced(&mut self, member: &Member, outcome: &[Renewed]) {
        if let (Some(number), [Renewed::NotHeld]) = (self.known(member), outcome) {
            self.lose(number, "the server no longer has the hold");
        }
    }

    pub(super) fn renewal_failed(&mut self, member: &Member, error: &StoreError) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let lock = self.table.entries()[&number].lock.clone();
        match self.table.entries()[&number].state {
            State::ConfirmingRun => self.dissolve(number, now + CONFIRM_RETRY),
            State::Serving(_) => self.run_not_renewed(number, error),
            State::Confirming { .. } => {
                self.table.change(number, |entry| entry.state = State::Waiting);
                self.table.touch_by(&lock, now + CONFIRM_RETRY);
            }
            State::Held(_) => {
                self.table.change(number, |entry| {
                    if let State::Held(lease) = &mut entry.state {
                        lease.retry(now);
                    }
                });
                self.push(Effect::Observe(Note::RenewalFailed { lock, error: error.clone() }));
            }
            _ => {}
        }
    }

    /// The hold is over without having been released. The rest of its lease on the server stays
    /// until its guard is dropped.
    pub(super) fn lose(&mut self, number: u64, why: &'static str) {
        match self.table.get(number).map(|entry| (&entry.state, self.runs.hold_of(number))) {
            Some((State::Held(_) | State::Offered(_), Some(first))) => {
                self.lose_run(first, why);
            }
            Some((State::Serving(_), _)) => self.lose_run(number, why),
            _ => self.tell_lost(number, why),
        }
    }

    /// The hold is over by the clock, without an answer to its last renewals.
    pub(super) fn lapse(&mut self, number: u64, why: &'static str) {
        let first = self.held_as(number);
        let error = StoreError::refused(LockErrorKind::Unavailable, UNPROVEN);
        self.prove(first, Err(&error), self.now);
        self.lose(number, why);
    }

    /// Tells the guard of this number that its hold is lost.
    pub(super) fn tell_lost(&mut self, number: u64, why: &'static str) {
        let Some(entry) = self.table.get(number) else { return };
        let (State::Held(lease) | State::Offered(lease)) = &entry.state else { return };
        let since = lease.since;
        let held = self.now.since(since);
        let lock = entry.lock.clone();
        let mirror = entry.mirror.clone();
        self.table.change(number, |entry| entry.state = State::Lost { since });
        self.push(Effect::TellLost(mirror.clone()));
        self.push(Effect::Observe(Note::Lost { lock, held, why, of: mirror }));
    }

    /// A hold of the member was force-released. The message may overtake the answer that tells of
    /// that hold, since the two come on different connections: it is remembered for that answer.
    pub(super) fn revoked(&mut self, number: u64) {
        let now = self.now;
        let entry = &self.table.entries()[&number];
        if let (State::Offered(_) | State::Held(_) | State::InRun, Some(first)) =
            (&entry.state, self.runs.hold_of(number))
        {
            return self.revoked(first);
        }
        match entry.state {
            State::Serving(_) => {
                self.prove(number, Ok(Released::NotHeld), now);
                self.lose_run(number, "the hold was force-released");
            }
            // The answer to its confirmation decides.
            State::ConfirmingRun => {
                self.table.change(number, |entry| entry.revoked = Some(now));
            }
            State::Asking { .. }
            | State::Parked { .. }
            | State::Waiting
            | State::Confirming { .. } => {
                let lock = self.table.entries()[&number].lock.clone();
                self.table.change(number, |entry| entry.revoked = Some(now));
                // Its place is lost, too: the touch finds it gone.
                self.table.touch_by(&lock, now);
            }
            State::Held(_) => self.lose(number, "the hold was force-released"),
            State::Offered(_) => {
                self.miss(number);
                // A force-released hold is not released again.
                self.table.change(number, |entry| entry.state = entry.gone(now));
                let current = number + 1;
                if let Some(mirror) = self.table.get(current).map(|entry| entry.mirror.clone()) {
                    self.push(Effect::Wake(mirror));
                }
            }
            _ => {}
        }
    }

    /// A hold or an offer ends by the clock, or one that ends on the server by itself has done so.
    pub(super) fn ended(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        match &entry.state {
            State::Held(lease) | State::Serving(lease) => {
                let why = lease.end(&entry.options);
                self.lapse(number, why);
            }
            // Not the offer alone has ended.
            State::Offered(lease)
                if self.runs.hold_of(number).is_some()
                    && now >= lease.notice_at(&entry.options) =>
            {
                let why = lease.end(&entry.options);
                self.lapse(number, why);
            }
            State::Offered(_) => {
                self.miss(number);
            }
            State::Leaked { .. } => {
                self.forget_run(number);
                self.table.change(number, |entry| entry.state = entry.gone(now));
            }
            _ => {}
        }
    }
}
