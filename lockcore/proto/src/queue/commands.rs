//! The commands on a lock, each as a method that changes the state and returns the reply.

use std::num::NonZeroU32;

use super::advance::Advanced;
use super::{
    Bounds, Call, Held, LockKeyValue, MARGIN_MS, Mark, Message, QueueState, ROUND_MS, SWEPT_MS,
};
use crate::demand::{ALL, Demand};
use crate::member::{Member, NodeId};
use crate::{
    Acquired, HoldView, Inspection, Leaving, Left, Mode, Presence, Released, Renewed, Reply,
    TOMBSTONE_MS, Touched,
};

/// The state of an acquire while it handles the members one by one.
struct Asking<'a> {
    mode: Mode,
    queue_limit: u32,
    outcomes: Vec<Acquired>,
    /// The members that this command has queued.
    newcomers: Vec<&'a Member>,
    /// How the walk over the queue ended; `None` before the walk. The walk and the removal of
    /// expired holds run once per command, because nothing becomes free within it.
    advanced: Option<Advanced>,
}

impl Asking<'_> {
    fn new(mode: Mode, queue_limit: u32, members: usize) -> Self {
        Self {
            mode,
            queue_limit,
            outcomes: Vec::with_capacity(members),
            newcomers: Vec::new(),
            advanced: None,
        }
    }
}

impl QueueState {
    /// Acquires the lock for the members in order. In [`Mode::Wait`], queues members that cannot be
    /// granted.
    pub(super) fn acquire(
        &mut self,
        call: &mut Call<'_>,
        members: &[Member],
        mode: Mode,
        queue_limit: u32,
    ) -> Reply<Vec<Acquired>> {
        let mut asking = Asking::new(mode, queue_limit, members.len());
        // The most frequent case: without a lock key, the lock is free and has neither waiters nor
        // tombstones, so no other key is read. This fails only if another program has deleted the
        // lock key.
        let is_free = self.lock_key.is_none();
        let mut rest = members;
        if let [first, others @ ..] = members
            && is_free
            && first.demand() == Demand::EXCLUSIVE
        {
            asking.outcomes.push(self.grant_lease(call, first));
            rest = others;
            if rest.is_empty() {
                return self.short(call, asking.outcomes);
            }
        }
        if members.iter().all(|member| self.has_tombstone(member)) {
            // All members have tombstones, so the acquire is refused and must write nothing. The
            // reply needs the repaired state, so `repair` runs on a copy.
            let mut repaired = self.clone();
            repaired.repair(call);
            return repaired.answer(call, vec![Acquired::Refused; members.len()]);
        }
        self.repair(call);
        for member in rest {
            let outcome = self.acquire_one(call, &mut asking, member);
            asking.outcomes.push(outcome);
        }
        self.fill_positions(members, &mut asking);
        self.reply(call, asking.outcomes)
    }

    fn acquire_one<'a>(
        &mut self,
        call: &mut Call<'_>,
        asking: &mut Asking<'a>,
        member: &'a Member,
    ) -> Acquired {
        if call.is_reported(member) {
            return Acquired::Granted;
        }
        // This looks at the tombstones directly, because the lock key may have another flag by now.
        if call.has_tombstones && self.tombstones.get(member).is_some() {
            return Acquired::Refused;
        }
        self.take(call, asking, member)
    }

    fn take<'a>(
        &mut self,
        call: &mut Call<'_>,
        asking: &mut Asking<'a>,
        member: &'a Member,
    ) -> Acquired {
        let now_ms = call.now_ms();
        match self.whole(now_ms) {
            Some((holder, ends_ms)) if self.is_served(holder, member) => {
                self.report_whole(call, ends_ms - now_ms);
                return Acquired::Granted;
            }
            Some(_) => return self.wait(call, asking, member),
            None => {}
        }
        let is_free = self.queue.is_empty() && member.demand().fits(self.used());
        if is_free && self.holds.get(member).is_none() {
            return self.grant_lease(call, member);
        }
        // Nothing becomes free within a command, so one removal and one walk are enough.
        if asking.advanced.is_none() {
            self.reclaim(call);
        }
        if let Some(ends_ms) = self.held_until(member, now_ms) {
            self.ensure_shared_token(call);
            return report_again(call, member, ends_ms);
        }
        // The member's own expired hold may remain, because only a limited number is removed at a
        // time.
        self.drop_hold(member);
        let advanced = match asking.advanced {
            Some(advanced) => advanced,
            None => self.advance(call),
        };
        asking.advanced = Some(advanced);
        if call.is_reported(member) {
            return Acquired::Granted;
        }
        // No waiter is left ahead: the walk has granted the lock to each waiter, or has skipped or
        // removed the waiter.
        let is_last = advanced == Advanced::End && self.queue.is_empty();
        if is_last && member.demand().fits(self.used()) {
            return self.grant_lease(call, member);
        }
        self.wait(call, asking, member)
    }

    fn grant_lease(&mut self, call: &mut Call<'_>, member: &Member) -> Acquired {
        let left_ms = member.lease_ms();
        self.grant(call, member, Vec::new(), left_ms, Mark::None);
        call.report(member, left_ms);
        Acquired::Granted
    }

    /// Adds the exclusive hold to the reply, for a member that has been granted it before. The hold
    /// gets a new token for each of its members, because the lock key does not contain their first
    /// tokens.
    fn report_whole(&self, call: &mut Call<'_>, left_ms: u64) {
        if let Some((holder, _)) = self.whole(call.now_ms()) {
            call.issue_for(self.batch().len());
            call.report_batch(holder, left_ms, self.batch());
        }
    }

    /// Queues a member that cannot be granted the lock, or refuses it. The position in the outcome
    /// is 0 until `fill_positions` sets it.
    fn wait<'a>(
        &mut self,
        call: &mut Call<'_>,
        asking: &mut Asking<'a>,
        member: &'a Member,
    ) -> Acquired {
        if self.queue.get(member).is_some() {
            self.raise_low(call);
            return Acquired::Queued { position: 0 };
        }
        if asking.mode == Mode::Try {
            return Acquired::Busy;
        }
        let full = |lock: &Self, older: &[Member]| {
            let waiting = (lock.queue.len() + lock.waiting_in_batch() - older.len()) as u64;
            (waiting >= asking.queue_limit.into()).then_some(Acquired::Full { waiting })
        };
        let mut older = self.older(call, member);
        // A search costs as much as many refusals, so after a search other requests skip it for a
        // while.
        let is_full = older.as_ref().is_some_and(|older| full(self, older).is_some());
        if is_full && self.swept_until_ms.is_none() {
            self.sweep(call, &asking.newcomers);
            self.swept_until_ms = Some(call.now_ms() + SWEPT_MS);
            older = self.older(call, member);
        }
        let Some(older) = older else { return Acquired::Refused };
        if let Some(full) = full(self, &older) {
            return full;
        }
        self.supersede(call, &older);
        self.enqueue(call, member);
        asking.newcomers.push(member);
        Acquired::Queued { position: 0 }
    }

    /// Returns the waiters that `member` supersedes: all with `KeepNewest` if it has `KeepNewest`
    /// itself, otherwise none. `None` if `member` must be refused, because the holder or a waiter
    /// with `KeepNewest` is newer.
    fn older(&self, call: &Call<'_>, member: &Member) -> Option<Vec<Member>> {
        if !member.keeps_newest() {
            return Some(Vec::new());
        }
        // Within a node, the higher id is newer. The score of a member that was queued again is
        // misleading, so its id decides beside other nodes, too.
        let is_newer = |other: &Member| {
            let counts = member.was_requeued() || other.node() == member.node();
            counts && other.keeps_newest() && other.number() > member.number()
        };
        let last = self.queue.iter().rev().take(call.bounds.looked_at);
        let others = last.map(|(_, waiting)| waiting).filter(|waiting| waiting.keeps_newest());
        let others: Vec<Member> = others.cloned().collect();
        let holder = self.whole(call.now_ms()).map(|(holder, _)| holder);
        let is_overtaken = others.iter().chain(holder).any(is_newer);
        (!is_overtaken).then_some(others)
    }

    /// Removes the members `older` from the queue in favour of a newer member. They get tombstones:
    /// otherwise a late copy of an acquire could queue one of them again, and it would supersede
    /// the newer member.
    fn supersede(&mut self, call: &mut Call<'_>, older: &[Member]) {
        for member in older {
            self.queue.remove(member);
            self.tombstones.set(member, call.now_ms() + TOMBSTONE_MS);
            call.has_tombstones = true;
        }
        if !older.is_empty() {
            self.drop_oldest_tombstones(call.bounds);
        }
        let messages = by_node(older).into_iter();
        let messages = messages.map(|(node, numbers)| Message::Superseded { node, numbers });
        // These messages precede the grants, as in Lua.
        call.messages.splice(0..0, messages);
        // Members behind a removed head may fit.
        if !older.is_empty() && self.whole(call.now_ms()).is_none() {
            self.advance(call);
        }
    }

    /// Removes the oldest tombstones if there are too many. Each superseded member leaves a
    /// tombstone, needed only for a few seconds.
    fn drop_oldest_tombstones(&mut self, bounds: Bounds) {
        let beyond = self.tombstones.len().saturating_sub(bounds.tombstones).min(bounds.reclaimed);
        let oldest: Vec<Member> =
            self.tombstones.iter().take(beyond).map(|(_, one)| one.clone()).collect();
        for member in &oldest {
            self.tombstones.remove(member);
        }
    }

    /// Returns the number of batch members that wait for their turn with the exclusive hold: all
    /// but the first. 0 outside a batch.
    fn waiting_in_batch(&self) -> usize {
        self.batch().len().saturating_sub(1)
    }

    /// Sets the positions in the outcomes of the queued members, as they are at the command's end.
    fn fill_positions(&self, members: &[Member], asking: &mut Asking<'_>) {
        let first = self.queue.len() - asking.newcomers.len();
        let others = self.waiting_in_batch();
        for (member, outcome) in members.iter().zip(&mut asking.outcomes) {
            let Acquired::Queued { position } = outcome else { continue };
            // Newly queued members are at the tail, so no search is needed.
            let at = asking.newcomers.iter().position(|newcomer| *newcomer == member);
            let waiting = at.map_or_else(
                || self.queue.iter().take_while(|(_, ahead)| *ahead != member).count(),
                |at| first + at,
            );
            *position = (others + waiting) as u64;
        }
    }

    /// Returns the reply to an acquire of this many members as if the queue were full. For tests.
    pub fn full(&mut self, call: &mut Call<'_>, members: usize) -> Reply<Vec<Acquired>> {
        self.expire(call.now_ms());
        let waiting = (self.queue.len() + self.waiting_in_batch()) as u64;
        self.answer(call, vec![Acquired::Full { waiting }; members])
    }

    /// Ends a hold, and grants the lock to the next waiters. An expired shared hold can still be
    /// released, because it keeps its weight until it is removed.
    pub(super) fn release(&mut self, call: &mut Call<'_>, member: &Member) -> Reply<Released> {
        let mark = self.lock_key.as_ref().map(|lock_key| lock_key.mark);
        let is_whole = self.whole(call.now_ms()).is_some_and(|(holder, _)| holder == member);
        if is_whole && mark == Some(Mark::None) {
            self.lock_key = None;
            return self.short(call, Released::Released);
        }
        self.repair(call);
        let outcome = if self.drop_any(call.now_ms(), member) {
            Released::Released
        } else {
            Released::NotHeld
        };
        self.hand_on(call);
        self.reply(call, outcome)
    }

    /// Removes a member's hold, exclusive or shared. Returns true if it existed.
    fn drop_any(&mut self, now_ms: u64, member: &Member) -> bool {
        match self.whole(now_ms) {
            Some((holder, _)) if holder == member => {
                self.open();
                true
            }
            Some(_) => false,
            None => self.drop_hold(member),
        }
    }

    /// Extends the holds of `members` to their full leases. Expired holds are not revived, and
    /// nothing is granted to waiters.
    pub(super) fn renew(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Vec<Renewed>> {
        if let [member] = members
            && member.demand() == Demand::EXCLUSIVE
        {
            let outcome = vec![self.renew_lock(call, member)];
            return self.short(call, outcome);
        }
        call.keeps_mark = self.lock_key.is_some();
        self.repair(call);
        let outcome = members.iter().map(|member| self.renew_one(call, member)).collect();
        self.reply(call, outcome)
    }

    /// Extends a hold to the full lease, and reports it with a token.
    pub(super) fn confirm(&mut self, call: &mut Call<'_>, member: &Member) -> Reply<Vec<Renewed>> {
        if self.whole(call.now_ms()).is_some_and(|(holder, _)| holder == member) {
            let outcome = vec![self.renew_whole(call, member)];
            self.report_whole(call, member.lease_ms());
            return self.short(call, outcome);
        }
        call.keeps_mark = self.lock_key.is_some();
        self.repair(call);
        let outcome = self.renew_one(call, member);
        if outcome == Renewed::Held {
            self.ensure_shared_token(call);
            call.report(member, member.lease_ms());
        }
        self.reply(call, vec![outcome])
    }

    fn renew_one(&mut self, call: &mut Call<'_>, member: &Member) -> Renewed {
        let now_ms = call.now_ms();
        if member.demand() == Demand::EXCLUSIVE && self.holds.get(member).is_none() {
            return self.renew_whole(call, member);
        }
        if self.whole(now_ms).is_some() || self.held_until(member, now_ms).is_none() {
            return Renewed::NotHeld;
        }
        self.holds.set(member, now_ms + member.lease_ms());
        call.keep(now_ms + member.lease_ms());
        Renewed::Held
    }

    /// Renews a hold that began exclusive. If it has become a read by a downgrade, the keys of
    /// shared holds are made to outlive the new lease.
    fn renew_lock(&mut self, call: &Call<'_>, member: &Member) -> Renewed {
        let now_ms = call.now_ms();
        let is_held = self.held_until(member, now_ms).is_some();
        let Some(LockKeyValue { held: Held::Parts { .. }, ends_ms, .. }) = &mut self.lock_key
        else {
            return self.renew_whole(call, member);
        };
        if !is_held {
            return Renewed::NotHeld;
        }
        let needed_ms = now_ms + member.lease_ms() + MARGIN_MS;
        if ends_ms.is_none_or(|at_ms| at_ms < needed_ms) {
            *ends_ms = Some(needed_ms.next_multiple_of(ROUND_MS));
            self.holds_end_ms = *ends_ms;
        }
        self.holds.set(member, now_ms + member.lease_ms());
        Renewed::Held
    }

    fn renew_whole(&mut self, call: &Call<'_>, member: &Member) -> Renewed {
        let now_ms = call.now_ms();
        if self.whole(now_ms).is_none_or(|(holder, _)| holder != member) {
            return Renewed::NotHeld;
        }
        if let Some(lock_key) = &mut self.lock_key {
            let margin_ms = if lock_key.mark == Mark::None { 0 } else { MARGIN_MS };
            lock_key.ends_ms = Some(now_ms + member.lease_ms() + margin_ms);
        }
        Renewed::Held
    }

    /// Lowers a hold's weight, ends its batch, and puts the members `back` at the queue's front. A
    /// repeated command has the same outcome.
    pub(super) fn reduce(
        &mut self,
        call: &mut Call<'_>,
        (member, served): (&Member, u64),
        weight: NonZeroU32,
        back: &[u64],
    ) -> Reply<Vec<Renewed>> {
        self.repair(call);
        let now_ms = call.now_ms();
        let new = u64::from(weight.get());
        let whole = self.whole(now_ms).map(|(holder, ends_ms)| (holder.clone(), ends_ms));
        let ends_ms = match &whole {
            // If the member `served` has left the batch, the hold belongs to the remaining members,
            // and is not reduced, even if it is stored under the name of `member`.
            Some((holder, ends_ms))
                if self.batch().is_empty() || self.batch().contains(&served) =>
            {
                (holder == member).then_some(*ends_ms)
            }
            Some(_) => None,
            None => self.held_until(member, now_ms),
        };
        let Some(ends_ms) = ends_ms else {
            return self.reply(call, vec![Renewed::NotHeld]);
        };
        // A member named in the request may have left the batch since.
        let batch = self.end_batch();
        let is_back = |number: &u64| *number != served && batch.contains(number);
        let back: Vec<u64> = back.iter().copied().filter(is_back).collect();
        self.put_back(call, member, &back);
        if whole.is_some() && new < u64::from(ALL) {
            // The new read gets a new token, shared with the reads granted below. Once a resource
            // has stored this token, the resource refuses delayed writes with the old token.
            let token = call.issue();
            self.open();
            self.set_parts(new, Some(token));
            self.holds.set(member, ends_ms);
            self.reduced.insert(member.clone(), new);
            call.keep(ends_ms);
        } else if whole.is_some() {
            // The hold gets a new token, because the server stores no tokens of exclusive holds.
            call.issue();
        } else if new < self.weight(member) {
            let lost = self.weight(member) - new;
            let used = match self.used().checked_sub(lost) {
                Some(used) if used >= self.holds.len() as u64 => used,
                // The reduced weights were lost, as in `drop_hold`.
                _ => self.sum_of_weights() - lost,
            };
            self.set_parts(used, self.shared_token());
            self.reduced.insert(member.clone(), new);
        }
        if whole.is_none() {
            self.ensure_shared_token(call);
        }
        call.report(member, 0);
        self.hand_on(call);
        self.reply(call, vec![Renewed::Held])
    }

    /// Extends the calling node's liveness deadline if any of the members waits, and returns their
    /// states. Without members, continues the work that a previous command left.
    pub(super) fn touch(&mut self, call: &mut Call<'_>, members: &[Member]) -> Reply<Touched> {
        self.repair(call);
        // Without waiters, handing on would not continue the removal of expired holds.
        let has_none = members.is_empty() && self.queue.is_empty();
        if has_none && self.whole(call.now_ms()).is_none() {
            self.reclaim(call);
        }
        let members = members.iter().map(|member| self.touch_one(call, member)).collect();
        self.hand_on(call);
        let listeners = u64::from((call.connected)(call.node.as_str()));
        self.reply(call, Touched { members, listeners })
    }

    fn touch_one(&mut self, call: &mut Call<'_>, member: &Member) -> Presence {
        let now_ms = call.now_ms();
        match self.whole(now_ms) {
            Some((holder, ends_ms)) if self.is_served(holder, member) => {
                if self.batch().is_empty() || !call.is_reported(member) {
                    self.report_whole(call, ends_ms - now_ms);
                }
                return Presence::Holding;
            }
            Some(_) => {}
            None => {
                if let Some(ends_ms) = self.held_until(member, now_ms) {
                    self.ensure_shared_token(call);
                    call.report(member, ends_ms - now_ms);
                    return Presence::Holding;
                }
            }
        }
        // Only an existing member is kept alive, because a touch that runs after a leave must
        // revive nothing.
        if self.bring_back(member) || self.queue.get(member).is_some() {
            self.raise(call);
            return Presence::Waiting;
        }
        let has_tombstone = call.has_tombstones && self.tombstones.get(member).is_some();
        if has_tombstone && member.keeps_newest() { Presence::Superseded } else { Presence::Gone }
    }

    /// Removes members from the queue, or releases them if they were granted the lock meanwhile.
    pub(super) fn leave(&mut self, call: &mut Call<'_>, leaving: &[Leaving]) -> Reply<Vec<Left>> {
        self.repair(call);
        let named = self.stored_holder().map(|(holder, _)| holder.clone());
        let outcome = leaving.iter().map(|one| self.leave_one(call, one)).collect();
        let whole = self.whole(call.now_ms()).filter(|(holder, _)| Some(*holder) != named.as_ref());
        if let Some((_, ends_ms)) = whole {
            self.report_whole(call, ends_ms - call.now_ms());
        }
        // Even if others hold the lock, because members behind a removed head may fit.
        self.hand_on(call);
        self.reply(call, outcome)
    }

    fn leave_one(&mut self, call: &mut Call<'_>, leaving: &Leaving) -> Left {
        let member = &leaving.member;
        let now_ms = call.now_ms();
        if leaving.ambiguous {
            self.tombstones.set(member, now_ms + TOMBSTONE_MS);
            call.has_tombstones = true;
        }
        let waited = self.drop_waiting(member);
        let held = match self.whole(now_ms) {
            Some((holder, _))
                if self.is_served(holder, member) || holder == member && !leaving.served =>
            {
                // The other batch members keep the hold.
                let is_shared = self.strike(member);
                match is_shared {
                    _ if leaving.served => {}
                    true => self.rename(member),
                    false => self.open(),
                }
                is_shared || !leaving.served
            }
            Some(_) => false,
            None if leaving.served => false,
            None => self.drop_hold(member),
        };
        if held || waited { Left::Left } else { Left::Absent }
    }

    /// Ends the hold of `member`, or all holds if it is `None`, without the holders' consent.
    pub(super) fn force_release(
        &mut self,
        call: &mut Call<'_>,
        member: Option<&Member>,
    ) -> Reply<Released> {
        self.repair(call);
        let now_ms = call.now_ms();
        let is_meant = |held: &Member| member.is_none_or(|member| member == held);
        let batch = self.batch().to_vec();
        let forced: Vec<Member> = match self.whole(now_ms) {
            Some((holder, _)) => {
                let is_meant =
                    is_meant(holder) || member.is_some_and(|member| self.is_served(holder, member));
                Vec::from_iter(is_meant.then(|| holder.clone()))
            }
            None => {
                let held = self.holds.iter().map(|(_, held)| held.clone());
                held.filter(is_meant).collect()
            }
        };
        for member in &forced {
            self.drop_any(now_ms, member);
            self.put_aside(call, member, &batch);
        }
        for (node, mut numbers) in by_node(&forced) {
            // Name all members of the batch, not only the first: a node that has not heard of the
            // batch yet only knows separate members.
            let others = batch.iter().filter(|number| !numbers.contains(number));
            numbers.extend(others.copied().collect::<Vec<_>>());
            call.messages.push(Message::Revoked { node, numbers });
        }
        self.hand_on(call);
        let outcome = if forced.is_empty() { Released::NotHeld } else { Released::Released };
        self.reply(call, outcome)
    }

    /// Returns the holds and the queue for operators; changes nothing.
    pub(super) fn inspect(&mut self, now_us: u64, from: u32, most: NonZeroU32) -> Inspection {
        let (from, most) = (from as usize, most.get() as usize);
        let now_ms = now_us / 1_000;
        let view = |member: &Member, weight: u64, ends_ms: u64| HoldView {
            party: member.into(),
            weight,
            left_ms: ends_ms.saturating_sub(now_ms),
        };
        let held = |(ends_ms, member): (u64, &Member)| view(member, self.weight(member), ends_ms);
        let mut waiters = Vec::new();
        let holds = match self.whole(now_ms) {
            Some((member, ends_ms)) => {
                // Batch members behind the first wait before all queued members.
                let mut batch = self.batch().iter().map(|number| member.renumbered(*number));
                let served = batch.next().unwrap_or_else(|| member.clone());
                let batch = batch.skip(from).take(most);
                waiters.extend(batch.map(|one| ((&one).into(), ends_ms)));
                vec![view(&served, ALL.into(), ends_ms)]
            }
            // An expired hold stays until its weight is needed, but is not shown.
            None => {
                let live = self.holds.iter().map(held).filter(|hold| hold.left_ms > 0);
                live.take(most).collect()
            }
        };
        let deadline = |member: &Member| self.patience.get(member.node()).copied().unwrap_or(0);
        let in_batch = self.whole(now_ms).map_or(0, |_| self.waiting_in_batch());
        let queued = self.queue.iter().skip(from.saturating_sub(in_batch));
        let queued = queued.take(most - waiters.len());
        waiters.extend(queued.map(|(_, one)| (one.into(), deadline(one))));
        let holding = if self.whole(now_ms).is_some() { 1 } else { self.holds.len() };
        Inspection {
            holding: holding as u64,
            waiting: (in_batch + self.queue.len()) as u64,
            holds,
            waiters,
            // If the holds were lost, the token in the lock key belongs to nobody.
            token: self.shared_token().filter(|_| !self.holds.is_empty()),
            now_us,
        }
    }

    /// Returns the reply of a command that had to read nothing but the lock key.
    fn short<T>(&mut self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        let now_ms = call.now_ms();
        Reply {
            outcome,
            first_end_ms: Some(self.whole(now_ms).map_or(0, |(_, ends_ms)| ends_ms - now_ms)),
            now_us: Some(call.now_us),
            skipped: 0,
            more: false,
            grants: call.take_reported(None),
        }
    }
}

/// Groups the ids of members by node. Nodes are in the order of their first members.
fn by_node(members: &[Member]) -> Vec<(NodeId, Vec<u64>)> {
    let mut by_node: Vec<(NodeId, Vec<u64>)> = Vec::new();
    for member in members {
        match by_node.iter_mut().find(|(node, _)| member.is_of(node)) {
            Some((_, numbers)) => numbers.push(member.number()),
            None => by_node.push((NodeId::from(member.node()), vec![member.number()])),
        }
    }
    by_node
}

/// Adds a shared hold to the reply to a repeated acquire, and returns the outcome.
fn report_again(call: &mut Call<'_>, member: &Member, ends_ms: u64) -> Acquired {
    let left_ms = ends_ms - call.now_ms();
    call.report(member, left_ms);
    Acquired::Granted
}
