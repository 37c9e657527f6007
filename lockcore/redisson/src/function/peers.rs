//! How a queue is shared with JVMs: the sorted set of scores that JVMs use, the separate liveness
//! deadlines of lockcore waiters, and the search for dead JVM threads.

use proto::{Member, Party};

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, LockState, PATIENCE_MS};

/// How much, in ms, a JVM subtracts from the scores of all waiters behind it when it leaves the
/// queue. This is Redisson's default.
pub const JVM_STEP_MS: u64 = 300_000;
/// How far in the future, in ms, lockcore sets the score of a waiter of its own with no JVM ahead.
/// The time is short, so that JVMs can soon remove the waiter if all lockcore nodes die.
pub const SHORT_SCORE_MS: u64 = 60_000;
/// Maximum, in ms, by which the score of a new waiter exceeds the score that it needs. A new waiter
/// copies a higher score of the last waiter in the queue, up to this maximum.
pub const SLACK_MS: u64 = 3_600_000;
/// Number of waiters at the head of the queue that a touch examines to find lockcore waiters with
/// no JVM ahead of them, and the first JVM behind.
pub const LEADING: usize = 64;
/// Time, in ms, after which a waiting JVM thread without a subscription is taken for dead, counted
/// from when a command first found it so.
pub const GRACE_MS: u64 = 8_000;
/// Time, in ms, for which suspects (waiting JVM threads without a subscription) are remembered
/// after they were last recorded. Longer than the five minutes after which a thread that queued at
/// the head leaves by its own score, so that seldom tries find a dead thread, too.
pub const SUSPECTS_MS: u64 = 600_000;
/// Number of waiters at the head of the queue that are searched for suspects, to bound the cost.
pub const LOOKED_AT: usize = 256;
/// Time, in ms, for which the keys with the liveness deadlines and the order of arrival of lockcore
/// waiters are kept after the last write. Longer than any liveness deadline.
pub const ALIVE_MS: u64 = 75_000;

/// The subscriptions of JVM threads, by which dead threads are recognised.
#[derive(Clone, Copy)]
pub struct Peers<'a> {
    /// Returns true if the JVM thread with this member text (UUID and thread id) is subscribed, and
    /// so would receive a wake-up.
    pub listens: &'a dyn Fn(&str) -> bool,
}

impl Default for Peers<'_> {
    /// Creates a value without subscriptions of JVM threads.
    fn default() -> Self {
        Self { listens: &|_| false }
    }
}

impl std::fmt::Debug for Peers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Peers")
    }
}

/// The suspects: waiting JVM threads that were found without a subscription. They are taken for
/// dead if they stay so for [`GRACE_MS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Suspects {
    /// When each thread was first found without a subscription, in ms since the epoch. The key is
    /// the thread and the score, because the same thread may queue again, with another score.
    pub since_ms: BTreeMap<(Party, u64), u64>,
    /// When all suspects are forgotten, in ms since the epoch; `None` if none were recorded.
    pub expire_ms: Option<u64>,
}

impl LockState {
    /// Returns until when a waiter is taken for alive, in ms since the epoch: the liveness deadline
    /// of a lockcore waiter, or the score of a JVM thread. `None` if the waiter has no score; then
    /// it is dead.
    pub(super) fn life(&self, member: &Party) -> Option<u64> {
        let score_ms = self.deadlines.get(member)?;
        Some(self.alive.get(member).unwrap_or(score_ms))
    }

    /// Returns the number of waiters that count for the queue limit: all except lockcore waiters
    /// whose liveness deadlines have passed.
    pub(super) fn live(&self, call: &Call<'_>) -> usize {
        self.queue.len().saturating_sub(self.alive.passed(call.now_ms()).count())
    }

    /// Adds `member`, of lockcore, at the end of the queue, with a liveness deadline and a score.
    ///
    /// Every JVM ahead subtracts [`JVM_STEP_MS`] from the score when it leaves the queue. The score
    /// is so high that it is in the future even then. If the last score in the queue is higher
    /// still, the new waiter gets the same score, up to [`SLACK_MS`] more than it needs: JVMs base
    /// the scores of later waiters on the last score.
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

    /// Records that `member` is the latest lockcore waiter to arrive.
    fn arrive(&mut self, member: &Party) {
        self.arrivals.retain(|arrived| arrived != member);
        self.arrivals.push(member.clone());
    }

    /// Renews the liveness deadline of a lockcore waiter, and raises the score. Called for each
    /// touch, and for a repeated acquire. With a JVM ahead, the score rises by the time since the
    /// last renewal. Without, nobody subtracts from the score any more, so it is set to
    /// [`SHORT_SCORE_MS`] from now: if the node dies, JVMs can soon remove the waiter.
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

    /// Postpones the time at which the first waiting JVM is taken for dead to at least
    /// [`JVM_STEP_MS`] from now, if waiters of this project are ahead of it. The JVM has derived
    /// this time, its score, from the short scores of these waiters, and would otherwise lose its
    /// position while one of them holds the lock.
    fn raise_next_jvm(&mut self, call: &Call<'_>) {
        let at = self.queue.iter().take(LEADING).position(|member| member.ours().is_none());
        let Some(next) = at.filter(|at| *at > 0).and_then(|at| self.queue.get(at)).cloned() else {
            return;
        };
        if let Some(score_ms) = self.deadlines.get(&next) {
            self.deadlines.set(&next, score_ms.max(call.now_ms() + JVM_STEP_MS));
        }
    }

    /// Restores lockcore waiters that a JVM has removed from the queue because of its clock or of
    /// subtracted scores. Does nothing unless one of `members`, which a touch or a repeated acquire
    /// names, was removed. All such waiters of all nodes return to the head of the queue, in order
    /// of arrival: if each node restored only its own waiters, the last node to do so would be
    /// first.
    pub(super) fn take_back(&mut self, call: &Call<'_>, members: &[Member]) {
        let members = members.iter().map(Party::from);
        let out: Vec<_> = members.filter(|member| self.is_out(call, member)).collect();
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

    /// Returns true if `member`, of lockcore, still waits, but a JVM has removed it from the queue:
    /// the liveness deadline has not passed, but there is no score.
    fn is_out(&self, call: &Call<'_>, member: &Party) -> bool {
        self.alive.get(member).is_some_and(|ms| ms > call.now_ms())
            && self.deadlines.get(member).is_none()
            && !self.is_held_by(member)
    }

    /// Sets the liveness deadline of a lockcore waiter to `until_ms`, in ms since the epoch. Also
    /// extends the expiry of the keys with liveness deadlines, and removes any expiry of the queue.
    pub(super) fn believe_alive(&mut self, call: &Call<'_>, member: &Party, until_ms: u64) {
        self.alive.set(member, until_ms);
        self.alive_expires_ms = Some(call.now_ms() + ALIVE_MS);
        // A JVM expects a queue without an expiry.
        self.queue_expires_ms = None;
    }

    /// Returns true if a JVM thread that was just woken is dead: it has been without a subscription
    /// for [`GRACE_MS`]. The first search of a command finds all dead threads, and `gone` keeps
    /// them for later calls.
    ///
    /// If the thread is subscribed, forgets all suspects, and lowers the thread's score to at most
    /// [`JVM_STEP_MS`] from now, unless it is the last waiter.
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
        // Hand-offs between lockcore waiters lower no scores, so lower this one. The last score in
        // the queue stays, because new waiters base theirs on it.
        if self.queue.len() > 1 {
            let score_ms = self.deadlines.get(member).unwrap_or(0);
            self.deadlines.set(member, score_ms.min(call.now_ms() + JVM_STEP_MS));
        }
        false
    }

    /// Finds the waiting JVM threads without a subscription, and records them in place of the
    /// earlier suspects, each with the time when it was first found so. Returns the threads that
    /// have been so for [`GRACE_MS`], which are dead. All threads are examined at once, so that the
    /// threads of a dead JVM cost a single grace period rather than one each.
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
            // A time in the future is from before the server's clock was set back.
            let since_ms = self.suspects.since_ms.get(&known).map_or(now_ms, |ms| now_ms.min(*ms));
            if since_ms + GRACE_MS <= now_ms {
                gone.insert(member.clone());
            }
            suspects.insert(known, since_ms);
        }
        self.suspects = Suspects { since_ms: suspects, expire_ms: Some(now_ms + SUSPECTS_MS) };
        gone
    }
}
