//! The sorted set by which JVMs judge: how long members are believed alive beside it, their scores
//! in it, and foreign members that are gone.

use proto::{Member, Party};

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, LockState, PATIENCE_MS};

/// The time that a JVM subtracts from every score behind it when it leaves the queue, by default.
pub const JVM_STEP_MS: u64 = 300_000;
/// The score ahead of the clock of ours that have no foreign member before them.
pub const SHORT_SCORE_MS: u64 = 60_000;
/// The most that a newcomer's score may be above a sufficient one.
pub const SLACK_MS: u64 = 3_600_000;
/// The number of members at the head of the queue that are searched for those without a foreign
/// member before them.
pub const LEADING: usize = 64;
/// The time that a foreign member has to subscribe once it was found not to hear.
pub const GRACE_MS: u64 = 8_000;
/// The time for which suspects are remembered.
pub const SUSPECTS_MS: u64 = 60_000;
/// The number of members at the head of the queue that are searched for suspects.
pub const LOOKED_AT: usize = 256;
/// The time by which our deadlines outlive the last that was written.
pub const ALIVE_MS: u64 = 75_000;

/// The other side of a shared queue.
#[derive(Clone, Copy)]
pub struct Peers<'a> {
    /// Whether a foreign member would hear that it is to come.
    pub listens: &'a dyn Fn(&str) -> bool,
}

impl Default for Peers<'_> {
    /// None of them hears.
    fn default() -> Self {
        Self { listens: &|_| false }
    }
}

impl std::fmt::Debug for Peers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Peers")
    }
}

/// The foreign members that do not hear.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Suspects {
    /// The time at which each was first found, by the member and its score: the same thread may
    /// queue again.
    pub since_ms: BTreeMap<(Party, u64), u64>,
    /// The expiry of the record.
    pub expire_ms: Option<u64>,
}

impl LockState {
    /// The end of the time in which a waiting member is believed alive; `None` without a score.
    pub(super) fn life(&self, member: &Party) -> Option<u64> {
        let score_ms = self.deadlines.get(member)?;
        Some(self.alive.get(member).unwrap_or(score_ms))
    }

    /// The number of waiters that are believed alive.
    pub(super) fn live(&self, call: &Call<'_>) -> usize {
        self.queue.len().saturating_sub(self.alive.passed(call.now_ms()).count())
    }

    /// Adds a member at the end. Its score is high enough to stay in the future when every foreign
    /// member ahead has subtracted its step; a higher one of the last, on which JVMs build theirs,
    /// is kept for a while.
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

    /// The member is the last of ours that has come.
    fn arrive(&mut self, member: &Party) {
        self.arrivals.retain(|arrived| arrived != member);
        self.arrivals.push(member.clone());
    }

    /// Renews a waiting member's patience. Its score rises with the time that has passed. Where no
    /// foreign member stands before it, it is short: none subtracts from it any more, and a JVM
    /// is to get past it soon if we die.
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

    /// The first JVM behind us has built its score on a short one of ours: it does not run out
    /// while we hold the lock.
    fn raise_next_jvm(&mut self, call: &Call<'_>) {
        let at = self.queue.iter().take(LEADING).position(|member| member.ours().is_none());
        let Some(next) = at.filter(|at| *at > 0).and_then(|at| self.queue.get(at)).cloned() else {
            return;
        };
        if let Some(score_ms) = self.deadlines.get(&next) {
            self.deadlines.set(&next, score_ms.max(call.now_ms() + JVM_STEP_MS));
        }
    }

    /// A member that a JVM's clock or arithmetic has thrown out gets its place at the head back,
    /// and all others of ours with it, in the order in which they came: were each put back by its
    /// own node, the last node to look would be first.
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

    /// Whether a member of ours waits, but a JVM has thrown it out.
    fn is_out(&self, call: &Call<'_>, member: &Party) -> bool {
        self.alive.get(member).is_some_and(|ms| ms > call.now_ms())
            && self.deadlines.get(member).is_none()
            && !self.is_held_by(member)
    }

    /// Writes a deadline of our own, and gives the keys the expiry that goes with it.
    pub(super) fn believe_alive(&mut self, call: &Call<'_>, member: &Party, until_ms: u64) {
        self.alive.set(member, until_ms);
        self.alive_expires_ms = Some(call.now_ms() + ALIVE_MS);
        // A JVM expects its queue not to expire.
        self.queue_expires_ms = None;
    }

    /// Whether a foreign member that is told to come is gone: it does not hear, and has had its
    /// time to subscribe. `gone` are those that are known to be gone in this call.
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
        // Hand-overs among ours subtract nothing. Not the last one's: newcomers build on it.
        if self.queue.len() > 1 {
            let score_ms = self.deadlines.get(member).unwrap_or(0);
            self.deadlines.set(member, score_ms.min(call.now_ms() + JVM_STEP_MS));
        }
        false
    }

    /// Suspects every foreign member that does not hear, each since it was first found so, and
    /// returns the members whose time is over. All at once: the threads of a JVM that is gone cost
    /// one grace, not one each.
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
