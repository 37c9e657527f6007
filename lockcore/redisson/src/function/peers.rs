//! How a queue is shared with JVMs: the sorted set of scores that JVMs use, the separate liveness
//! deadlines of our waiters, and the search for dead JVM threads.

use proto::{Member, Party};

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, LockState, PATIENCE_MS};

/// By how much a JVM lowers the scores of all waiters behind it when it leaves the queue, in ms.
/// This is the default of JVMs.
pub const JVM_STEP_MS: u64 = 300_000;
/// How far the score of our waiter is in the future, in ms, if no JVM is ahead of it.
pub const SHORT_SCORE_MS: u64 = 60_000;
/// How far the score of a new waiter may exceed the score that it needs, in ms.
pub const SLACK_MS: u64 = 3_600_000;
/// How many waiters at the head of the queue are examined to find ours that have no JVM ahead.
pub const LEADING: usize = 64;
/// How long a waiting JVM thread may have no subscription before it is taken for dead, in ms.
pub const GRACE_MS: u64 = 8_000;
/// How long suspects (JVM threads without a subscription) are remembered, in ms.
pub const SUSPECTS_MS: u64 = 60_000;
/// How many waiters from the head of the queue are searched for suspects.
pub const LOOKED_AT: usize = 256;
/// How long the keys with our waiters' liveness deadlines and order of arrival are kept after the
/// last write, in ms.
pub const ALIVE_MS: u64 = 75_000;

/// The subscriptions of the JVM threads that share a queue.
#[derive(Clone, Copy)]
pub struct Peers<'a> {
    /// Returns true if the JVM thread has a subscription, and so would receive a wake-up.
    pub listens: &'a dyn Fn(&str) -> bool,
}

impl Default for Peers<'_> {
    /// Creates the value for no subscribed JVM.
    fn default() -> Self {
        Self { listens: &|_| false }
    }
}

impl std::fmt::Debug for Peers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Peers")
    }
}

/// The waiting JVM threads without a subscription, which may be dead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Suspects {
    /// When each thread was first found without a subscription, in ms since the epoch. The key is
    /// the member and its score, because the same thread may queue again.
    pub since_ms: BTreeMap<(Party, u64), u64>,
    /// When this record expires, in ms since the epoch.
    pub expire_ms: Option<u64>,
}

impl LockState {
    /// Returns until when a waiter is taken for alive, in ms since the epoch: for our waiter the
    /// liveness deadline, for a JVM the score. `None` if it has no score.
    pub(super) fn life(&self, member: &Party) -> Option<u64> {
        let score_ms = self.deadlines.get(member)?;
        Some(self.alive.get(member).unwrap_or(score_ms))
    }

    /// Returns the number of waiters, except ours whose liveness deadlines have passed.
    pub(super) fn live(&self, call: &Call<'_>) -> usize {
        self.queue.len().saturating_sub(self.alive.passed(call.now_ms()).count())
    }

    /// Adds a member at the end of the queue. The score is high enough to stay in the future after
    /// every JVM ahead has lowered it. A higher score of the last waiter is kept up to a limit,
    /// because JVMs base the scores of new waiters on it.
    pub(super) fn enqueue(&mut self, call: &Call<'_>, member: &Party) {
        let now_ms = call.now_ms();
        let last_ms = self.queue.back().and_then(|last| self.deadlines.get(last)).unwrap_or(0);
        let left_ms = self.hold.as_ref().map_or(0, |hold| {
            hold.expires_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms)).max(1)
        });
        let jvms_ahead = self.queue.len().saturating_sub(self.alive.len()) as u64;
        let enough_ms = now_ms + left_ms + JVM_STEP_MS * (jvms_ahead + 1);
        self.queue.push_back(member.clone());
        self.deadlines.set(member, last_ms.clamp(enough_ms, enough_ms + SLACK_MS));
        self.arrive(member);
        self.believe_alive(call, member, now_ms + PATIENCE_MS);
    }

    /// Records that the member is the latest of our waiters to arrive.
    fn arrive(&mut self, member: &Party) {
        self.arrivals.retain(|arrived| arrived != member);
        self.arrivals.push(member.clone());
    }

    /// Renews the liveness deadline of our waiter. The score rises by the elapsed time. If no JVM
    /// is ahead, the score is short instead: nobody lowers it any more, and a JVM should soon get
    /// past the waiter if we die.
    pub(super) fn raise(&mut self, call: &Call<'_>, member: &Party) {
        let patience_ms = call.now_ms() + PATIENCE_MS;
        let short_ms = call.now_ms() + SHORT_SCORE_MS;
        let lived_ms = self.alive.get(member).unwrap_or(patience_ms);
        let score_ms = self.deadlines.get(member).unwrap_or(0);
        let mut leading = self.queue.iter().take(LEADING).take_while(|m| m.ours().is_some());
        let score_ms = if leading.any(|m| m == member) {
            short_ms
        } else {
            short_ms.max(score_ms + patience_ms.saturating_sub(lived_ms))
        };
        self.deadlines.set(member, score_ms);
        self.raise_next_jvm(call);
        self.believe_alive(call, member, patience_ms.max(lived_ms));
    }

    /// Raises the score of the first JVM in the queue, if it is behind our waiters. A JVM bases its
    /// score on our short score, and would otherwise expire while we hold the lock.
    fn raise_next_jvm(&mut self, call: &Call<'_>) {
        let at = self.queue.iter().take(LEADING).position(|member| member.ours().is_none());
        let Some(next) = at.filter(|at| *at > 0).and_then(|at| self.queue.get(at)).cloned() else {
            return;
        };
        if let Some(score_ms) = self.deadlines.get(&next) {
            self.deadlines.set(&next, score_ms.max(call.now_ms() + JVM_STEP_MS));
        }
    }

    /// Restores our waiters that a JVM's clock or arithmetic has removed, at the head of the queue.
    /// All of them are restored together, in order of arrival: if each node restored only own
    /// members, the last node to do so would be first.
    pub(super) fn take_back(&mut self, call: &Call<'_>, touched: &[Member]) {
        let touched = touched.iter().map(Party::from);
        let out: Vec<_> = touched.filter(|member| self.is_out(call, member)).collect();
        if out.is_empty() {
            return;
        }
        for member in &out {
            if !self.arrivals.contains(member) {
                self.arrive(member);
            }
        }
        for member in self.arrivals.clone().iter().rev() {
            if !self.is_out(call, member) {
                continue;
            }
            if !self.queue.contains(member) {
                self.queue.push_front(member.clone());
            }
            self.deadlines.set(member, call.now_ms() + SHORT_SCORE_MS);
        }
    }

    /// Returns true if our member is waiting, but a JVM has removed it from the queue.
    fn is_out(&self, call: &Call<'_>, member: &Party) -> bool {
        self.alive.get(member).is_some_and(|ms| ms > call.now_ms())
            && self.deadlines.get(member).is_none()
            && !self.is_held_by(member)
    }

    /// Sets the liveness deadline of our waiter, and the expiry of the keys.
    pub(super) fn believe_alive(&mut self, call: &Call<'_>, member: &Party, until_ms: u64) {
        self.alive.set(member, until_ms);
        self.alive_expires_ms = Some(call.now_ms() + ALIVE_MS);
        // A JVM expects a queue without an expiry.
        self.queue_expires_ms = None;
    }

    /// Returns true if a JVM thread that was just woken is dead: it has no subscription, and its
    /// time to subscribe is over. `gone` caches the dead threads found in this call.
    pub(super) fn has_gone(
        &mut self,
        call: &Call<'_>,
        member: &Party,
        gone: &mut Option<BTreeSet<Party>>,
    ) -> bool {
        if !(call.peers.listens)(member.as_str()) {
            return gone.get_or_insert_with(|| self.look_for_gone(call)).contains(member);
        }
        self.suspects = Suspects::default();
        // Hand-offs between our members do not lower scores, so lower this one. The last score in
        // the queue stays, because new waiters base theirs on it.
        if self.queue.len() > 1 {
            let score_ms = self.deadlines.get(member).unwrap_or(0);
            self.deadlines.set(member, score_ms.min(call.now_ms() + JVM_STEP_MS));
        }
        false
    }

    /// Records the waiting JVM threads without a subscription as suspects, each with the time when
    /// it was first found so. Returns the threads whose time to subscribe is over, which count as
    /// dead. All threads are examined at once, so that the threads of a dead JVM cost a single
    /// grace period rather than one each.
    fn look_for_gone(&mut self, call: &Call<'_>) -> BTreeSet<Party> {
        let now_ms = call.now_ms();
        let mut gone = BTreeSet::new();
        let mut suspects = BTreeMap::new();
        for member in self.queue.iter().take(LOOKED_AT).filter(|member| member.ours().is_none()) {
            let Some(score_ms) = self.deadlines.get(member) else { continue };
            if (call.peers.listens)(member.as_str()) {
                continue;
            }
            let known = (member.clone(), score_ms);
            let since_ms = self.suspects.since_ms.get(&known).copied().unwrap_or(now_ms);
            if since_ms + GRACE_MS <= now_ms {
                gone.insert(member.clone());
            }
            suspects.insert(known, since_ms);
        }
        self.suspects = Suspects { since_ms: suspects, expire_ms: Some(now_ms + SUSPECTS_MS) };
        gone
    }
}
