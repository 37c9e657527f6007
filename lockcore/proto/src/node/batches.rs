//! Batches: members of this node with a single hold, granted to them together. The node serves the
//! members in turn, without a request to the server for each.
//!
//! # Implementation notes
//!
//! - The server stores the hold under the batch's first member. Here, the entry with that id
//!   becomes the batch hold: it is renewed, lost and released as such. The first member's attempt
//!   continues under the next id, which is never sent to the server.
//! - A member is offered the lock only after the previous member has released it or the previous
//!   offer has expired. If less than half a claim is left, the hold is renewed first.
//! - A guard is certain for as long as the batch hold, because its lease is a copy that is extended
//!   together with the hold.
//! - Cancelled members and members with expired offers are skipped without a command. A leave
//!   removes a member from the batch, on the server as on the node, and never ends the other
//!   members' hold. The hold is released once, after the last member, under the first member's
//!   name. If a copy of an acquire may still run, this release is a leave of all members, to write
//!   tombstones as well.
//! - A lost hold is offered to no further member. Unserved members wait again under their own ids.
//!   After a cut (`cut_batch`), an unserved first member requests the lock in the next round.
//! - A member that releases the lock before the batch has ended learns later whether the hold still
//!   existed: from the response to the first renewal or release sent afterwards. Only one renewal
//!   is in flight at a time, so the response serves all members that have released meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::Core;
use super::grants::{Certainty, GrantSource};
use super::holds::CONFIRM_RETRY;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::batch::{Batch, ReportedBatch, members_of};
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::{Caller, Entry, LEAVE_RETRY_MS, Mirror, Refusal, Request, State};
use crate::node::lease::{self, Lease};
use crate::node::moment::Moment;
use crate::terms::Renewal;
use crate::token::FencingToken;
use crate::{Command, Demand, Grant, Leaving, Mode, Released};

/// The weight of an exclusive hold, which means that it takes the whole name. A [`Command::Reduce`]
/// to this weight changes no weight. It only ends the batch early, with the unserved members back
/// in the queue.
const ALL_WEIGHT: NonZeroU32 = NonZeroU32::new(crate::ALL).expect("the number is not zero");
/// Minimum time between two requests that remove members from a batch on the server because their
/// turn is over.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
const UNPROVEN: &str =
    "the lease expired before a renewal could confirm that the hold existed at the release";

impl<P: Mirror> Core<P> {
    fn is_waiting(&self, number: u64) -> bool {
        self.table.get(number).is_some_and(|entry| {
            matches!(entry.state, State::Asking { .. } | State::Parked { .. } | State::Waiting)
        })
    }

    /// Returns true if this member takes part in a batch that includes it: it waits, or an earlier
    /// grant is being confirmed.
    fn may_join(&self, number: u64) -> bool {
        let is_confirming = |entry: &Entry<P>| matches!(entry.state, State::Confirming { .. });
        self.is_waiting(number) || self.table.get(number).is_some_and(is_confirming)
    }

    pub(super) fn is_in_batch(&self, number: u64) -> bool {
        self.table.get(number).is_some_and(|entry| matches!(entry.state, State::InBatch))
    }

    /// Returns true if this member is the first of a batch: the server stores the batch's hold
    /// under it.
    pub(super) fn is_batch(&self, member: &Member) -> bool {
        self.batches.contains(member.number()) && member.is_of(&self.node)
    }

    /// Returns true if an attempt with this request may be served in a batch, a hold shared with
    /// other waiters of this node. It must be an attempt that waits for an exclusive hold without a
    /// fixed end.
    pub(super) fn is_for_batch(&self, Request { options, mode, demand, .. }: &Request) -> bool {
        if self.rules.batch_limit < 2 {
            return false;
        }
        // A hold with a fixed end would end for all later members of the batch, so it is served
        // alone.
        let ends_by_itself = options.renewal == Renewal::Fixed || options.max_hold.is_some();
        *demand == Demand::EXCLUSIVE && *mode == Mode::Wait && !ends_by_itself
    }

    /// Returns true if a leave of the members in `leaving` ends the wait or the hold of `member`.
    /// The hold of a batch ends only if all its members leave.
    pub(super) fn leaves_with(&self, member: &Member, leaving: &[Leaving]) -> bool {
        let leaves = |number: &u64| leaving.iter().any(|one| one.member.number() == *number);
        let batch = self.batches.get(member.number()).filter(|_| member.is_of(&self.node));
        batch.is_none_or(|batch| batch.members.iter().all(leaves))
    }

    /// Returns true if the caller of this attempt still waits for the lock.
    fn is_wanted(&self, number: u64) -> bool {
        self.table.get(number).is_some_and(|entry| entry.caller == Caller::Waits)
    }

    /// Returns the id under which the server stores a member's hold: for a batch member, the id of
    /// the batch hold; for any other member, its own id.
    pub fn held_as(&self, number: u64) -> u64 {
        self.batches.hold_of(number).unwrap_or(number)
    }

    /// Handles the report that the server granted a hold to a batch of this node's members. Unless
    /// the batch is known already, offers the lock to the first member that waits. If the report
    /// may be out of date, a renewal must confirm the hold first. If the lease may be over, the
    /// members are touched instead, to learn their state. A hold for which no member waits is
    /// released.
    pub(super) fn granted_batch(&mut self, reported: ReportedBatch<'_>, source: GrantSource) {
        let waiting = reported.numbers.iter().copied().filter(|number| self.may_join(*number));
        let waiting: Vec<u64> = waiting.collect();
        let is_message = matches!(source, GrantSource::Message);
        let one = waiting.first().and_then(|one| self.table.get(*one));
        let (lock, name) = match (reported.hold, one, reported.numbers) {
            (Some((lock, name)), ..) => (lock.clone(), name.clone()),
            (None, Some(one), [first, ..]) => (one.lock.clone(), one.member.renumbered(*first)),
            // The message is about members that no longer wait. They have left, and the last leave
            // has handed off the lock.
            _ => return,
        };
        let first = name.number();
        let may_begin = match self.table.get(first).map(|entry| &entry.state) {
            Some(State::Asking { .. } | State::Parked { .. } | State::Waiting) => {
                reported.numbers.contains(&first)
            }
            // The first member was cancelled before the grant was known, or released before a
            // server took over. The others have the hold once it is stored under another member:
            // a late copy of the first member's leave could end it otherwise.
            None | Some(State::Leaving { .. } | State::Over) if !self.batches.contains(first) => {
                if !waiting.is_empty() {
                    return self.leave_batch(&lock, &name, reported.numbers);
                }
                true
            }
            // The batch is known already, or the response to the first member's confirmation will
            // report the batch.
            _ => false,
        };
        if !may_begin {
            return self.found_in_batch(first, &waiting);
        }
        if waiting.is_empty() {
            // No member waits, so release the hold. The leave of the first member does not end it,
            // because other members share it. If the hold was released already, this reply is out
            // of date, and there is nothing to do.
            return match source {
                GrantSource::OtherResponse(sent) if self.recent_releases.since(first, sent) => {}
                _ => self.give_back_batch(lock, name, reported.numbers),
            };
        }
        let entries = || waiting.iter().filter_map(|number| self.table.get(*number));
        // The grant is newer than the last report of a waiting member (the anchor), so count the
        // lease from the latest anchor. Skip ambiguous members: a second copy of the acquire may
        // have queued them after the grant.
        let anchors = entries().filter(|entry| !entry.ambiguous).map(|entry| entry.anchor);
        let (anchor, may_be_old) = match source {
            GrantSource::AcquireResponse(sent) | GrantSource::OtherResponse(sent) => (sent, false),
            GrantSource::Message => {
                let latest = anchors.max();
                (latest.unwrap_or_default(), latest.is_none())
            }
        };
        let left = Duration::from_millis(reported.left_ms);
        let claim = Duration::from_millis(crate::claim_ms(name.lease_ms()));
        let is_late = entries().any(|entry| source.may_be_late(entry));
        let is_doubted = may_be_old || is_late;
        let certainty = self.certainty(source, anchor, left, claim, is_doubted);
        if certainty == Certainty::TooLate && !may_be_old {
            let now = self.now;
            return self.table.touch_by(&lock, now);
        }
        self.table.granted(first, reported.answers(first));
        self.begin_batch(lock, name, reported.numbers, is_message);
        self.list_batch(first, reported);
        match certainty {
            Certainty::Certain => self.serve_batch(first, anchor, left),
            Certainty::Doubted | Certainty::TooLate => self.confirm(first),
        }
    }

    /// Removes from a batch the first member `name`, which no longer waits, and the members behind
    /// it that do not wait either. The response reports the batch again, stored under the next
    /// member; if it is lost, the response to a touch does.
    fn leave_batch(&mut self, lock: &LockName, name: &Member, numbers: &[u64]) {
        let behind = numbers.iter().copied().take_while(|number| !self.may_join(*number));
        let done: Vec<u64> = std::iter::once(name.number()).chain(behind).collect();
        for number in done {
            self.give_back_if_over(lock, name.renumbered(number));
            let is_due_later =
                |entry: &Entry<P>| matches!(entry.state, State::Leaving { due: Some(_), .. });
            // A leave that is to be repeated later would keep the hold idle until then.
            if self.table.get(number).is_some_and(is_due_later) {
                self.make_due(number);
            }
        }
        self.table.touch_by(lock, self.now + CONFIRM_RETRY);
    }

    /// Records that the server has a known hold as the hold of a batch, with these members waiting
    /// here. This is news after a failover: the hold began alone, and the new server had the member
    /// in the queue; or the new server does not know that the batch was cut.
    fn found_in_batch(&mut self, first: u64, waiting: &[u64]) {
        self.table.change(first, |entry| {
            if matches!(entry.state, State::Offered(_) | State::Held(_)) {
                entry.shares_with = waiting.into();
            }
        });
        let is_served =
            self.table.get(first).is_some_and(|entry| matches!(entry.state, State::Serving(_)));
        if let Some(batch) = self.batches.get_mut(first).filter(|_| is_served) {
            batch.is_cut |= waiting.iter().any(|number| !batch.members.contains(number));
        }
    }

    /// Records a new batch. `name` is the member under which the server stores the hold, so its
    /// entry becomes the entry of the hold; it is added if there is none. `handed_over` is true if
    /// the grant arrived as a message. Afterwards, the caller must confirm the hold or begin to
    /// serve it.
    fn begin_batch(&mut self, lock: LockName, name: Member, members: &[u64], handed_over: bool) {
        let first = name.number();
        let of_first = self.is_waiting(first).then(|| self.next_round(first));
        if self.table.get(first).is_none() {
            self.insert_orphan(lock.clone(), name);
        }
        self.table.change(first, |entry| entry.state = State::ConfirmingBatch);
        let listed = members.to_vec();
        let (members, rest, returned) = (members_of(first, members), VecDeque::new(), Vec::new());
        let (served, shown) = (None, self.now);
        let (is_cut, cut) = (false, Vec::new());
        let batch = Batch {
            lock,
            members,
            listed,
            served,
            rest,
            returned,
            of_first,
            shown,
            handed_over,
            is_cut,
            cut,
        };
        self.batches.insert(first, batch);
    }

    /// Records the members of a batch and their tokens, as reported by the server. A member of an
    /// earlier report that is missing now is no longer in the batch, so it queues again at the
    /// tail.
    fn list_batch(&mut self, first: u64, reported: ReportedBatch<'_>) {
        let of_first = self.batches.get(first).and_then(|batch| batch.of_first);
        let mut listed = VecDeque::new();
        for (index, number) in reported.numbers.iter().copied().enumerate() {
            let number = if number == first { of_first.unwrap_or(first) } else { number };
            let is_of_first = of_first == Some(number);
            if !(is_of_first || self.may_join(number) || self.is_in_batch(number)) {
                continue;
            }
            self.table.granted(number, reported.answers(number));
            self.table.change(number, |entry| entry.state = State::InBatch);
            self.batches.join(number, first);
            match self.is_wanted(number) {
                true => listed.push_back((number, reported.token.plus(index))),
                false => self.forget_member(number),
            }
        }
        let Some(batch) = self.batches.get_mut(first) else { return };
        batch.members = members_of(first, reported.numbers);
        batch.listed = reported.numbers.to_vec();
        let mut unlisted = std::mem::replace(&mut batch.rest, listed);
        unlisted.retain(|(number, _)| !batch.rest.iter().any(|(listed, _)| listed == number));
        for (number, _) in unlisted {
            self.requeue(number);
        }
    }

    /// Begins to serve a batch whose hold needs no further confirmation: offers the lock to the
    /// first member. The lease of the hold lasts `left` from `anchor` on.
    fn serve_batch(&mut self, first: u64, anchor: Moment, left: Duration) {
        let now = self.now;
        self.table.change(first, |entry| {
            // The members have their own tokens.
            let lease = Lease::granted(&entry.options, FencingToken::NONE, now, anchor, left);
            entry.state = State::Serving(lease);
        });
        self.serve(first, Some(now), true);
    }

    /// Returns the number of batch members whose turn is over, but which the server still counts as
    /// waiting for this lock. Queue positions reported by the server are too high by this number.
    /// Returns 0 if the batch hold may be lost.
    pub(super) fn done_in_batch(&self, lock: &LockName) -> u64 {
        let Some(first) = self.batches.of_lock(lock) else { return 0 };
        let is_held = self.table.get(first).is_some_and(|entry| {
            matches!(entry.state, State::Serving(_) | State::Releasing { .. })
        });
        let batch = self.batches.get(first).filter(|_| is_held);
        batch.map_or(0, |batch| batch.counted_too_many() as u64)
    }

    /// Returns true if another member of the batch waits for its turn. First removes cancelled
    /// members from the front of the list.
    fn has_next(&mut self, first: u64) -> bool {
        let table = &self.table;
        let Some(batch) = self.batches.get_mut(first) else { return false };
        while let Some((number, _)) = batch.rest.front()
            && !table.get(*number).is_some_and(|entry| matches!(entry.state, State::InBatch))
        {
            batch.rest.pop_front();
        }
        !batch.rest.is_empty()
    }

    /// Offers the lock to the next member of a batch. Must be called only while no member has the
    /// lock or an offer of it. If the hold ends soon or may have ended unnoticed, it is renewed
    /// first, and the response serves the member. If no member is left, marks the hold for release
    /// and returns true: the core sends the release at the time `due`, or the caller sends it if
    /// `due` is `None`.
    pub(super) fn serve_next(&mut self, first: u64, due: Option<Moment>) -> bool {
        self.serve(first, due, false)
    }

    /// Does the same as [`serve_next`](Self::serve_next). `is_renewed` is true if the hold has just
    /// been granted or renewed. With a short lease and slow responses, it may end soon even then,
    /// and a further renewal would gain nothing.
    fn serve(&mut self, first: u64, due: Option<Moment>, is_renewed: bool) -> bool {
        let now = self.now;
        if !self.has_next(first) {
            self.table.change(first, |entry| entry.state = State::Releasing { due, since: None });
            return true;
        }
        let Some(entry) = self.table.get(first) else { return false };
        let State::Serving(lease) = &entry.state else { return false };
        let left = lease.until().since(now);
        let is_short = !is_renewed && left < lease::claim(&entry.options) / 2;
        if is_short || self.is_doubted(lease.asked) {
            self.renew_batch_now(first);
            return false;
        }
        let lease = lease.clone();
        let Some(batch) = self.batches.get_mut(first) else { return false };
        let Some((number, token)) = batch.rest.pop_front() else { return false };
        batch.served = Some(number);
        let handed_over = batch.handed_over;
        let Some(entry) = self.table.get(number) else { return false };
        let (lock, mirror) = (entry.lock.clone(), entry.mirror.clone());
        let waited = now.since(entry.started);
        self.table
            .change(number, |entry| entry.state = State::Offered(lease.of_member(token, now)));
        self.push(Effect::Wake(mirror.clone()));
        self.push(Effect::Observe(Note::Granted { lock, waited, handed_over, of: mirror }));
        false
    }

    /// Sends a renewal of the batch hold with this event instead of the next tick, because a caller
    /// waits for the response. Does nothing while a renewal is in flight. If too many are in flight
    /// to this server, the renewal is sent as soon as possible.
    fn renew_batch_now(&mut self, first: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(first) else { return };
        let State::Serving(Lease { renew_at: Some(_), .. }) = entry.state else { return };
        if self.room_to_renew(self.table.lane(entry.lane)) > 0 {
            return self.renew(first);
        }
        self.table.change(first, |entry| {
            if let State::Serving(lease) = &mut entry.state {
                lease.renew_at = Some(now);
            }
        });
    }

    /// Ends the turn of the batch member `number`, whether or not its caller took the lock, and
    /// offers the lock to the next member. Returns true if there is none: then the hold is released
    /// at `due`, as in [`serve_next`](Self::serve_next).
    pub(super) fn pass_on(&mut self, first: u64, number: u64, due: Option<Moment>) -> bool {
        let guard = self.table.get(number).and_then(|entry| match &entry.state {
            State::Held(lease) => Some((lease.since, entry.mirror.clone())),
            _ => None,
        });
        self.forget_member(number);
        if due.is_none() {
            // The caller sends the release only after this event has sent other requests. A leave
            // sent now would run first and could end the hold, and the release would then report no
            // hold. So delay the leave.
            let later = self.now + Duration::from_millis(LEAVE_RETRY_MS.into());
            self.table.change(number, |entry| {
                if let State::Leaving { due, .. } = &mut entry.state {
                    *due = Some(later);
                }
            });
        }
        if let Some(batch) = self.batches.get_mut(first) {
            batch.served = None;
        }
        let is_last = self.serve_next(first, due);
        if let (true, Some((began, mirror))) = (is_last, guard) {
            // If the release finds no hold, this guard has lost it.
            self.table.change(first, |entry| {
                if let State::Releasing { since, .. } = &mut entry.state {
                    *since = Some(began);
                }
                entry.mirror = mirror;
            });
        }
        is_last
    }

    /// Ends the turn of a guard whose caller wants to know whether the hold still existed. If
    /// another member is next, sends a renewal and returns `None`: the response answers the
    /// question, and [`Mirror::returned`] reports the answer. Otherwise returns the id of the batch
    /// hold, for the caller to release.
    pub(super) fn return_to_batch(&mut self, first: u64, number: u64) -> Option<u64> {
        let mirror = self.table.get(number).map(|entry| entry.mirror.clone());
        if self.pass_on(first, number, None) {
            return Some(first);
        }
        if let (Some(mirror), Some(batch)) = (mirror, self.batches.get_mut(first)) {
            batch.returned.push((self.now, mirror));
            self.renew_batch_now(first);
        }
        None
    }

    /// Handles the outcome of a release: a response or an error. If `member` is the first of a
    /// batch, also reports the outcome to guards that passed the hold to the next member at `sent`
    /// or earlier.
    pub(super) fn batch_released(
        &mut self,
        member: &Member,
        outcome: Result<Released, &StoreError>,
        sent: Moment,
    ) {
        if self.is_batch(member) {
            self.notify_returned(member.number(), outcome, sent);
        }
    }

    /// Removes a member from its batch here, because its turn is over or it was cancelled. On the
    /// server, it stays in the batch until a later request removes it. If its acquire may still run
    /// there, as after a time-out, the node also sends a leave. This stores a tombstone, by which
    /// the server refuses the late acquire.
    fn forget_member(&mut self, number: u64) {
        let now = self.now;
        self.batches.leave(number);
        // The first member has no entry any more if it was cancelled before a confirmation.
        let Some(entry) = self.table.get(number) else { return };
        let (lock, member) = (entry.lock.clone(), entry.member.clone());
        self.table.change(number, |entry| entry.state = entry.gone(now));
        // A server that takes over may still have the member queued.
        self.remember_release(Some(number), &lock, &member);
    }

    /// Cancels a batch member whose turn has not come yet. If no other member has the lock or waits
    /// for it, releases the batch's hold.
    pub(super) fn withdraw_from_batch(&mut self, first: u64, number: u64) {
        let now = self.now;
        self.forget_member(number);
        if self.batches.get(first).is_some_and(|batch| batch.served.is_none())
            && !self.has_next(first)
        {
            self.serve_next(first, Some(now));
        }
    }

    /// Handles the response to the renewal that was to confirm a batch hold. If the server has the
    /// hold, `left` is the lease from `sent` on, `grant` lists the present members, and the first
    /// of them is served. Otherwise the batch is dissolved: its members count as waiting again. If
    /// the hold may have been force-released since, it is confirmed again.
    pub(super) fn batch_confirmed(
        &mut self,
        first: u64,
        sent: Moment,
        left: Duration,
        grant: Option<&Grant>,
    ) {
        let now = self.now;
        let Some(entry) = self.table.get(first) else { return };
        let is_certain = lease::certain_until(sent, left) > now;
        if is_certain && self.may_be_revoked(entry, sent) {
            return match self.too_soon(sent) {
                Some(at) => self.dissolve(first, at),
                None => self.confirm(first),
            };
        }
        let Some(Grant { token, left_ms, batch, .. }) = grant.filter(|_| is_certain) else {
            return self.dissolve(first, now);
        };
        // The reply may describe a newer hold than the reported hold, so take members and token
        // from the reply.
        let numbers = if batch.is_empty() { &[first] } else { batch.as_slice() };
        let reported =
            ReportedBatch { hold: None, answered: &[], numbers, token: *token, left_ms: *left_ms };
        self.list_batch(first, reported);
        self.serve_batch(first, sent, left);
    }

    /// Removes members whose turn is over from the batch on the server, at most once per
    /// [`SHOWN_EVERY`]. This serves only people who inspect the lock: they see the first member in
    /// the batch as the holder.
    pub(super) fn show_batch(&mut self, first: u64) {
        let now = self.now;
        let Some(lane) = self.table.get(first).map(|entry| entry.lane) else { return };
        let has_room = self.room_to_leave(self.table.lane(lane)) > 0;
        let Some(batch) = self.batches.get_mut(first) else { return };
        if !has_room || now.since(batch.shown) < SHOWN_EVERY || batch.served.is_none() {
            return;
        }
        batch.shown = now;
        let done: Vec<u64> = batch.done().collect();
        batch.listed.retain(|number| !done.contains(number));
        let Some(Entry { lock, member, .. }) = self.table.get(first) else { return };
        let leaving = |number: u64| Leaving {
            member: member.renumbered(number),
            ambiguous: self.table.get(number).is_some_and(Entry::may_run_again),
            served: true,
        };
        let leaving: Vec<_> = done.into_iter().map(leaving).collect();
        if !leaving.is_empty() {
            self.leave(BTreeMap::from([(lock.clone(), leaving)]));
        }
    }

    /// Handles the response to the renewal of a batch hold, sent at `sent`. `left` is the new
    /// lease; zero if the server has no such hold.
    pub(super) fn batch_renewed(&mut self, first: u64, sent: Moment, left: Duration) {
        let now = self.now;
        let (chance, doubted_before) = (self.chance(first), self.doubted_before);
        let Some(State::Serving(lease)) = self.table.get(first).map(|entry| &entry.state) else {
            return;
        };
        let is_late = now >= lease.until();
        if left.is_zero() {
            self.notify_returned(first, Ok(Released::NotHeld), now);
            return self.lose_batch(first, "the server no longer has the hold");
        }
        if is_late {
            self.notify_returned(first, Ok(Released::Released), sent);
            return self.lapse(first, "the renewal came too late");
        }
        let extended = self.table.change(first, |entry| {
            let State::Serving(lease) = &mut entry.state else { return None };
            lease.extend(&entry.options, sent, left, chance);
            lease.renew_if_doubted(now, doubted_before);
            Some((lease.clone(), entry.lock.clone()))
        });
        let Some((lease, lock)) = extended.flatten() else { return };
        self.extend_served_lease(first, &lease);
        self.push(Effect::Observe(Note::Renewed { lock }));
        self.notify_returned(first, Ok(Released::Released), sent);
        let Some(batch) = self.batches.get(first) else { return };
        let (served, is_awaited) = (batch.served, !batch.returned.is_empty());
        match served {
            Some(served) => self.report_waits_behind(served),
            None => {
                self.serve(first, Some(now), true);
            }
        }
        if is_awaited {
            self.renew_batch_now(first);
        }
    }

    /// Extends the lease of the member whose turn it is, after the batch's hold `hold` was renewed.
    fn extend_served_lease(&mut self, first: u64, hold: &Lease) {
        let Some(served) = self.batches.get(first).and_then(|batch| batch.served) else { return };
        self.table.change(served, |entry| {
            if let State::Offered(lease) | State::Held(lease) = &mut entry.state {
                lease.copy_deadline(hold);
            }
        });
    }

    /// Handles a failed renewal of a batch hold: schedules the next one. Guards that released the
    /// lock earlier, and wait to learn whether the hold existed, get the error.
    pub(super) fn batch_not_renewed(&mut self, first: u64, error: &StoreError) {
        let now = self.now;
        let retried = self.table.change(first, |entry| {
            let State::Serving(lease) = &mut entry.state else { return None };
            lease.retry(now);
            Some((lease.clone(), entry.lock.clone()))
        });
        let Some((lease, lock)) = retried.flatten() else { return };
        self.extend_served_lease(first, &lease);
        self.push(Effect::Observe(Note::RenewalFailed { lock, error: error.clone() }));
        self.notify_returned(first, Err(error), now);
    }

    /// Notifies all guards that passed the hold to the next batch member at `sent` or earlier.
    /// `outcome` says whether the server still had the hold, or is the error because of which this
    /// is unknown.
    pub(super) fn notify_returned(
        &mut self,
        first: u64,
        outcome: Result<Released, &StoreError>,
        sent: Moment,
    ) {
        let Some(batch) = self.batches.get_mut(first) else { return };
        let notified: Vec<(Moment, P)> =
            batch.returned.extract_if(.., |(at, _)| *at <= sent).collect();
        for (_, mirror) in notified {
            mirror.returned(outcome.map_err(StoreError::clone));
            self.push(Effect::Wake(mirror));
        }
    }

    /// Notifies all guards that passed the hold to the next batch member that nothing will show any
    /// more whether the server still had the hold then.
    pub(super) fn notify_unproven(&mut self, first: u64) {
        if self.batches.get(first).is_some_and(|batch| !batch.returned.is_empty()) {
            let error = StoreError::refused(LockErrorKind::Unavailable, UNPROVEN);
            self.notify_returned(first, Err(&error), self.now);
        }
    }

    /// Dissolves a batch whose hold may not exist any more, while no guard relies on it. The
    /// members count as waiting in the queue again. A touch at the time `at`, a request for their
    /// state, shows whether they are.
    pub(super) fn dissolve(&mut self, first: u64, at: Moment) {
        let now = self.now;
        let Some(batch) = self.forget_batch(first) else { return };
        let lock = self.table.get(first).map(|entry| entry.lock.clone());
        let others = lock.as_ref().and_then(|lock| self.table.touch_due(lock));
        // The first member waits under its original id again, or leaves if it was cancelled.
        let of_first = batch.of_first.filter(|number| self.is_in_batch(*number));
        let moved = of_first.and_then(|number| {
            self.table.change(number, |entry| {
                entry.state = State::Over;
                entry.take_caller()
            })
        });
        self.table.change(first, |entry| match moved {
            Some((caller, mirror)) => {
                (entry.caller, entry.mirror) = (caller, mirror);
                entry.state = State::Waiting;
                entry.revoked = Some(now);
            }
            None => {
                entry.caller = Caller::Gone;
                entry.state = entry.leaving(now);
            }
        });
        for (number, _) in batch.rest {
            self.batches.leave(number);
            if self.is_in_batch(number) {
                self.table.change(number, |entry| {
                    entry.state = State::Waiting;
                    // Reports of this hold may still arrive, and must not be taken for a later
                    // hold.
                    entry.revoked = Some(now);
                });
            }
        }
        if let Some(lock) = lock {
            // Set, because the last report of these members is old: their touch would be due now.
            self.table.touch_at(&lock, others.map_or(at, |others| others.min(at)));
        }
    }

    /// Ends a batch whose hold is lost here, although the server may still have it. The guard that
    /// has the lock is notified with the reason `why`. Unserved members count as waiting in the
    /// queue again, until a touch returns their state.
    pub(super) fn lose_batch(&mut self, first: u64, why: &'static str) {
        let now = self.now;
        if self.batches.get(first).is_some_and(|batch| batch.served.is_none())
            && self.has_next(first)
        {
            // No guard relies on the hold, so the batch can be dissolved.
            return self.dissolve(first, now);
        }
        self.cut_batch(first);
        let Some(batch) = self.batches.get_mut(first) else {
            debug_assert!(false, "the hold {first} has no batch");
            return;
        };
        let (lock, served) = (batch.lock.clone(), batch.served.take());
        let guard = served.filter(|number| {
            let entry = self.table.get(*number);
            entry.is_some_and(|entry| matches!(entry.state, State::Held(_)))
        });
        self.table.change(first, |entry| {
            entry.state = match guard {
                // The hold is released when the guard is dropped.
                Some(_) => State::Lost { since: now },
                // The release is sent even if the hold is gone, because the server may have set its
                // members aside.
                None => State::Releasing { due: Some(now), since: None },
            };
        });
        match (guard, served) {
            (Some(guard), _) => self.notify_lost(guard, why),
            (None, Some(offered)) => self.miss_in_batch(offered),
            (None, None) => {}
        }
        self.table.touch_by(&lock, now);
    }

    /// Cuts a batch, which ends it early: the unserved members are in the queue again under their
    /// own ids. If the first member is among them, it queues at the tail under a new id, because
    /// the hold keeps its first id.
    fn cut_batch(&mut self, first: u64) {
        let Some(batch) = self.batches.get(first) else { return };
        let (of_first, rest) = (batch.of_first, batch.rest.iter().map(|(number, _)| *number));
        let mut waiting: Vec<u64> = rest.filter(|number| self.is_in_batch(*number)).collect();
        // The server knows the first member by the batch hold's id, so it needs a new queue
        // position.
        if let Some(of_first) = of_first.filter(|number| waiting.contains(number)) {
            waiting.retain(|number| *number != of_first);
            self.requeue(of_first);
        }
        for number in &waiting {
            self.batches.leave(*number);
            self.table.change(*number, |entry| entry.state = State::Waiting);
        }
        if let Some(batch) = self.batches.get_mut(first) {
            batch.cut(&waiting);
        }
        self.mark_cut_revoked(first);
    }

    /// Marks the members that are back in the queue after a cut. A late report about the hold of
    /// the batch must not be taken for a new hold of these members.
    fn mark_cut_revoked(&mut self, first: u64) {
        let now = self.now;
        let cut = self.batches.get(first).map_or_else(Vec::new, |batch| batch.cut.clone());
        for number in cut {
            if self.is_waiting(number) {
                self.table.change(number, |entry| entry.revoked = Some(now));
            }
        }
    }

    /// Removes the record of a batch whose hold is over, and returns it; `None` if there is none.
    /// Guards that still wait to learn whether the hold existed get an error. After a cut, the
    /// lock's waiters are touched, because the server may have left them the hold, and no report of
    /// it counted until now.
    pub(super) fn forget_batch(&mut self, first: u64) -> Option<Batch<P>> {
        self.mark_cut_revoked(first);
        self.notify_unproven(first);
        let batch = self.batches.remove(first)?;
        if batch.is_cut {
            self.table.touch_by(&batch.lock, self.now);
        }
        Some(batch)
    }

    /// Leaves a batch's hold to a guard that is to be leaked: sends the unserved members back to
    /// the queue, so that the hold belongs to this guard alone until the lease expires, at `until`
    /// at the latest.
    pub(super) fn leak_batch(&mut self, first: u64, guard: u64, until: Moment) {
        let now = self.now;
        // If the request fails, the other members wait until the lease has expired.
        if let Some(request) = self.cut_by_guard(first, ALL_WEIGHT) {
            self.background(request);
        }
        self.batches.leave(guard);
        self.table.change(guard, |entry| {
            // A leave of the guard would end the hold if the server lists no other member, and
            // that before the request above reaches it. So the leave waits for the lease, too.
            entry.state = match entry.gone(now) {
                State::Over => State::Over,
                _ => State::Leaked { until },
            };
        });
    }

    /// Cuts a batch, because its guard keeps the hold for a leak or a downgrade. Returns the
    /// request that sets the hold's weight (how much of the name it takes) on the server, and puts
    /// the unserved members back at the queue's front. For a hold outside a batch, the request only
    /// sets the weight. `None` if the hold is not in the table.
    pub(super) fn cut_by_guard(&mut self, first: u64, weight: NonZeroU32) -> Option<StoreRequest> {
        let served = self.batches.get(first).and_then(Batch::served_as);
        self.cut_batch(first);
        let now = self.now;
        let shares_with = self.table.get(first)?.shares_with.clone();
        let cut = self.batches.get(first).map_or(&*shares_with, |batch| &batch.cut);
        let back: Vec<u64> = cut.iter().copied().filter(|one| self.is_waiting(*one)).collect();
        for number in shares_with {
            self.table.change(number, |entry| entry.revoked = Some(now));
        }
        let Entry { lock, member, .. } = self.table.get(first)?;
        let (member, served) = (member.clone(), served.unwrap_or(first));
        let command = Command::Reduce { member, served, weight, back };
        Some(self.request(lock.clone(), command, false))
    }

    /// Withdraws an offer to a batch member, because the hold was lost before the caller took the
    /// lock. Wakes the caller, who requests the lock again under the next member id.
    pub(super) fn miss_in_batch(&mut self, number: u64) {
        let next = self.next_round_if_any(number);
        self.forget_member(number);
        self.missed(next);
        let entry = next.and_then(|next| self.table.get(next));
        if let Some(mirror) = entry.map(|entry| entry.mirror.clone()) {
            self.push(Effect::Wake(mirror));
        }
    }

    /// Queues a batch member again at the tail under the next member id, because the batch ended
    /// before the member's turn. Does nothing in other states.
    pub(super) fn requeue(&mut self, number: u64) {
        if self.is_in_batch(number) {
            self.batches.leave(number);
            self.position_lost(number);
        }
    }

    /// Handles the response to a [`Command::Reduce`], or the error. If this request has sent
    /// unserved members of a batch back to the queue, the server knows this from now on. If it
    /// found no hold, the members may have the hold: a leave may have run before.
    pub(super) fn batch_cut(
        &mut self,
        member: &Member,
        outcome: Result<Released, &StoreError>,
        sent: Moment,
    ) {
        self.batch_released(member, outcome, sent);
        let number = member.number();
        if !self.is_batch(member) {
            if let (Some(number), Ok(Released::Released)) = (self.known(member), outcome) {
                self.table.change(number, |entry| entry.shares_with = Box::default());
            }
            return;
        }
        let is_leaked = |entry: &Entry<P>| matches!(entry.state, State::Leaked { .. });
        if self.table.get(number).is_some_and(is_leaked) {
            self.forget_batch(number);
        } else if outcome == Ok(Released::Released) {
            self.mark_cut_revoked(number);
            if let Some(batch) = self.batches.get_mut(number) {
                batch.is_cut = false;
                batch.cut.clear();
            }
        }
    }

    /// Releases a batch hold that was granted when none of the members waited any more. `name` is
    /// the member under which the server stores the hold.
    fn give_back_batch(&mut self, lock: LockName, name: Member, members: &[u64]) {
        let first = name.number();
        // A member that came back from a cut batch may have a new queue position or hold, so it
        // must not leave.
        let is_over = |number: &u64| {
            self.table.get(*number).is_none_or(|entry| {
                use State::{Leaving, Over, Releasing};
                matches!(entry.state, Leaving { .. } | Over | Releasing { .. })
            })
        };
        let members: Vec<u64> = members.iter().copied().filter(is_over).collect();
        self.begin_batch(lock, name, &members, false);
        self.serve_next(first, Some(self.now));
    }

    /// Refuses the lock to the first member of a batch, because the store did not confirm on
    /// replicas or on disk that the grant was written. If another member waits, a further renewal
    /// must confirm the hold for it.
    pub(super) fn refuse_first(&mut self, first: u64, refusal: Refusal) {
        let now = self.now;
        if !self.has_next(first) {
            self.serve_next(first, Some(now));
            return;
        }
        let Some(batch) = self.batches.get_mut(first) else { return };
        let Some((number, _)) = batch.rest.pop_front() else { return };
        self.refuse(number, refusal);
        self.forget_member(number);
        if self.has_next(first) {
            self.confirm(first);
        } else {
            self.serve_next(first, Some(now));
        }
    }
}
