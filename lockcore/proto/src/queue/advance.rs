//! Granting, the walk along the queue, and the upkeep of holds and queue.

use super::{
    Call, EMPTY_FRONT, FRESH_MS, IN_FRONT, Mark, Message, PASSED_MS, QueueState, WAITING_TTL_MS,
};
use crate::demand::{ALL, Demand};
use crate::member::{Member, NodeId};
use crate::{PATIENCE_MS, Reply, claim_ms};

/// The end of a walk along the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// No connected member is left in the queue.
    End,
    /// A member waits for the next free weight.
    Stopped,
}

/// The fate of a member that the walk looks at.
enum Fate {
    Dropped,
    PassedOver,
    Granted,
    /// The walk ends in front of it; there is more to do if that is set.
    Stops {
        more: bool,
    },
}

impl QueueState {
    /// Takes out holds whose leases have ended, and grants the free weight, if there are waiters.
    pub(super) fn hand_on(&mut self, call: &mut Call<'_>) {
        // With none to grant it to, lapsed holds may stay: the next that does not fit looks.
        if self.whole(call.now_ms()).is_none() && !self.queue.is_empty() {
            self.reclaim(call);
            self.advance(call);
        }
    }

    /// Takes out holds whose leases have ended.
    pub(super) fn reclaim(&mut self, call: &mut Call<'_>) {
        let passed = self.holds.passed(call.now_ms()).take(call.bounds.reclaimed);
        let lapsed: Vec<Member> = passed.cloned().collect();
        call.more |= lapsed.len() == call.bounds.reclaimed;
        for member in &lapsed {
            self.drop_hold(member);
        }
    }

    /// Grants, from the head on, as long as it fits. A head that does not fit keeps the free
    /// weight: otherwise small requests would starve large ones. Members whose nodes are away go
    /// out of the queue when they are first met, so that they are walked over once.
    pub(super) fn advance(&mut self, call: &mut Call<'_>) -> Advanced {
        let mut connected: Vec<(Member, bool)> = Vec::new();
        let mut told: Vec<(Member, u64)> = Vec::new();
        let mut advanced = Advanced::End;
        for looked_at in 0.. {
            let Some((place, member)) = self.queue.lowest() else { break };
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
                Fate::PassedOver => self.pass_over(call, &member, place),
                Fate::Granted => {
                    self.queue.remove(&member);
                    let left_ms = claim_ms(member.lease_ms());
                    let run = self.take_run(&member);
                    self.grant(call, &member, run, left_ms, Mark::Waited);
                    told.push((member, left_ms));
                    // All is taken: no limit is greater. By a smaller one, the next may have room.
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

    /// Takes the members out of the queue that are served in one run with the first: those of its
    /// node that come next, and differ in their numbers only. One of another node, with another
    /// lease or to be served alone ends the run in front of it.
    fn take_run(&mut self, first: &Member) -> Vec<u64> {
        if first.run_limit() == 1 {
            return Vec::new();
        }
        let mut run = vec![first.number()];
        while run.len() < first.run_limit()
            && let Some((_, next)) = self.queue.lowest()
            && first.shares_run(next)
        {
            let next = next.clone();
            self.queue.remove(&next);
            run.push(next.number());
        }
        if run.len() > 1 { run } else { Vec::new() }
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
        // Whether it would fit or not: a dead writer must not keep out the readers behind it, nor a
        // dead permit those of a greater limit.
        if !Self::is_connected(call, member, connected) {
            return Fate::PassedOver;
        }
        if !demand.fits(self.used()) {
            return Fate::Stops { more: false };
        }
        if granted == call.bounds.granted {
            return Fate::Stops { more: true };
        }
        Fate::Granted
    }

    /// Whether a message reaches the member's node. Asked once for each node, and told by `known`
    /// from then on: a few nodes have all the members of a queue.
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

    /// Whether the member's node was heard of lately. The caller's is, by this very command.
    fn is_patient(&self, call: &Call<'_>, member: &Member) -> bool {
        member.node() == call.node.as_str() || self.patience.contains_key(member.node())
    }

    /// Puts a member aside with its place. Its node's next touch puts it back.
    fn pass_over(&mut self, call: &mut Call<'_>, member: &Member, place: u64) {
        self.queue.remove(member);
        let passed = self.passed.entry(member.node().into()).or_default();
        // An acquire that ran late has queued it at the end, while it stood aside.
        let first = passed.members.get(member).map_or(place, |aside| aside.min(place));
        passed.members.set(member, first);
        passed.ends_ms = call.now_ms() + PASSED_MS;
        call.passed_over += 1;
    }

    /// Puts a member back into its place; tells whether it was passed over.
    pub(super) fn bring_back(&mut self, member: &Member) -> bool {
        let Some(passed) = self.passed.get_mut(member.node()) else { return false };
        let Some(place) = passed.members.get(member) else { return false };
        passed.members.remove(member);
        self.queue.set(member, place);
        true
    }

    /// Tells the caller of its own by the reply, and others by one message a node.
    fn tell(&self, call: &mut Call<'_>, told: Vec<(Member, u64)>) {
        let Some(token) = call.token.or(self.shared_token()) else { return };
        let mut by_node: Vec<(String, Vec<(u64, u64)>)> = Vec::new();
        for (member, left_ms) in told {
            // Of a lock that was granted: nothing else was.
            let run = self.run();
            if member.node() == call.node.as_str() {
                call.tell_run(&member, left_ms, run);
                continue;
            }
            if !run.is_empty() {
                let (node, numbers) = (NodeId::from(member.node()), run.to_vec());
                call.messages.push(Message::Run { node, token, left_ms, numbers });
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

    /// Grants the member its demand, for `left`. A hold of everything gets this run and this mark.
    pub(super) fn grant(
        &mut self,
        call: &mut Call<'_>,
        member: &Member,
        run: Vec<u64>,
        left_ms: u64,
        mark: Mark,
    ) {
        let ends_ms = call.now_ms() + left_ms;
        if member.demand() == Demand::EXCLUSIVE {
            call.issue_for(run.len());
            return self.close(member, run, mark, ends_ms);
        }
        // All holds there are have one token, so one register refuses whatever is older, reads as
        // well. A server before this one may have granted a lock whose token is not known here: it
        // is not above the times of that server.
        let shared = self.shared_token().filter(|token| token.get() > call.elsewhere_us);
        let token = shared.unwrap_or_else(|| call.issue());
        self.set_parts(self.used() + member.demand().weight(), Some(token));
        self.holds.set(member, ends_ms);
        call.keep(ends_ms);
    }

    /// The end of the lease of the member's part, if it has not passed.
    pub(super) fn held_until(&self, member: &Member, now_ms: u64) -> Option<u64> {
        self.holds.get(member).filter(|ends_ms| *ends_ms > now_ms)
    }

    /// Takes a part out with the weight that it has now; tells whether it was there.
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

    /// The members of these numbers that may wait, with places in front of the queue. They were at
    /// its head before the run of this name was granted.
    fn in_front(&self, call: &Call<'_>, name: &Member, numbers: &[u64]) -> Vec<(u64, Member)> {
        let front = self.queue.lowest().map_or(EMPTY_FRONT, |(at, _)| at.saturating_sub(IN_FRONT));
        let members = numbers.iter().map(|number| name.renumbered(*number));
        let is_buried = |member: &Member| call.has_gone && self.gone.get(member).is_some();
        (front..).zip(members.filter(|member| !is_buried(member))).collect()
    }

    /// Puts members of a run back in front of the queue.
    pub(super) fn put_back(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        for (place, member) in self.in_front(call, name, numbers) {
            self.queue.set(&member, place);
            self.raise(call);
        }
    }

    /// Puts all members of a run aside, which ended without its node: the server does not know
    /// which of them still wait. Those that the node touches come back in front of the queue.
    pub(super) fn put_aside(&mut self, call: &Call<'_>, name: &Member, numbers: &[u64]) {
        if numbers.is_empty() || !self.is_patient(call, name) {
            return;
        }
        let members = self.in_front(call, name, numbers);
        let passed = self.passed.entry(name.node().into()).or_default();
        for (place, member) in members {
            let first = passed.members.get(&member).map_or(place, |aside| aside.min(place));
            passed.members.set(&member, first);
        }
        passed.ends_ms = call.now_ms() + PASSED_MS;
    }

    /// Takes a waiting member out; tells whether it was there.
    pub(super) fn drop_waiting(&mut self, member: &Member) -> bool {
        let was_passed =
            self.passed.get_mut(member.node()).is_some_and(|passed| passed.members.remove(member));
        self.queue.remove(member) || was_passed
    }

    /// Adds a member at the end.
    pub(super) fn enqueue(&mut self, call: &mut Call<'_>, member: &Member) {
        let is_first = self.queue.is_empty();
        let place = call.place();
        self.queue.set(member, place);
        if !self.raise_low(call) && is_first {
            self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
        }
    }

    /// Renews the patience of the caller's waiting members, if little is left.
    pub(super) fn raise_low(&mut self, call: &Call<'_>) -> bool {
        let until_ms = self.patience.get(call.node.as_str()).copied().unwrap_or(0);
        let is_low = until_ms < call.now_ms() + FRESH_MS;
        if is_low {
            self.raise(call);
        }
        is_low
    }

    /// Renews the patience of the caller's waiting members.
    pub(super) fn raise(&mut self, call: &Call<'_>) {
        self.patience.insert(call.node.as_str().into(), call.now_ms() + PATIENCE_MS);
        self.queue_ends_ms = Some(call.now_ms() + WAITING_TTL_MS);
    }

    /// Drops members whose patience has ended, among the first that waited before this command.
    pub(super) fn sweep(&mut self, call: &Call<'_>, newcomers: &[&Member]) {
        let before = self.queue.iter().filter(|(_, member)| !newcomers.contains(member));
        let first = before.take(call.bounds.looked_at);
        let ended = first.filter(|(_, member)| !self.is_patient(call, member));
        let ended: Vec<Member> = ended.map(|(_, member)| member.clone()).collect();
        for member in &ended {
            self.queue.remove(member);
        }
    }

    /// The outcome with the rest of an answer.
    pub(super) fn reply<T>(&mut self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        self.settle(call);
        self.answer(call, outcome)
    }

    /// The same of a command that has written nothing.
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
            passed_over: call.passed_over,
            more: call.more,
        }
    }
}
