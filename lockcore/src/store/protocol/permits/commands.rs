//! The eight commands.

use std::num::NonZeroU32;

use super::advance::Advanced;
use super::{ALL, Call, Era, Message, PermitState};
use crate::member::{Member, NodeId, Party};
use crate::store::protocol::{
    Acquired, Inspection, Leaving, Left, Mode, Presence, Released, Renewed, Reply, TOMBSTONE_MS,
    Touched,
};

impl PermitState {
    /// Takes what the member asks for, or in [`Mode::Wait`] queues for it.
    pub(super) fn acquire(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        mode: Mode,
        queue_limit: u32,
    ) -> Reply<Acquired> {
        self.expire(call.now_ms());
        if self.gone.contains_key(member) {
            return self.reply(call, Acquired::Refused);
        }
        self.heal(call);
        let outcome = self.take(call, member, mode, queue_limit);
        self.reply(call, outcome)
    }

    /// The queue is said to be full: for tests of callers.
    pub fn full(&mut self, call: &mut Call<'_>) -> Reply<Acquired> {
        self.expire(call.now_ms());
        self.heal(call);
        self.reply(call, Acquired::Full)
    }

    fn take(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        mode: Mode,
        queue_limit: u32,
    ) -> Acquired {
        let is_free = self.queue.is_empty() && member.demand().fits(self.used());
        if is_free && self.holds.get(member).is_none() {
            return self.grant_lease(call, member);
        }
        self.reclaim(call);
        if let Some(ends_ms) = self.held_until(member, call.now_ms()) {
            call.tell(member, ends_ms - call.now_ms());
            return Acquired::Granted;
        }
        // Its own lapsed hold may be one of more than are taken out at a time.
        self.drop_hold(member);
        let advanced = self.advance(call);
        if self.holds.get(member).is_some() {
            return Acquired::Granted;
        }
        // The caller stands behind all others: none ahead could take it.
        if advanced == Advanced::End && member.demand().fits(self.used()) {
            return self.grant_lease(call, member);
        }
        self.wait(call.now_ms(), member, mode, queue_limit)
    }

    fn grant_lease(&mut self, call: &mut Call<'_>, member: &Member) -> Acquired {
        let left_ms = member.lease_ms();
        self.grant(call, member, left_ms);
        call.tell(member, left_ms);
        Acquired::Granted
    }

    /// The part of an acquire that was not granted.
    fn wait(&mut self, now_ms: u64, member: &Member, mode: Mode, queue_limit: u32) -> Acquired {
        if self.queue.get(member).is_some() {
            self.raise(member, now_ms);
            let position = self.queue.iter().take_while(|(_, ahead)| *ahead != member).count();
            return Acquired::Queued { position: position as u64 };
        }
        if mode == Mode::Try {
            return Acquired::Busy;
        }
        if self.deadlines.live(now_ms) >= queue_limit as usize {
            return Acquired::Full;
        }
        self.sweep(now_ms);
        self.enqueue(member, now_ms);
        Acquired::Queued { position: self.queue.len() as u64 - 1 }
    }

    /// Gives a hold back. One whose lease has ended counts, if nothing was granted in its place.
    pub(super) fn release(&mut self, call: &mut Call<'_>, member: &Member) -> Reply<Released> {
        self.expire(call.now_ms());
        self.heal(call);
        let outcome = if self.drop_hold(member) { Released::Released } else { Released::NotHeld };
        self.hand_on(call);
        self.reply(call, outcome)
    }

    /// Extends holds to their members' full leases. Never revives one, never hands over.
    pub(super) fn renew(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Vec<Renewed>> {
        self.expire(call.now_ms());
        self.heal(call);
        let outcome = members.iter().map(|member| self.renew_one(call, member)).collect();
        self.reply(call, outcome)
    }

    fn renew_one(&mut self, call: &mut Call<'_>, member: &Member) -> Renewed {
        let now_ms = call.now_ms();
        if self.held_until(member, now_ms).is_none() {
            return Renewed::NotHeld;
        }
        self.holds.set(member, now_ms + member.lease_ms());
        self.keep(now_ms + member.lease_ms());
        call.tell(member, member.lease_ms());
        Renewed::Held
    }

    /// Lowers what a hold weighs. Asked again, it answers the same and has the same token.
    pub(super) fn reduce(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        weight: NonZeroU32,
    ) -> Reply<Vec<Renewed>> {
        self.expire(call.now_ms());
        self.heal(call);
        if self.held_until(member, call.now_ms()).is_none() {
            return self.reply(call, vec![Renewed::NotHeld]);
        }
        let (old, new) = (self.weight(member), u64::from(weight.get()));
        if new < old {
            self.reduced.insert(member.clone(), new);
            self.used = Some(self.used().saturating_sub(old - new));
            if old == u64::from(ALL) {
                // What it wrote before, and arrives late, must not pass beside those who come in
                // now.
                self.issue_token(call);
                self.era = Some(Era::Shared);
            }
        }
        call.tell(member, 0);
        self.hand_on(call);
        self.reply(call, vec![Renewed::Held])
    }

    /// Keeps the caller's waiting members alive.
    pub(super) fn touch(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Touched> {
        self.expire(call.now_ms());
        self.heal(call);
        let members = members.iter().map(|member| self.touch_one(call, member)).collect();
        self.sweep(call.now_ms());
        self.hand_on(call);
        let listeners = u64::from((call.connected)(call.node.as_str()));
        self.reply(call, Touched { members, listeners })
    }

    fn touch_one(&mut self, call: &mut Call<'_>, member: &Member) -> Presence {
        let now_ms = call.now_ms();
        // Raised only if it is there: a touch that runs after a leave revives nothing.
        if self.queue.get(member).is_some() {
            self.raise(member, now_ms);
            return Presence::Waiting;
        }
        match self.held_until(member, now_ms) {
            Some(ends_ms) => {
                call.tell(member, ends_ms - now_ms);
                Presence::Holding
            }
            None => Presence::Gone,
        }
    }

    /// Takes members out of the queue, or releases them if they were granted meanwhile.
    pub(super) fn leave(&mut self, call: &mut Call<'_>, leaving: &[Leaving]) -> Reply<Vec<Left>> {
        self.expire(call.now_ms());
        self.heal(call);
        let outcome = leaving.iter().map(|one| self.leave_one(one, call.now_ms())).collect();
        // Even if others hold: those behind a head that gave up may fit.
        self.hand_on(call);
        self.reply(call, outcome)
    }

    fn leave_one(&mut self, leaving: &Leaving, now_ms: u64) -> Left {
        let member = &leaving.member;
        if leaving.ambiguous {
            self.gone.insert(member.clone(), now_ms + TOMBSTONE_MS);
        }
        if self.drop_waiting(member) || self.drop_hold(member) { Left::Left } else { Left::Absent }
    }

    /// Drops one hold, or all, whichever member has them.
    pub(super) fn force_release(
        &mut self,
        call: &mut Call<'_>,
        member: Option<&Member>,
    ) -> Reply<Released> {
        self.expire(call.now_ms());
        self.heal(call);
        let is_meant = |held: &&Member| member.is_none_or(|member| member == *held);
        let held = self.holds.iter().map(|(_, held)| held);
        let forced: Vec<Member> = held.filter(is_meant).cloned().collect();
        let mut by_node: Vec<(&str, Vec<u64>)> = Vec::new();
        for member in &forced {
            self.drop_hold(member);
            match by_node.iter_mut().find(|(node, _)| *node == member.node()) {
                Some((_, numbers)) => numbers.push(member.number()),
                None => by_node.push((member.node(), vec![member.number()])),
            }
        }
        for (node, numbers) in by_node {
            call.messages.push(Message::Revoked { node: NodeId::of(node), numbers });
        }
        self.hand_on(call);
        let outcome = if forced.is_empty() { Released::NotHeld } else { Released::Released };
        self.reply(call, outcome)
    }

    /// Holds and queue, without changing anything but what has expired.
    pub(super) fn inspect(&mut self, now_us: u64) -> Inspection {
        let now_ms = now_us / 1_000;
        self.expire(now_ms);
        let held = |(ends_ms, member): (u64, &Member)| {
            (Party::from(member), self.weight(member), ends_ms.saturating_sub(now_ms))
        };
        // Without a deadline, it has no time left.
        let waiting = |(_, member): (u64, &Member)| {
            (Party::from(member), self.deadlines.get(member).unwrap_or(0))
        };
        Inspection {
            // One whose lease has ended stays until its room is needed, but holds nothing.
            holds: self.holds.iter().map(held).filter(|(.., left_ms)| *left_ms > 0).collect(),
            waiters: self.queue.iter().map(waiting).collect(),
            token: self.token,
            now_us,
        }
    }
}
