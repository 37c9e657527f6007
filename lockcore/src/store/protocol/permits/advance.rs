//! Granting, the walk along the queue, and the upkeep of holds and queue.

use std::collections::BTreeMap;

use super::{ALL, Call, Era, Message, PermitState};
use crate::member::{Member, NodeId};
use crate::store::protocol::{Grant, PASSED_OVER_MS, PATIENCE_MS, Reply, SWEEP, claim_ms};
use crate::token::FencingToken;

/// What came of walking along the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advanced {
    /// No connected member is left in the queue.
    End,
    /// A member waits that is to have what comes free next.
    Stopped,
}

impl PermitState {
    /// What was lost is computed again, before anything is decided by it.
    pub(super) fn heal(&mut self, call: &mut Call<'_>) {
        call.is_waited_for = !self.queue.is_empty();
        if !call.is_waited_for {
            self.deadlines.clear();
        }
        if self.holds.is_empty() {
            self.used = self.used.map(|_| 0);
            return;
        }
        if self.used.is_none() {
            self.used = Some(self.holds.iter().map(|(_, member)| self.weight(member)).sum());
        }
        if self.token.is_none() {
            self.issue_token(call);
        }
    }

    /// If anybody waits as the command begins: takes out what has lapsed, and hands on what is
    /// free.
    pub(super) fn hand_on(&mut self, call: &mut Call<'_>) {
        // With none to grant it to, what has lapsed may stay: the next who does not fit looks.
        if call.is_waited_for {
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

    /// Grants, from the head on, as long as it fits. A head that does not fit keeps what is free:
    /// otherwise small requests would starve large ones.
    pub(super) fn advance(&mut self, call: &mut Call<'_>) -> Advanced {
        let now_ms = call.now_ms();
        let mut used = self.used();
        let (mut dropped, mut passed_over, mut granted) = (Vec::new(), Vec::new(), Vec::new());
        let mut connected: BTreeMap<&str, bool> = BTreeMap::from([(call.node.as_str(), true)]);
        let mut advanced = Advanced::End;
        for (looked_at, (_, member)) in self.queue.iter().enumerate() {
            let demand = member.demand();
            if looked_at == call.bounds.looked_at {
                // Had none been taken out, the next command would look at the same ones again,
                // and say so again.
                call.more |= !(dropped.is_empty() && granted.is_empty());
                advanced = Advanced::Stopped;
                break;
            }
            if self.deadline(member) <= now_ms {
                dropped.push(member.clone());
                continue;
            }
            // Nothing is free by its limit: then it makes no difference whether it is connected.
            if used >= demand.limit() {
                advanced = Advanced::Stopped;
                break;
            }
            // Whether it would fit or not: a dead writer must not keep out the readers behind it.
            if !*connected.entry(member.node()).or_insert_with(|| (call.connected)(member.node())) {
                passed_over.push(member.clone());
                continue;
            }
            if !demand.fits(used) {
                advanced = Advanced::Stopped;
                break;
            }
            if granted.len() == call.bounds.granted {
                call.more = true;
                advanced = Advanced::Stopped;
                break;
            }
            used += demand.weight();
            granted.push(member.clone());
            // All is taken: no limit is greater. By a smaller one, the next may have room.
            if used >= u64::from(ALL) {
                advanced = Advanced::Stopped;
                break;
            }
        }
        for member in dropped.iter().chain(&granted) {
            self.drop_waiting(member);
        }
        self.lower(now_ms, &passed_over);
        call.passed_over += passed_over.len() as u64;
        self.grant_claims(call, &granted);
        advanced
    }

    fn grant_claims(&mut self, call: &mut Call<'_>, granted: &[Member]) {
        let mut by_node: Vec<(&str, Vec<(u64, u64)>)> = Vec::new();
        for member in granted {
            let left_ms = claim_ms(member.lease_ms());
            self.grant(call, member, left_ms);
            let told = (member.number(), left_ms);
            if member.is_of(call.node) {
                call.tell(member, left_ms);
            } else if let Some((_, grants)) =
                by_node.iter_mut().find(|(of, _)| *of == member.node())
            {
                grants.push(told);
            } else {
                by_node.push((member.node(), vec![told]));
            }
        }
        let Some(token) = self.token else { return };
        for (node, grants) in by_node {
            call.messages.push(Message::Grants { node: NodeId::of(node), token, grants });
        }
    }

    /// Gives the member what it asks for, for so long.
    pub(super) fn grant(&mut self, call: &Call<'_>, member: &Member, left_ms: u64) {
        let is_write = member.demand() == super::Demand::WRITE;
        // All holds there are have one token, so one register refuses whatever is older, reads as
        // well. A server before this one may have granted a write whose token is not known here: it
        // is not above the times of that server.
        let is_old = self.token.is_none_or(|token| token.get() <= call.elsewhere_us);
        if is_write || is_old || self.era != Some(Era::Shared) {
            self.issue_token(call);
        }
        self.era = Some(if is_write { Era::Exclusive } else { Era::Shared });
        self.used = Some(self.used() + member.demand().weight());
        self.holds.set(member, call.now_ms() + left_ms);
        self.keep(call.now_ms() + left_ms);
    }

    /// A token above all before it.
    pub(super) fn issue_token(&mut self, call: &Call<'_>) {
        self.token = Some(FencingToken::after(self.token, call.seen_us, call.now_us));
    }

    pub(super) fn used(&self) -> u64 {
        self.used.unwrap_or(0)
    }

    /// When the member's lease ends, if it holds and its lease has not ended.
    pub(super) fn held_until(&self, member: &Member, now_ms: u64) -> Option<u64> {
        self.holds.get(member).filter(|ends_ms| *ends_ms > now_ms)
    }

    /// Takes a hold out with the weight that it has now; tells whether it was there.
    pub(super) fn drop_hold(&mut self, member: &Member) -> bool {
        if !self.holds.remove(member) {
            return false;
        }
        self.used = Some(self.used().saturating_sub(self.weight(member)));
        self.reduced.remove(member);
        true
    }

    /// Up to when a waiting member is believed alive.
    fn deadline(&self, member: &Member) -> u64 {
        self.deadlines.get(member).unwrap_or(0)
    }

    /// Takes a waiting member out; tells whether it was there.
    pub(super) fn drop_waiting(&mut self, member: &Member) -> bool {
        self.deadlines.remove(member);
        self.queue.remove(member)
    }

    /// Adds a member at the end.
    pub(super) fn enqueue(&mut self, member: &Member, now_ms: u64) {
        let place = self.queue.greatest().map_or(1, |(last, _)| last + 1);
        self.queue.set(member, place);
        self.raise(member, now_ms);
    }

    /// Renews a waiting member's patience.
    pub(super) fn raise(&mut self, member: &Member, now_ms: u64) {
        let until_ms = now_ms + PATIENCE_MS;
        self.deadlines.set(member, self.deadline(member).max(until_ms));
        self.keep(until_ms);
    }

    /// Leaves members whose nodes are away in their places, but not for long.
    fn lower(&mut self, now_ms: u64, passed_over: &[Member]) {
        for member in passed_over {
            self.deadlines.set(member, self.deadline(member).min(now_ms + PASSED_OVER_MS));
        }
    }

    /// Drops a few whose deadline has passed, wherever they stand.
    pub(super) fn sweep(&mut self, now_ms: u64) {
        let ghosts: Vec<Member> = self.deadlines.passed(now_ms).take(SWEEP).cloned().collect();
        for ghost in &ghosts {
            self.drop_waiting(ghost);
        }
    }

    /// The outcome with the rest of an answer.
    pub(super) fn reply<T>(&mut self, call: &mut Call<'_>, outcome: T) -> Reply<T> {
        let has_content = self.used.is_some() || self.token.is_some();
        if self.ends_ms.is_none() && has_content {
            self.keep(call.now_ms());
        }
        // One token is that of every hold there is.
        let token = self.token;
        let grants = std::mem::take(&mut call.grants).into_iter();
        let grants = grants
            .filter_map(|(member, left_ms)| token.map(|token| Grant { member, token, left_ms }));
        let first_end = self.holds.lowest();
        let left_ms = |ends_ms: u64| ends_ms.saturating_sub(call.now_ms()).max(1);
        Reply {
            outcome,
            first_end_ms: Some(first_end.map_or(0, |(ends_ms, _)| left_ms(ends_ms))),
            now_us: Some(call.now_us),
            passed_over: call.passed_over,
            more: call.more,
            grants: grants.collect(),
            foreign: false,
        }
    }
}
