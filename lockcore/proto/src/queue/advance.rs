//! Grants, the queue walk, and the upkeep of holds and queue.

use super::{
    ASIDE_MS, Call, EMPTY_FRONT, FRESH_MS, IN_FRONT, Mark, Message, QueueState, WAITING_TTL_MS,
};
use crate::demand::{ALL, Demand};
use crate::member::{Member, NodeId};
use crate::{PATIENCE_MS, Reply, claim_ms};

/// How a queue walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// No connected member is left in the queue.
    End,
    /// A member waits for the next free weight.
    Stopped,
}

/// What happens to a member in the walk.
enum Fate {
    Dropped,
    Skipped,
    Granted,
    /// The walk ends before this member; `more` if work is left.
    Stops {
        more: bool,
    },
}

impl QueueState {
    /// Removes expired holds, and grants the free weight, if there are waiters.
    pub(super) fn hand_on(&mut self, call: &mut Call<'_>) {
        // Without waiters, expired holds may stay: the next request that does not fit checks them.
        if self.whole(call.now_ms()).is_none() && !self.queue.is_empty() {
            self.reclaim(call);
            self.advance(call);
        }
    }

    /// Removes expired holds.
    pub(super) fn reclaim(&mut self, call: &mut Call<'_>) {
        let passed = self.holds.passed(call.now_ms()).take(call.bounds.reclaimed);
        let lapsed: Vec<Member> = passed.cloned().collect();
        call.more |= lapsed.len() == call.bounds.reclaimed;
        for member in &lapsed {
            self.drop_hold(member);
        }
    }

    /// Grants, from the head on, as long as the demand fits. A head that does not fit keeps the
    /// free weight: otherwise small requests would starve large ones. Members of disconnected nodes
    /// leave the queue at the first encounter, so that they are walked over once.
    pub(super) fn advance(&mut self, call: &mut Call<'_>) -> Advanced {
        let mut connected: Vec<(Member, bool)> = Vec::new();
        let mut told: Vec<(Member, u64)> = Vec::new();
        let mut advanced = Advanced::End;
        for looked_at in 0.. {
            let Some((score, member)) = self.queue.lowest() else { break };
            let member = member.clone();
            let fate = if looked_at == call.bounds.looked_at {
                Fate::Stops { more: true }
            } else {
                self.fate(call, &member, told.len(), &mut connected)
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
                    told.push((member, left_ms));
                    // Everything is taken: no limit is greater. With less, the next member may have
                    // a greater limit.
                    if self.used() >= u64::from(ALL) {
                        advanced = Advanced::Stopped;
                        break;
                    }
                }
            }
        }
        self.tell(call, told);
        advanced
    }

    /// Dequeues the members that form a batch with the first: the next members from the same node
    /// that differ only in id. A member of another node, with another lease or to be served alone
    /// ends the batch.
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
        // Whether the demand fits or not: a dead writer must not block the readers behind it, nor a
        // dead permit those with a greater limit.
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

    /// Whether a message reaches the member's node. Checked once per node, and cached in `known`:
    /// all queued members belong to a few nodes.
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

    /// Whether the member's node is alive. The caller's node is, as this very command shows.
    fn is_patient(&self, call: &Call<'_>, member: &Member) -> bool {
        member.node() == call.node.as_str() || self.patience.contains_key(member.node())
    }

    /// Sets a member aside with the score. The node's next touch puts it back.
    fn skip(&mut self, call: &mut Call<'_>, member: &Member, score: u64) {
        self.queue.remove(member);
        let aside = self.aside.entry(member.node().into()).or_default();
        // A late acquire has queued it at the end while it was aside.
        let first = aside.members.get(member).map_or(score, |aside| aside.min(score));
        aside.members.set(member, first);
        aside.ends_ms = call.now_ms() + ASIDE_MS;
        call.skipped += 1;
    }

    /// Puts a skipped member back at the old score. Returns whether it was skipped.
    pub(super) fn bring_back(&mut self, member: &Member) -> bool {
        let Some(aside) = self.aside.get_mut(member.node()) else { return false };
        let Some(score) = aside.members.get(member) else { return false };
        aside.members.remove(member);
        self.queue.set(member, score);
        true
    }

    /// Notifies the caller in the reply, and other nodes by one message each.
    fn tell(&self, call: &mut Call<'_>, told: Vec<(Member, u64)>) {
        let Some(token) = call.token.or(self.shared_token()) else { return };
        let mut by_node: Vec<(String, Vec<(u64, u64)>)> = Vec::new();
        for (member, left_ms) in told {
            // A granted lock's batch: nothing else was granted.
            let batch = self.batch();
            if member.node() == call.node.as_str() {
                call.tell_batch(&member, left_ms, batch);
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

    /// Grants the member its demand, for `left_ms`. An exclusive hold gets this batch and flag.
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
        // All current holds share one token, so that a single register refuses whatever is older,
        // including reads. A previous server may have granted a lock whose token is unknown here:
        // that token is not above the previous server's times.
        let shared = self.shared_token().filter(|token| token.get() > call.elsewhere_us);
        let token = shared.unwrap_or_else(|| call.issue());
        self.set_parts(self.used() + member.demand().weight(), Some(token));
        self.holds.set(member, ends_ms);
        call.keep(ends_ms);
    }

    /// Returns when the member's shared hold expires, if it has not expired.
    pub(super) fn held_until(&self, member: &Member, now_ms: u64) -> Option<u64> {
        self.holds.get(member).filter(|ends_ms| *ends_ms > now_ms)
    }

    /// Removes a shared hold with the current weight. Returns whether it existed.
    pub(super) fn drop_hold(&mut self, member: &Member) -> bool {
        if !self.holds.remove(member) {
            return false;
        }
        let used = self.used().saturating_sub(self.weight(member));
        let token = self.shared_token().filter(|_| !self.holds.is_empty());
        self.set_parts(if self.holds.is_empty() { 0 } else { used }, token);
        self.reduced.remove(member);
        true
    }

    /// Returns the members with these ids that may wait, with scores ahead of all waiters. They
    /// were at the head before the batch under this name was granted.
    fn in_front(&self, call: &Call<'_>, name: &Member, numbers: &[u64]) -> Vec<(u64, Member)> {
        let front = self.queue.lowest().map_or(EMPTY_FRONT, |(at, _)| at.saturating_sub(IN_FRONT));
        let members = numbers.iter().map(|number| name.renumbered(*number));
        let is_buried =
            |member: &Member| call.has_tombstones && self.tombstones.get(member).is_some();
        (front..).zip(members.filter(|member| !is_buried(member))).collect()
    }

    /// Puts batch members back at the queue's front.
    pub(super) fn put_back(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        for (score, member) in self.in_front(call, name, numbers) {
            self.queue.set(&member, score);
            self.raise(call);
        }
    }

    /// Sets a batch's members aside when it has ended without the node: the server does not know
    /// which of them still wait. Touched members return to the queue's front.
    pub(super) fn put_aside(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        if numbers.is_empty() || !self.is_patient(call, name) {
            return;
        }
        let members = self.in_front(call, name, numbers);
        let aside = self.aside.entry(name.node().into()).or_default();
        for (score, member) in members {
            let first = aside.members.get(&member).map_or(score, |aside| aside.min(score));
            aside.members.set(&member, first);
        }
        aside.ends_ms = call.now_ms() + ASIDE_MS;
    }

    /// Removes a waiting member. Returns whether it existed.
    pub(super) fn drop_waiting(&mut self, member: &Member) -> bool {
        let was_aside =
            self.aside.get_mut(member.node()).is_some_and(|aside| aside.members.remove(member));
        self.queue.remove(member) || was_aside
    }

    /// Appends a member to the queue.
    pub(super) fn enqueue(&mut self, call: &mut Call<'_>, member: &Member) {
        let is_first = self.queue.is_empty();
        let score = call.score();
        self.queue.set(member, score);
        if !self.raise_low(call) && is_first {
            self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
        }
    }

    /// Renews the calling node's liveness deadline, if little is left.
    pub(super) fn raise_low(&mut self, call: &Call<'_>) -> bool {
        let until_ms = self.patience.get(call.node.as_str()).copied().unwrap_or(0);
        let is_low = until_ms < call.now_ms() + FRESH_MS;
        if is_low {
            self.raise(call);
        }
        is_low
    }

    /// Renews the calling node's liveness deadline.
    pub(super) fn raise(&mut self, call: &Call<'_>) {
        self.patience.insert(call.node.as_str().into(), call.now_ms() + PATIENCE_MS);
        self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
    }

    /// Removes dead members among the first that waited before this command.
    pub(super) fn sweep(&mut self, call: &Call<'_>, newcomers: &[&Member]) {
        let before = self.queue.iter().filter(|(_, member)| !newcomers.contains(member));
        let first = before.take(call.bounds.looked_at);
        let ended = first.filter(|(_, member)| !self.is_patient(call, member));
        let ended: Vec<Member> = ended.map(|(_, member)| member.clone()).collect();
        for member in &ended {
            self.queue.remove(member);
        }
    }

    /// Writes the lock key, and returns the reply with this outcome.
    pub(super) fn reply<T>(&mut self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        self.settle(call);
        self.answer(call, outcome)
    }

    /// Returns the reply for a command that has written nothing.
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
            grants: call.told(self.shared_token()),
            first_end_ms: Some(first_end_ms),
            now_us: Some(call.now_us),
            skipped: call.skipped,
            more: call.more,
        }
    }
}
