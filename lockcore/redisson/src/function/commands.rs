//! The commands on a lock, as methods of its state.

use proto::{HoldView, Member, NodeId, Party};

use std::num::NonZeroU32;

use super::advance::{AdvanceOutcome, left_ms};
use super::{
    Acquired, Inspection, Leaving, Left, Mode, Presence, Released, Renewed, Reply, Touched,
};
use super::{Call, Hold, LockState, Message, TOMBSTONE_MS};

impl LockState {
    /// Acquires the lock for each of these members of a node in turn, or queues the member in
    /// [`Mode::Wait`] if there are fewer than `queue_limit` waiters. The outcomes are in the order
    /// of `members`.
    pub fn acquire(
        &mut self,
        call: &mut Call<'_>,
        members: &[Member],
        mode: Mode,
        queue_limit: u32,
    ) -> Reply<Vec<Acquired>> {
        self.expire(call.now_ms());
        let mut has_walked = false;
        let one = |member| self.acquire_one(call, member, (mode, queue_limit), &mut has_walked);
        let outcome = members.iter().map(one).collect();
        self.reply(call, outcome)
    }

    fn acquire_one(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        (mode, queue_limit): (Mode, u32),
        has_walked: &mut bool,
    ) -> Acquired {
        if self.tombstones.contains_key(member) {
            return Acquired::Refused;
        }
        self.end_endless_hold(member, call.now_ms());
        self.drop_leftovers();
        let party = Party::from(member);
        // The acquire is a retry if a JVM has removed this member from the queue.
        self.take_back(call, std::slice::from_ref(member));
        // The queue is walked only once per command: if a JVM thread is next, it is also next for
        // the other members.
        if self.hold.is_none() && !std::mem::replace(has_walked, true) {
            // The member is behind all waiters, none of which could take the lock.
            if self.advance(call) == AdvanceOutcome::End {
                self.grant(call, &party, member.lease_ms());
            }
        }
        if self.is_held_by(&party) {
            Acquired::Granted
        } else {
            self.wait(call, &party, mode, queue_limit)
        }
    }

    /// Returns the reply that an acquire for this number of `members` would get if the queue were
    /// full. For tests.
    pub fn full(&mut self, call: &Call<'_>, members: usize) -> Reply<Vec<Acquired>> {
        self.expire(call.now_ms());
        let waiting = self.live(call) as u64;
        self.reply(call, vec![Acquired::Full { waiting }; members])
    }

    /// Completes an acquire for `member` that did not get the lock: queues the member, or refuses
    /// it. A member that is already queued, because the acquire is a retry, keeps its position.
    fn wait(&mut self, call: &Call<'_>, member: &Party, mode: Mode, queue_limit: u32) -> Acquired {
        if let Some(position) = self.position(member) {
            self.raise(call, member);
            return Acquired::Queued { position: position as u64 };
        }
        if mode == Mode::Try {
            return Acquired::Busy;
        }
        // A score without a list entry does not count.
        let limit = queue_limit as usize;
        if self.queue.len() >= limit
            && let waiting = self.live(call)
            && waiting >= limit
        {
            return Acquired::Full { waiting: waiting as u64 };
        }
        self.sweep(call);
        self.enqueue(call, member);
        Acquired::Queued { position: self.queue.len() as u64 - 1 }
    }

    /// Releases the hold of `member`, if it holds the lock, and grants a free lock to the next
    /// waiter.
    pub fn release(&mut self, call: &mut Call<'_>, member: &Member) -> Reply<Released> {
        self.expire(call.now_ms());
        let outcome = self.drop_hold_of(member);
        self.advance_if_free(call);
        self.reply(call, outcome)
    }

    /// Extends the hold of each member to the member's full lease, counted from now. A member that
    /// holds nothing gets [`Renewed::NotHeld`].
    pub fn renew(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Vec<Renewed>> {
        self.expire(call.now_ms());
        let outcome = members.iter().map(|member| self.renew_one(call, member)).collect();
        self.reply(call, outcome)
    }

    fn renew_one(&mut self, call: &Call<'_>, member: &Member) -> Renewed {
        let ends_ms = call.now_ms() + member.lease_ms();
        match &mut self.hold {
            Some(hold) if hold.member == *member => {
                hold.expires_ms = Some(ends_ms);
                Renewed::Held
            }
            _ => Renewed::NotHeld,
        }
    }

    /// Renews the liveness deadlines of a node's waiters, and returns for each whether it waits,
    /// holds or is gone. Also restores waiters that a JVM has removed, removes dead waiters, and
    /// grants a free lock to the next waiter.
    pub fn touch(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Touched> {
        let now_ms = call.now_ms();
        self.expire(now_ms);
        if let Some(first) = members.first() {
            self.end_endless_hold(first, now_ms);
        }
        self.drop_leftovers();
        self.take_back(call, members);
        let members = members.iter().map(|member| self.touch_one(call, &member.into())).collect();
        self.sweep(call);
        self.advance_if_free(call);
        let listeners = u64::from((call.connected)(call.node.as_str()));
        self.reply(call, Touched { members, listeners })
    }

    fn touch_one(&mut self, call: &Call<'_>, member: &Party) -> Presence {
        // Only an existing member is renewed: a touch after a leave must not revive it.
        if self.deadlines.get(member).is_some() {
            self.raise(call, member);
            Presence::Waiting
        } else if self.is_held_by(member) {
            Presence::Holding
        } else {
            Presence::Gone
        }
    }

    /// Removes members from the queue, or releases the hold of a member granted meanwhile. If a
    /// copy of a member's acquire may still arrive, the member gets a tombstone, which refuses the
    /// copy.
    pub fn leave(&mut self, call: &mut Call<'_>, leaving: &[Leaving]) -> Reply<Vec<Left>> {
        self.expire(call.now_ms());
        let outcome = leaving.iter().map(|one| self.leave_one(one, call.now_ms())).collect();
        self.advance_if_free(call);
        self.reply(call, outcome)
    }

    fn leave_one(&mut self, leaving: &Leaving, now_ms: u64) -> Left {
        let member = &leaving.member;
        if leaving.ambiguous {
            self.tombstones.insert(member.clone(), now_ms + TOMBSTONE_MS);
        }
        if self.drop_waiting(&member.into()) || self.drop_hold_of(member) == Released::Released {
            Left::Left
        } else {
            Left::Absent
        }
    }

    /// Ends the current hold, whoever has it. If `member` is `Some`, ends only a hold of this
    /// member. Notifies the node of the former holder, and grants the lock to the next waiter.
    pub fn force_release(
        &mut self,
        call: &mut Call<'_>,
        member: Option<&Member>,
    ) -> Reply<Released> {
        self.expire(call.now_ms());
        let is_meant = |hold: &mut Hold| member.is_none_or(|member| hold.member == *member);
        let outcome = match self.hold.take_if(is_meant) {
            None => Released::NotHeld,
            Some(hold) => {
                if let Some(ours) = hold.member.ours() {
                    let node = NodeId::from(ours.node());
                    let member = ours.clone();
                    call.messages.push(Message::Revoked { node, member });
                }
                Released::Released
            }
        };
        self.advance_if_free(call);
        self.reply(call, outcome)
    }

    /// Returns the holder and part of the queue: at most `most` waiters after the first `from`.
    /// `now_us` is the server's time in µs since the epoch. Changes nothing, except that expired
    /// keys are removed.
    pub fn inspect(&mut self, now_us: u64, from: u32, most: NonZeroU32) -> Inspection {
        self.expire(now_us / 1_000);
        let hold = self.hold.as_ref().map(|hold| HoldView {
            party: hold.member.clone(),
            weight: hold.member.weight(),
            left_ms: left_ms(hold, now_us / 1_000),
        });
        // A list entry without a score has no time left.
        let waits = |member: &Party| (member.clone(), self.life(member).unwrap_or(0));
        let shown = self.queue.iter().skip(from as usize).take(most.get() as usize);
        Inspection {
            holds: hold.into_iter().collect(),
            waiters: shown.map(waits).collect(),
            token: self.token.as_ref().map(|token| token.value),
            holding: self.hold.is_some().into(),
            waiting: self.queue.len() as u64,
            now_us,
        }
    }

    pub(super) fn is_held_by(&self, member: &Party) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.member == *member)
    }

    fn drop_hold_of(&mut self, member: &Member) -> Released {
        match self.hold.take_if(|hold| hold.member == *member) {
            Some(_) => Released::Released,
            None => Released::NotHeld,
        }
    }
}
