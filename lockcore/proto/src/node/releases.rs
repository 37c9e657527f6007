//! Releases and leaves, from the caller's request until the server has acknowledged them.

use std::time::Duration;

use super::Core;
use super::attempts::LAST_RETRY;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::GivenBack;
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::{Entry, Mirror, State};
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;
use crate::{Command, Leaving};

impl<P: Mirror> Core<P> {
    /// Releases the hold of a guard, whose caller sends the request. `is_asked` is true if the
    /// caller wants to know whether the hold still existed. If the hold passes to another batch
    /// member, [`Mirror::returned`] reports this.
    pub(super) fn begin_release(&mut self, number: u64, is_asked: bool) -> GivenBack {
        let Some(entry) = self.table.get(number) else { return GivenBack::Nothing };
        match &entry.state {
            // The hold has expired by the clock, although no tick has run since.
            State::Held(lease) if self.now >= lease.until() => {
                self.lapse(number, "the lease deadline has passed");
            }
            State::Held(_) | State::Lost { .. } => {}
            _ => return GivenBack::Nothing,
        }
        let released = match self.batches.hold_of(number) {
            Some(first) if is_asked => self.return_to_batch(first, number),
            _ => self.hand_back(number, None),
        };
        released.map_or(GivenBack::InBatch, |hold| GivenBack::By(self.release_request(hold, false)))
    }

    /// Releases a hold that a guard has or that is offered to a caller: the core sends the request
    /// at the time `due`, or the caller sends it if `due` is `None`. Returns the member id under
    /// which the hold must be released; `None` if it passes to another batch member. A hold that is
    /// lost, or known to be shared, ends by a leave: after a failover, the server may have queued
    /// the member again, and granted it the lock in a batch. A release would end the hold for the
    /// other members.
    pub(super) fn hand_back(&mut self, number: u64, due: Option<Moment>) -> Option<u64> {
        if let Some(first) = self.batches.hold_of(number) {
            return self.pass_on(first, number, due).then_some(first);
        }
        let now = self.now;
        let lock = self.table.change(number, |entry| {
            let is_shared =
                !entry.shares_with.is_empty() || matches!(entry.state, State::Lost { .. });
            entry.state = match &entry.state {
                _ if is_shared => entry.leaving_at(due, now),
                State::Held(lease) => State::Releasing { due, since: Some(lease.since) },
                _ => State::Releasing { due, since: None },
            };
            is_shared.then(|| entry.lock.clone())
        });
        // A touch reports the hold to the others, because no report counted while this one lived.
        if let Some(lock) = lock.flatten() {
            self.table.touch_by(&lock, now);
        }
        Some(number)
    }

    pub(super) fn release_request(&self, number: u64, background: bool) -> StoreRequest {
        let entry = &self.table.entries()[&number];
        let Entry { lock, member, .. } = &***entry;
        let alone = [number];
        let members = self.batches.get(number).map_or(alone.as_slice(), |batch| &batch.members);
        let may_run_again = |of: &u64| self.table.get(*of).is_some_and(Entry::may_run_again);
        let leaving = |of: &u64| Leaving::new(member.renumbered(*of), may_run_again(of));
        // A leave ends the hold and stores the tombstones in a single command, so a late copy of an
        // acquire finds the hold or a tombstone. After a cut, a release could also end the hold for
        // the cut members, if the server does not know the cut yet. A leave does not. A member that
        // is leaving outside a batch may share its hold: see `hand_back`.
        let is_leave = match self.batches.get(number) {
            Some(batch) => batch.is_cut,
            None => matches!(entry.state, State::Leaving { .. }),
        };
        let command = match is_leave || members.iter().any(may_run_again) {
            true => Command::Leave { leaving: members.iter().map(leaving).collect() },
            false => Command::Release { member: member.clone() },
        };
        self.request(lock.clone(), command, background)
    }

    /// Finishes a release or a leave, because the server has removed the member. Returns the member
    /// id if the release must be remembered, for a server that takes over. `None` if the table does
    /// not have the member, or if the member had been released before and was only removed on a new
    /// server.
    pub(super) fn end(&mut self, member: &Member) -> Option<u64> {
        let number = self.number(member)?;
        self.forget_batch(number);
        let is_known = self.table.change(number, |entry| {
            let is_this = entry.member == *member;
            if is_this && matches!(entry.state, State::Releasing { .. } | State::Leaving { .. }) {
                entry.state = State::Over;
            }
            is_this && !entry.leaves_again
        })?;
        is_known.then_some(number)
    }

    /// Handles a release that found no hold on the server. A leave removes the member from the
    /// queue, because its acquire may have run a second time after a force release and queued the
    /// member again. In a batch, leaves also remove the members whose turn is over. After a force
    /// release, the server keeps all members of the batch, and the node's next touch would put them
    /// back into the queue. Reports the hold as lost, if a caller had it. Returns the member id, or
    /// `None` if the member is not in the table.
    pub(super) fn leave_after_release(&mut self, member: &Member) -> Option<u64> {
        let number = self.known(member)?;
        let now = self.now;
        let batch = self.forget_batch(number);
        let was_batch = batch.is_some();
        let (lock, lost) = self.table.change(number, |entry| {
            // A batch's release was repeated as a leave of all its members.
            let is_repeated = was_batch && matches!(entry.state, State::Leaving { .. });
            let since = match entry.state {
                State::Releasing { since, .. } => since,
                _ => None,
            };
            if is_repeated || matches!(entry.state, State::Releasing { .. }) {
                entry.state = entry.leaving(now);
            }
            (entry.lock.clone(), since.map(|since| (since, entry.mirror.clone())))
        })?;
        if let Some((since, mirror)) = lost {
            // Nothing has reported this loss: the hold ended after its last renewal.
            let (lock, held, why) = (lock.clone(), now.since(since), "the release found no hold");
            self.push(Effect::Observe(Note::Lost { lock, held, why, of: mirror }));
        }
        for other in batch.iter().flat_map(|batch| &batch.members).filter(|other| **other != number)
        {
            self.give_back_if_over(&lock, member.renumbered(*other));
        }
        Some(number)
    }

    /// Handles a failed release or leave: schedules a leave as the next try, or gives up after the
    /// last try. Repeating is harmless: the first request to run removes the member, and later ones
    /// find nothing. A member that was given up leaves again once the server replies, after an
    /// outage or a time in which the server refused writes. It may still be queued: the node's
    /// other waiters keep it alive there, and its turn would delay them. After
    /// [`close`](Core::close) it does not leave again, because a node without waiters keeps no
    /// member alive.
    pub(super) fn leave_failed(&mut self, member: &Member, lock: &LockName, error: &StoreError) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let is_closed = error.kind == LockErrorKind::Closed;
        let is_last = self.table.change(number, |entry| match &mut entry.state {
            State::Releasing { .. } => {
                entry.state = entry.leaving(now);
                is_closed
            }
            State::Leaving { due, pause_ms, give_up } => {
                *due = Some(now + Duration::from_millis(u64::from(*pause_ms)));
                *pause_ms = (*pause_ms * 2).min(LAST_RETRY.as_millis() as u32);
                is_closed || now >= *give_up
            }
            _ => false,
        });
        if is_last == Some(true) {
            self.forget_batch(number);
            let given_up = self.table.change(number, |entry| {
                entry.state = State::Over;
                (entry.leaves_again, entry.may_run_again())
            });
            let (leaves_again, ambiguous) = given_up.unwrap_or_default();
            if error.is_transient() && !self.is_closed {
                let lane = self.table.lane_of(lock);
                self.table.traffic(lane).gave_up = true;
                let (lock, member) = (lock.clone(), member.clone());
                let given_up = RecentRelease { number, heard: now, ambiguous, lock, member };
                self.leave_later(given_up);
                if leaves_again {
                    return; // reported before
                }
            }
            self.table.count_failed();
            let lock = lock.clone();
            self.push(Effect::Observe(Note::LeaveFailed { lock, error: error.clone() }));
        }
    }
}
