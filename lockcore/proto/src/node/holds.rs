//! Holds: how they are renewed, downgraded and lost.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Core, lines};
use crate::error::StoreError;
use crate::member::Member;
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::{Entry, Mirror, State};
use crate::node::lease;
use crate::node::moment::Moment;
use crate::{Command, Grant, Released, Renewed};

/// Pause after a failed confirmation of a hold, before a touch asks the server for the member's
/// state.
pub(super) const CONFIRM_RETRY: Duration = Duration::from_millis(250);
/// How long an attempt must have waited behind a hold of the same node before this is logged.
const LONG_BEHIND_OWN: Duration = Duration::from_secs(30);
/// The weight of a hold, which is the part of the name that it takes, after a downgrade: that of a
/// read.
const READ: NonZeroU32 = NonZeroU32::MIN;

impl<P: Mirror> Core<P> {
    pub(super) fn renewed(
        &mut self,
        request: &StoreRequest,
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
        let doubted_before = self.doubted_before;
        let entry = &self.table.entries()[&number];
        let is_own = |grant: &&Grant| grant.member == *member;
        match &entry.state {
            State::ConfirmingBatch => {
                let grant = grants.iter().find(is_own);
                self.batch_confirmed(number, request.sent, left, grant);
            }
            // A request from before this hold began is about an earlier hold under the same name.
            State::Serving(lease) | State::Held(lease) if request.sent < lease.since => {}
            State::Serving(_) => self.batch_renewed(number, request.sent, left),
            State::Confirming { token, handed_over } => {
                let (handed_over, mut later) = (*handed_over, None);
                // The reply may describe a newer hold than the reported hold, so take the token
                // from the reply.
                let own = grants.iter().find(is_own);
                let token = own.map_or(*token, |grant| grant.token);
                if let Some(grant) = own.filter(|grant| !grant.batch.is_empty()) {
                    // Only the first member of a batch is confirmed with it.
                    self.table.change(number, |entry| entry.state = State::Waiting);
                    return self.grant_in_reply(request, grant);
                }
                if lease::certain_until(request.sent, left) > now {
                    let too_soon = self.too_soon(request.sent);
                    match (self.may_be_revoked(entry, request.sent), too_soon) {
                        (false, _) => {
                            return self.offer(number, token, request.sent, left, handed_over);
                        }
                        (true, None) => return self.confirm(number),
                        (true, Some(_)) => {}
                    }
                    later = too_soon;
                }
                self.table.change(number, |entry| entry.state = State::Waiting);
                self.table.touch_by(&request.lock, later.unwrap_or(now));
            }
            State::Held(_) if left.is_zero() => {
                self.lose(number, "the server no longer has the hold");
            }
            // If a caller requested the confirmation, it has received this result.
            State::Held(lease) if now >= lease.until() => {
                self.lose(number, "the renewal came too late");
            }
            State::Held(_) => {
                self.table.change(number, |entry| {
                    if let State::Held(lease) = &mut entry.state {
                        lease.extend(&entry.options, request.sent, left, chance);
                        lease.renew_if_doubted(now, doubted_before);
                    }
                });
                self.push(Effect::Observe(Note::Renewed { lock: request.lock.clone() }));
                self.report_waits_behind(number);
            }
            // The hold's release has overtaken the renewal, and its response reports how the hold
            // ended.
            _ => {}
        }
    }

    /// Logs an event if an attempt of this node has waited for long behind this hold. Perhaps the
    /// holder itself makes this attempt, and so waits for itself. Called after each renewal,
    /// because there is no index of holds by lock.
    pub(super) fn report_waits_behind(&mut self, number: u64) {
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

    /// Returns when a confirmation sent at `sent` may be repeated; `None` if at once. If no time
    /// has passed, as with an in-memory store, a repeat would have the same send time, and the
    /// response would prove no more.
    pub(super) fn too_soon(&self, sent: Moment) -> Option<Moment> {
        (sent == self.now).then(|| self.now + lines::MIN_DELAY)
    }

    /// Returns true if the response to a request sent at `sent`, which confirms a hold, may be out
    /// of date: the hold may have been force-released since.
    pub(super) fn may_be_revoked(&self, entry: &Entry<P>, sent: Moment) -> bool {
        self.is_doubted(sent) || entry.is_revoked_since(sent)
    }

    /// Returns true if a lease requested at `sent` may have ended unnoticed: since then, a
    /// reconnect may have hidden a force-release, or the server's clock was found ahead. A request
    /// sent at the moment of the reconnect counts as later.
    pub(super) fn is_doubted(&self, sent: Moment) -> bool {
        sent + Duration::from_micros(1) < self.doubted_before
    }

    /// Returns the request by which a caller verifies that its guard still has the hold; `None` if
    /// the hold is lost. The request renews the hold, and returns a new fencing token above all
    /// tokens seen by this node. The core handles the response like that of a renewal.
    pub fn confirmation(&self, number: u64) -> Option<StoreRequest> {
        let entry = self.table.get(number)?;
        let State::Held(_) = entry.state else { return None };
        let command = Command::Confirm { member: entry.member.clone() };
        Some(self.request(entry.lock.clone(), command, false))
    }

    /// Returns the request that downgrades an exclusive hold to a read; `None` if the member has no
    /// hold.
    pub fn downgrade(&mut self, number: u64) -> Option<StoreRequest> {
        let is_held = |entry: &Entry<P>| matches!(entry.state, State::Held(_));
        self.table.get(number).filter(|entry| is_held(entry))?;
        // The batch ends, because no other member can hold the lock beside a read.
        self.cut_by_guard(self.held_as(number), READ)
    }

    /// Handles the outcome of a downgrade to a read. If the server no longer has the hold, it is
    /// lost here as well. Otherwise nothing changes, because the lease stays the same.
    pub(super) fn reduced(&mut self, member: &Member, outcome: &[Renewed]) {
        if let (Some(number), [Renewed::NotHeld]) = (self.known(member), outcome) {
            self.lose(number, "the server no longer has the hold");
        }
    }

    /// Handles the error of a renewal or a confirmation that was sent at `sent`.
    pub(super) fn renewal_failed(&mut self, sent: Moment, member: &Member, error: &StoreError) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let lock = self.table.entries()[&number].lock.clone();
        match &self.table.entries()[&number].state {
            State::Serving(lease) | State::Held(lease) if sent < lease.since => {}
            State::ConfirmingBatch => self.dissolve(number, now + CONFIRM_RETRY),
            State::Serving(_) => self.batch_not_renewed(number, error),
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

    /// Ends a hold without a release, and notifies the guard with the reason `why`. On the server,
    /// the hold stays until the guard is dropped, `max_hold` is over, or the lease expires.
    pub(super) fn lose(&mut self, number: u64, why: &'static str) {
        match self.table.get(number).map(|entry| (&entry.state, self.batches.hold_of(number))) {
            Some((State::Held(_) | State::Offered(_), Some(first))) => {
                self.lose_batch(first, why);
            }
            Some((State::Serving(_), _)) => self.lose_batch(number, why),
            _ => self.notify_lost(number, why),
        }
    }

    /// Ends a hold whose time is over by this node's clock, for the reason `why`. Guards that left
    /// the hold to the next batch member, and wait to learn whether it still existed, get an error.
    pub(super) fn lapse(&mut self, number: u64, why: &'static str) {
        self.notify_unproven(self.held_as(number));
        self.lose(number, why);
    }

    /// Marks the hold of this member as lost, and notifies the guard with the reason `why`.
    pub(super) fn notify_lost(&mut self, number: u64, why: &'static str) {
        let Some(entry) = self.table.get(number) else { return };
        let (State::Held(lease) | State::Offered(lease)) = &entry.state else { return };
        let since = lease.since;
        let held = self.now.since(since);
        let lock = entry.lock.clone();
        let mirror = entry.mirror.clone();
        self.table.change(number, |entry| entry.state = State::Lost { since });
        self.push(Effect::NotifyLost(mirror.clone()));
        self.push(Effect::Observe(Note::Lost { lock, held, why, of: mirror }));
    }

    /// Handles the message that a member's hold was force-released. A response that reports this
    /// hold may still be in flight, because messages use another connection. So the time is
    /// recorded, to doubt that response. A message that is late may end a later hold of the member
    /// here: until a renewal showed which hold is meant, two guards could be valid.
    pub(super) fn revoked(&mut self, number: u64) {
        let now = self.now;
        let entry = &self.table.entries()[&number];
        if let (State::Offered(_) | State::Held(_) | State::InBatch, Some(first)) =
            (&entry.state, self.batches.hold_of(number))
        {
            return self.revoked(first);
        }
        match entry.state {
            State::Serving(_) => {
                self.notify_returned(number, Ok(Released::NotHeld), now);
                self.lose_batch(number, "the hold was force-released");
            }
            // The response to the confirmation in flight shows whether the hold exists.
            State::ConfirmingBatch => {
                self.table.change(number, |entry| entry.revoked = Some(now));
            }
            State::Asking { .. }
            | State::Parked { .. }
            | State::Waiting
            | State::Confirming { .. } => {
                let lock = self.table.entries()[&number].lock.clone();
                self.table.change(number, |entry| entry.revoked = Some(now));
                // The position is lost, too: the touch finds no such member.
                self.table.touch_by(&lock, now);
            }
            State::Held(_) => self.lose(number, "the hold was force-released"),
            State::Offered(_) => {
                self.miss(number);
                // The server has no hold any more, so nothing is released.
                self.table.change(number, |entry| entry.state = entry.gone(now));
                let current = number + 1;
                if let Some(mirror) = self.table.get(current).map(|entry| entry.mirror.clone()) {
                    self.push(Effect::Wake(mirror));
                }
            }
            _ => {}
        }
    }

    /// Ends a hold, an offer or a leaked hold whose time is over by this node's clock. A lost hold
    /// is released at the end of its `max_hold`, even if its guard still exists: the guard may be
    /// forgotten, or belong to work that nobody polls.
    pub(super) fn ended(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        match &entry.state {
            State::Held(lease) | State::Serving(lease) => {
                let why = lease.end(&entry.options);
                self.lapse(number, why);
            }
            // The batch hold has ended, not only the time to take the offer.
            State::Offered(lease)
                if self.batches.hold_of(number).is_some()
                    && now >= lease.notice_at(&entry.options) =>
            {
                let why = lease.end(&entry.options);
                self.lapse(number, why);
            }
            State::Offered(_) => {
                self.miss(number);
            }
            State::Lost { .. } => {
                self.hand_back(number, Some(now));
            }
            State::Leaked { .. } => {
                self.forget_batch(number);
                self.table.change(number, |entry| entry.state = entry.gone(now));
            }
            _ => {}
        }
    }
}
