//! Grants: how a grant that the server reports, in a response or a message, is checked and offered
//! to the caller.

use std::time::Duration;

use super::{Core, ReportedBatch};
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::{Caller, Entry, Mirror, Refusal, State};
use crate::node::lease::{self, Lease};
use crate::node::moment::Moment;
use crate::terms::Terms;
use crate::token::FencingToken;
use crate::{Command, Grant, Mode, Reply};

/// How a grant was reported: by a response, or by a message. The lease is counted from the request
/// of a response, and from [`Entry::anchor`] for a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum GrantSource {
    /// The response to the member's acquire, which was sent at this time.
    AcquireResponse(Moment),
    /// The response to any other request, such as a touch or another member's release, which was
    /// sent at this time.
    OtherResponse(Moment),
    /// A message from the server.
    Message,
}

/// Whether a reported hold can be offered to its caller when the report arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// The hold can be offered at once.
    Certain,
    /// The hold may have ended since or may end soon, so the server must confirm it before the
    /// offer.
    Doubted,
    /// The lease may be over, so the member is touched: this request returns its state.
    TooLate,
}

impl GrantSource {
    /// Returns true if the report may be out of date, because the member may have lost this hold
    /// before the report arrived. For a response, this is the case only if the hold was
    /// force-released after the request. A message may be late by any time.
    pub(super) fn may_be_late<P: Mirror>(self, entry: &Entry<P>) -> bool {
        match self {
            Self::AcquireResponse(sent) | Self::OtherResponse(sent) => entry.is_revoked_since(sent),
            Self::Message => entry.revoked.is_some() || entry.unheard,
        }
    }
}

impl<P: Mirror> Core<P> {
    /// Handles the parts of a reply that are the same for all commands: logs skipped waiters, and
    /// handles the grants. If the command reached its work limit before it had granted all it
    /// could, sends a touch, by which the server continues.
    pub(super) fn absorb<T>(&mut self, request: &StoreRequest, reply: &Reply<T>) {
        if reply.skipped > 0 {
            let lock = request.lock.clone();
            let waiters = reply.skipped;
            self.push(Effect::Observe(Note::Skipped { lock, waiters }));
        }
        for grant in &reply.grants {
            self.grant_in_reply(request, grant);
        }
        if reply.more {
            // A touch without members is enough, because the server knows what is left.
            let command = Command::Touch { members: Vec::new() };
            let request = self.request(request.lock.clone(), command, true);
            self.background(request);
        }
    }

    /// Handles a grant in a reply: a member of this node holds the lock. If no attempt waits for it
    /// any more, the hold is released.
    pub(super) fn grant_in_reply(&mut self, request: &StoreRequest, grant: &Grant) {
        let Grant { member, token, left_ms, batch } = grant;
        let Some(number) = self.number(member) else { return };
        let answered = match &request.command {
            Command::Acquire { members, .. } => members.as_slice(),
            _ => &[],
        };
        if !batch.is_empty() {
            let (hold, numbers) = (Some((&request.lock, member)), batch.as_slice());
            let reported =
                ReportedBatch { hold, answered, numbers, token: *token, left_ms: *left_ms };
            return self.granted_batch(reported, GrantSource::OtherResponse(request.sent));
        }
        if self.table.get(number).is_some_and(|entry| !matches!(entry.state, State::Over)) {
            let source = match answered.contains(member) {
                true => GrantSource::AcquireResponse(request.sent),
                false => GrantSource::OtherResponse(request.sent),
            };
            return self.granted(number, *token, *left_ms, source);
        }
        // Batch members count as released from the send time of their release. A hold in the
        // response to this release is newer: a server that has taken over still had the member in
        // the queue. So count the response as sent just after the release.
        let is_release = matches!(request.command, Command::Release { .. } | Command::Leave { .. });
        let sent = if is_release { request.sent + Duration::from_micros(1) } else { request.sent };
        if self.recent_releases.since(number, sent) {
            // The release has overtaken this response, so nothing is left to release.
            return;
        }
        // The table has no attempt for this member, or only a refusal that the caller has not
        // taken, and no copy of its acquire is in flight.
        self.give_back_if_over(&request.lock, member.clone());
    }

    /// Schedules a leave, the request that removes a member, for a member that the server may still
    /// have, although the table has no entry for it.
    pub(super) fn give_back(&mut self, lock: LockName, member: Member) {
        let (now, number) = (self.now, member.number());
        self.insert_orphan(lock, member);
        self.table.change(number, |entry| entry.state = entry.leaving(now));
    }

    /// Does the same as [`give_back`](Self::give_back), also for a member whose entry is over: its
    /// caller has not taken the refusal yet, so the entry must stay. Does nothing in other states,
    /// and then returns false.
    pub(super) fn give_back_if_over(&mut self, lock: &LockName, member: Member) -> bool {
        let (now, number) = (self.now, member.number());
        match self.table.get(number).map(|entry| &entry.state) {
            None => self.give_back(lock.clone(), member),
            Some(State::Over) => {
                self.table.change(number, |entry| entry.state = entry.leaving(now));
            }
            Some(_) => return false,
        }
        true
    }

    /// Adds an entry for an orphan: a member on the server without an attempt here. The caller must
    /// set the state.
    pub(super) fn insert_orphan(&mut self, lock: LockName, member: Member) {
        let now = self.now;
        let number = member.number();
        let lease = Duration::from_millis(member.lease_ms());
        let options = Terms { lease, ..Terms::default() };
        let orphan = Entry {
            state: State::Over,
            caller: Caller::Gone,
            ..Entry::new(lock, member, options, Mode::Try, now, P::default())
        };
        self.table.insert(number, orphan);
    }

    /// Handles a grant to a member of this node. Offers the lock at once, or has the hold confirmed
    /// first if the report may be out of date. If the lease may be over, touches the member
    /// instead, to learn its state. `left_ms` is the remaining lease: it is counted from the
    /// request whose response reports the grant; for a message, from [`Entry::anchor`].
    pub(super) fn granted(
        &mut self,
        number: u64,
        token: FencingToken,
        left_ms: u64,
        source: GrantSource,
    ) {
        let now = self.now;
        let Some(entry) =
            self.table.granted(number, matches!(source, GrantSource::AcquireResponse(_)))
        else {
            return;
        };
        if !matches!(entry.state, State::Asking { .. } | State::Parked { .. } | State::Waiting) {
            // The grant is known already, or the member is leaving.
            return;
        }
        let left = Duration::from_millis(left_ms);
        let is_message = matches!(source, GrantSource::Message);
        let anchor = match source {
            GrantSource::AcquireResponse(sent) | GrantSource::OtherResponse(sent) => sent,
            GrantSource::Message => entry.anchor,
        };
        // If two acquire copies have run, the message may report an old grant: the first copy was
        // granted, the claim expired, and the second copy queued the member again.
        let may_be_old = is_message && entry.ambiguous;
        let claim = lease::claim(&entry.options);
        let is_doubted = may_be_old || source.may_be_late(entry);
        let wants = entry.caller == Caller::Waits;
        match self.certainty(source, anchor, left, claim, is_doubted) {
            Certainty::Certain => return self.offer(number, token, anchor, left, is_message),
            Certainty::TooLate => {
                self.table.change(number, |entry| entry.state = State::Waiting);
                let lock = self.table.entries()[&number].lock.clone();
                self.table.touch_by(&lock, now);
            }
            Certainty::Doubted => {
                self.table.change(number, |entry| {
                    entry.state = State::Confirming { token, handed_over: is_message };
                });
                self.confirm(number);
            }
        }
        if !wants {
            self.withdraw(number);
        }
    }

    /// Returns whether a reported hold can be offered, if its lease lasts `left` from `anchor` on.
    /// `claim` is the lease of these members for a lock that is handed off: with less than half of
    /// it left, the hold must be confirmed. `is_doubted` is true if the entries of the members show
    /// that the report may be out of date.
    pub(super) fn certainty(
        &self,
        source: GrantSource,
        anchor: Moment,
        left: Duration,
        claim: Duration,
        is_doubted: bool,
    ) -> Certainty {
        let certain = lease::certain_until(anchor, left).since(self.now);
        if certain.is_zero() {
            return Certainty::TooLate;
        }
        let is_short = certain < claim / 2;
        let is_forgeable = matches!(source, GrantSource::Message) && self.rules.confirm_grants;
        let is_doubted = is_doubted || anchor < self.doubted_before;
        match is_short || is_forgeable || self.rules.confirms_writes || is_doubted {
            true => Certainty::Doubted,
            false => Certainty::Certain,
        }
    }

    /// Sends a renewal that must confirm a hold before it is offered to a caller. Called if the
    /// report of the grant may be out of date, or if the lease ends soon.
    pub(super) fn confirm(&mut self, number: u64) {
        let Some(entry) = self.table.get(number) else { return };
        let command = Command::Confirm { member: entry.member.clone() };
        let request = self.request(entry.lock.clone(), command, true);
        self.background(request);
    }

    /// Handles a grant or a renewal, sent at `sent`, that the store ran, but did not confirm on
    /// replicas or on disk.
    /// A renewal is treated as failed. A grant is refused: if a failover or a power loss undoes the
    /// write, the lock can be granted to another node while a guard here still relies on it.
    pub(super) fn refuse_unconfirmed(&mut self, sent: Moment, member: &Member, error: &StoreError) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let refusal = Refusal::Store(error.clone());
        match self.table.entries()[&number].state {
            State::ConfirmingBatch => self.refuse_first(number, refusal),
            State::Confirming { .. } => {
                self.refuse(number, refusal);
                self.table.change(number, |entry| entry.state = entry.leaving(now));
            }
            _ => self.renewal_failed(sent, member, error),
        }
    }

    pub(super) fn offer(
        &mut self,
        number: u64,
        token: FencingToken,
        anchor: Moment,
        left: Duration,
        handed_over: bool,
    ) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        let lease = Lease::granted(&entry.options, token, now, anchor, left);
        let lock = entry.lock.clone();
        let waited = now.since(entry.started);
        let wants = entry.caller == Caller::Waits;
        let mirror = entry.mirror.clone();
        self.table.change(number, |entry| entry.state = State::Offered(lease));
        if !wants {
            return self.withdraw(number);
        }
        self.push(Effect::Wake(mirror.clone()));
        self.push(Effect::Observe(Note::Granted { lock, waited, handed_over, of: mirror }));
    }

    /// Releases a lock that the caller did not take in time. Once the caller comes, the attempt
    /// requests the lock again under the next member id.
    pub(super) fn miss(&mut self, number: u64) {
        let now = self.now;
        let next = self.next_round_if_any(number);
        self.hand_back(number, Some(now));
        self.missed(next);
    }

    /// Counts and logs that the caller of an attempt did not take the granted lock in time. `next`
    /// is the id under which the attempt continues; `None` if it has ended. On a closed node, the
    /// attempt ends now.
    pub(super) fn missed(&mut self, next: Option<u64>) {
        self.table.count_lost_position();
        let Some(next) = next else { return };
        if let Some(lock) = self.table.get(next).map(|entry| entry.lock.clone()) {
            self.push(Effect::Observe(Note::Missed { lock }));
        }
        if self.is_closed {
            // Nothing may begin after closing, because a new acquire could get the lock after the
            // node has reported that nothing is left.
            self.set_refusal(next, Refusal::Kind(LockErrorKind::Closed));
            self.withdraw(next);
        }
    }
}
