//! How the lock is granted to waiters: the walk over the queue, grants, and the upkeep of holds and
//! liveness deadlines.

use super::{
    ASIDE_MS, Call, EMPTY_FRONT, FRESH_MS, IN_FRONT, Mark, Message, QueueState, WAITING_TTL_MS,
};
use crate::demand::{ALL, Demand};
use crate::member::{Member, NodeId};
use crate::{PATIENCE_MS, Reply, claim_ms};

/// The result of [`advance`](QueueState::advance), the walk over the queue that grants the lock to
/// waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// Every waiter was granted the lock, skipped, or removed, so the queue is empty.
    End,
    /// The walk ended before the queue's end: a member does not fit, everything is granted, or the
    /// command has reached its work limit.
    Stopped,
}

/// The walk's decision about a waiting member.
enum Fate {
    Dropped,
    Skipped,
    Granted,
    /// The walk ends before this member. `more` is true if the command has reached its work limit.
    Stops {
        more: bool,
    },
}

impl QueueState {
    /// Removes expired shared holds, then grants the lock to the waiters at the head of the queue.
    /// Does nothing during an exclusive hold or without waiters. Most commands end with this.
    pub(super) fn hand_on(&mut self, call: &mut Call<'_>) {
        // Without waiters, expired holds may stay, because the next request that does not fit
        // checks them.
        if self.whole(call.now_ms()).is_none() && !self.queue.is_empty() {
            self.reclaim(call);
            self.advance(call);
        }
    }

    /// Removes expired shared holds, up to the limit for one command.
    pub(super) fn reclaim(&mut self, call: &mut Call<'_>) {
        let passed = self.holds.passed(call.now_ms()).take(call.bounds.reclaimed);
        let lapsed: Vec<Member> = passed.cloned().collect();
        call.more |= lapsed.len() == call.bounds.reclaimed;
        for member in &lapsed {
            self.drop_hold(member);
        }
    }

    /// Walks over the queue from the head, and grants the lock until a demand does not fit beside
    /// the holds. Smaller demands behind it must wait too, because otherwise they could delay it
    /// forever. Members are skipped if their nodes are not connected, and removed if their nodes
    /// are dead.
    pub(super) fn advance(&mut self, call: &mut Call<'_>) -> Advanced {
        let mut connected: Vec<(Member, bool)> = Vec::new();
        let mut granted: Vec<(Member, u64)> = Vec::new();
        let mut advanced = Advanced::End;
        for looked_at in 0.. {
            let Some((score, member)) = self.queue.lowest() else { break };
            let member = member.clone();
            let fate = if looked_at == call.bounds.looked_at {
                Fate::Stops { more: true }
            } else {
                self.fate(call, &member, granted.len(), &mut connected)
            };
            match fate {
                Fate::Stops { more } => {
                    call.more |= more;
                    advanced = Advanced::Stopped;
                    break;
                }
                Fate::Dropped => {
                    self.queue.remove(&member);
                }
                Fate::Skipped => self.skip(call, &member, score),
                Fate::Granted => {
                    self.queue.remove(&member);
                    let left_ms = claim_ms(member.lease_ms());
                    let batch = self.take_batch(&member);
                    self.grant(call, &member, batch, left_ms, Mark::Waited);
                    granted.push((member, left_ms));
                    // Everything is taken, and no demand has a greater limit. With less taken, the
                    // next member may fit.
                    if self.used() >= u64::from(ALL) {
                        advanced = Advanced::Stopped;
                        break;
                    }
                }
            }
        }
        self.report_grants(call, granted);
        advanced
    }

    /// Removes from the queue the members that form a batch with `first`: the next members of the
    /// same node that differ only in their ids. Any other member ends the batch. Returns the ids of
    /// all batch members; empty if `first` is alone.
    fn take_batch(&mut self, first: &Member) -> Vec<u64> {
        if first.batch_limit() == 1 {
            return Vec::new();
        }
        let mut batch = vec![first.number()];
        while batch.len() < first.batch_limit()
            && let Some((_, next)) = self.queue.lowest()
            && first.shares_batch(next)
        {
            let next = next.clone();
            self.queue.remove(&next);
            batch.push(next.number());
        }
        if batch.len() > 1 { batch } else { Vec::new() }
    }

    fn fate(
        &self,
        call: &Call<'_>,
        member: &Member,
        granted: usize,
        connected: &mut Vec<(Member, bool)>,
    ) -> Fate {
        let demand = member.demand();
        if !self.is_patient(call, member) {
            return Fate::Dropped;
        }
        // Skip the member even if the demand does not fit. A writer of a disconnected node must not
        // block the readers behind. A permit of a disconnected node must not block requests with a
        // greater limit.
        if !Self::is_connected(call, member, connected) {
            return Fate::Skipped;
        }
        if !demand.fits(self.used()) {
            return Fate::Stops { more: false };
        }
        if granted == call.bounds.granted {
            return Fate::Stops { more: true };
        }
        Fate::Granted
    }

    /// Returns true if a message would reach the member's node. The result is cached in `known`,
    /// because all queued members belong to a few nodes.
    fn is_connected(call: &Call<'_>, member: &Member, known: &mut Vec<(Member, bool)>) -> bool {
        let node = member.node();
        if node == call.node.as_str() {
            return true;
        }
        if let Some((_, is_connected)) = known.iter().find(|(one, _)| one.node() == node) {
            return *is_connected;
        }
        let is_connected = (call.connected)(node);
        known.push((member.clone(), is_connected));
        is_connected
    }

    /// Returns true if the member's node is believed alive: before its liveness deadline, or if it
    /// sent this command.
    fn is_patient(&self, call: &Call<'_>, member: &Member) -> bool {
        member.node() == call.node.as_str() || self.patience.contains_key(member.node())
    }

    /// Skips a member whose node is not connected: takes it out of the queue, and sets it aside
    /// with its score. The node's next touch, the command that keeps waiters alive, puts it back.
    fn skip(&mut self, call: &mut Call<'_>, member: &Member, score: u64) {
        self.queue.remove(member);
        let set_aside = self.set_aside.entry(member.node().into()).or_default();
        // A late acquire may have queued the member at the tail while it was set aside. The better
        // score counts.
        let first = set_aside.members.get(member).map_or(score, |earlier| earlier.min(score));
        set_aside.members.set(member, first);
        set_aside.ends_ms = call.now_ms() + ASIDE_MS;
        call.skipped += 1;
    }

    /// Puts a skipped member back into the queue, with its old score. Returns true if it had been
    /// skipped.
    pub(super) fn bring_back(&mut self, member: &Member) -> bool {
        let Some(set_aside) = self.set_aside.get_mut(member.node()) else { return false };
        let Some(score) = set_aside.members.get(member) else { return false };
        set_aside.members.remove(member);
        self.queue.set(member, score);
        true
    }

    /// Reports the granted members: the calling node's in the reply, and each other node's in a
    /// message.
    fn report_grants(&self, call: &mut Call<'_>, granted: Vec<(Member, u64)>) {
        let Some(token) = call.token.or(self.shared_token()) else { return };
        let mut by_node: Vec<(String, Vec<(u64, u64)>)> = Vec::new();
        for (member, left_ms) in granted {
            // If a batch was granted, nothing else was.
            let batch = self.batch();
            if member.node() == call.node.as_str() {
                call.report_batch(&member, left_ms, batch);
                continue;
            }
            if !batch.is_empty() {
                let (node, numbers) = (NodeId::from(member.node()), batch.to_vec());
                call.messages.push(Message::Batch { node, token, left_ms, numbers });
                continue;
            }
            let grant = (member.number(), left_ms);
            match by_node.iter_mut().find(|(of, _)| of == member.node()) {
                Some((_, grants)) => grants.push(grant),
                None => by_node.push((member.node().to_owned(), vec![grant])),
            }
        }
        for (node, grants) in by_node {
            call.messages.push(Message::Grants { node: NodeId::from(&*node), token, grants });
        }
    }

    /// Grants the lock to a member for `left_ms` milliseconds. `batch` and `mark` apply only to an
    /// exclusive hold: the ids of the batch members, empty outside a batch, and the lock key's
    /// flag.
    pub(super) fn grant(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        batch: Vec<u64>,
        left_ms: u64,
        mark: Mark,
    ) {
        let ends_ms = call.now_ms() + left_ms;
        if member.demand() == Demand::EXCLUSIVE {
            call.issue_for(batch.len());
            return self.close(member, batch, mark, ends_ms);
        }
        self.set_parts(self.used() + member.demand().weight(), self.shared_token());
        self.ensure_shared_token(call);
        self.holds.set(member, ends_ms);
        call.keep(ends_ms);
    }

    /// Issues a token for the shared holds, unless they have one that is above everything seen on
    /// previous servers.
    pub(super) fn ensure_shared_token(&mut self, call: &mut Call<'_>) {
        // All shared holds have the same token, so that a resource with a single stored token
        // refuses every older holder, reads included. A previous server may have granted a lock
        // with an unknown token, at most `elsewhere_us`.
        let shared = self.shared_token().filter(|token| token.get() > call.elsewhere_us);
        let token = shared.unwrap_or_else(|| call.issue());
        self.set_parts(self.used(), Some(token));
    }

    /// Returns the time when the member's shared hold expires, in ms since the epoch; `None` if it
    /// has expired or does not exist.
    pub(super) fn held_until(&self, member: &Member, now_ms: u64) -> Option<u64> {
        self.holds.get(member).filter(|ends_ms| *ends_ms > now_ms)
    }

    /// Removes a shared hold, and subtracts its weight. Returns true if it existed.
    pub(super) fn drop_hold(&mut self, member: &Member) -> bool {
        if !self.holds.remove(member) {
            return false;
        }
        let used = self.used().checked_sub(self.weight(member));
        // Each hold weighs at least 1, or the sum was wrong. If the reduced weights were lost, this
        // hold counts as a lock, and the others would count as nothing.
        let is_right = |used: &u64| !self.holds.is_empty() && *used >= self.holds.len() as u64;
        let used = used.filter(is_right).unwrap_or_else(|| self.sum_of_weights());
        let token = self.shared_token().filter(|_| !self.holds.is_empty());
        self.set_parts(used, token);
        self.reduced.remove(member);
        true
    }

    /// Returns the sum of the weights of all shared holds.
    pub(super) fn sum_of_weights(&self) -> u64 {
        self.holds.iter().map(|(_, member)| self.weight(member)).sum()
    }

    /// Returns the members with these ids from a batch that has ended. Each has a score in front of
    /// all waiters, because the batch was granted at the queue's head. `name` is the member under
    /// which the hold was stored. Members with tombstones are left out.
    fn in_front(&self, call: &Call<'_>, name: &Member, numbers: &[u64]) -> Vec<(u64, Member)> {
        let front = self.queue.lowest().map_or(EMPTY_FRONT, |(at, _)| at.saturating_sub(IN_FRONT));
        let members = numbers.iter().map(|number| name.renumbered(*number));
        let is_buried =
            |member: &Member| call.has_tombstones && self.tombstones.get(member).is_some();
        // The scores end at `front`. If they began there, they could be among the scores of a batch
        // that was set aside before, because the head's score has grown only by this batch since.
        let first = front.saturating_sub(numbers.len() as u64);
        (first..).zip(members.filter(|member| !is_buried(member))).collect()
    }

    /// Puts members of an ended batch, whose turn had not come, back at the queue's front.
    pub(super) fn put_back(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        for (score, member) in self.in_front(call, name, numbers) {
            self.queue.set(&member, score);
            self.raise(call);
        }
    }

    /// Sets the members of a batch aside after its hold has expired or was force-released, because
    /// the server does not know who was served. The node's next touch, the command that keeps
    /// waiters alive, returns them to the queue's front. The node's liveness deadline may have
    /// expired meanwhile, because renewals of the hold do not extend it.
    pub(super) fn put_aside(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        if numbers.is_empty() {
            return;
        }
        let members = self.in_front(call, name, numbers);
        let set_aside = self.set_aside.entry(name.node().into()).or_default();
        for (score, member) in members {
            let first = set_aside.members.get(&member).map_or(score, |earlier| earlier.min(score));
            set_aside.members.set(&member, first);
        }
        set_aside.ends_ms = call.now_ms() + ASIDE_MS;
    }

    /// Removes a waiting or skipped member. Returns true if it existed.
    pub(super) fn drop_waiting(&mut self, member: &Member) -> bool {
        let was_aside = self
            .set_aside
            .get_mut(member.node())
            .is_some_and(|set_aside| set_aside.members.remove(member));
        self.queue.remove(member) || was_aside
    }

    /// Adds a member of the calling node at the queue's tail.
    pub(super) fn enqueue(&mut self, call: &mut Call<'_>, member: &Member) {
        let is_first = self.queue.is_empty();
        let score = call.score();
        self.queue.set(member, score);
        if !self.raise_low(call) && is_first {
            self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
        }
    }

    /// Extends the calling node's liveness deadline if less than [`FRESH_MS`] is left. Returns true
    /// if it did.
    pub(super) fn raise_low(&mut self, call: &Call<'_>) -> bool {
        let until_ms = self.patience.get(call.node.as_str()).copied().unwrap_or(0);
        let is_low = until_ms < call.now_ms() + FRESH_MS;
        if is_low {
            self.raise(call);
        }
        is_low
    }

    /// Extends the calling node's liveness deadline and the queue's expiry.
    pub(super) fn raise(&mut self, call: &Call<'_>) {
        self.patience.insert(call.node.as_str().into(), call.now_ms() + PATIENCE_MS);
        self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
    }

    /// Makes room in a full queue: removes waiters of dead nodes, among as many waiters at the head
    /// as one command may examine. `newcomers`, the members queued by this command, stay.
    pub(super) fn sweep(&mut self, call: &Call<'_>, newcomers: &[&Member]) {
        let before = self.queue.iter().filter(|(_, member)| !newcomers.contains(member));
        let first = before.take(call.bounds.looked_at);
        let ended = first.filter(|(_, member)| !self.is_patient(call, member));
        let ended: Vec<Member> = ended.map(|(_, member)| member.clone()).collect();
        for member in &ended {
            self.queue.remove(member);
        }
    }

    /// Ends a command: updates the lock key's flag and expiry, and returns the reply with this
    /// outcome.
    pub(super) fn reply<T>(&mut self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        self.update_lock_key(call);
        self.answer(call, outcome)
    }

    /// Returns the reply with this outcome. Unlike [`reply`](Self::reply), leaves the lock key as
    /// it is.
    pub(super) fn answer<T>(&self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        let now_ms = call.now_ms();
        let first_end_ms = match self.whole(now_ms) {
            Some((_, ends_ms)) => ends_ms - now_ms,
            None => {
                self.holds.lowest().map_or(0, |(ends_ms, _)| ends_ms.saturating_sub(now_ms).max(1))
            }
        };
        Reply {
            outcome,
            grants: call.take_reported(self.shared_token()),
            first_end_ms: Some(first_end_ms),
            now_us: Some(call.now_us),
            skipped: call.skipped,
            more: call.more,
        }
    }
}
