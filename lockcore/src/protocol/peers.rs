//! What differs in a queue that is shared with JVMs: how long members are believed alive, the scores by
//! which JVMs judge, and foreign members that are gone.

use super::{Call, LockState, PATIENCE_MS};
use crate::member::Member;

/// What a JVM subtracts from every score behind it when it leaves the queue, by default.
pub const JVM_STEP_MS: u64 = 300_000;
/// The score of the head ahead of the clock, if it is ours and somebody stands behind it.
pub const HEAD_SCORE_MS: u64 = 60_000;
/// How long a foreign member has to subscribe once it is told to come.
pub const GRACE_MS: u64 = 8_000;
/// How long a suspicion is remembered.
pub const SUSPECT_MS: u64 = 60_000;
/// How long our deadlines outlive the last that was written.
pub const ALIVE_MS: u64 = 75_000;

/// The other side of a shared queue.
#[derive(Clone, Copy)]
pub struct Peers<'a> {
    /// Whether a foreign member would hear that it is to come.
    pub listens: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for Peers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Peers")
    }
}

/// A foreign member that did not hear. Known by its score too: the same thread may queue again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Suspect {
    /// Who.
    pub member: Member,
    /// Its score at that time.
    pub score_ms: u64,
    /// When it first did not hear.
    pub since_ms: u64,
    /// When this is forgotten.
    pub expires_ms: u64,
}

impl LockState {
    /// Up to when a waiting member is believed alive; nothing if it has no score.
    pub(super) fn life(&self, member: &Member) -> Option<u64> {
        let score_ms = self.deadlines.get(member)?;
        Some(self.alive.get(member).unwrap_or(score_ms))
    }

    /// How many wait and are believed alive.
    pub(super) fn live(&self, call: &Call<'_>) -> usize {
        match call.peers {
            None => self.deadlines.live(call.now_ms()),
            Some(_) => self.queue.len().saturating_sub(self.alive.passed(call.now_ms()).count()),
        }
    }

    /// Adds a member at the end. Its score is not below that of the last, on which JVMs behind it build
    /// theirs, and high enough to stay in the future when everyone ahead has subtracted its step.
    pub(super) fn enqueue_beside_jvms(&mut self, call: &Call<'_>, member: &Member) {
        let last_ms = self.queue.back().and_then(|last| self.deadlines.get(last)).unwrap_or(0);
        let left_ms = self.hold.as_ref().map_or(0, |hold| {
            hold.expires_ms.map_or(0, |at_ms| at_ms.saturating_sub(call.now_ms())).max(1)
        });
        let jvms_ahead = self.queue.len().saturating_sub(self.alive.len()) as u64;
        let enough_ms = call.now_ms() + left_ms + JVM_STEP_MS * (jvms_ahead + 1);
        self.queue.push_back(member.clone());
        self.deadlines.set(member, last_ms.max(enough_ms));
        self.believe_alive(call, member, call.now_ms() + PATIENCE_MS);
    }

    /// Renews a waiting member's patience. Its score rises with the time that has passed. The head's is
    /// short if somebody stands behind it: nobody subtracts from it any more, and a JVM is to get past
    /// it soon if we die.
    pub(super) fn raise_beside_jvms(&mut self, call: &Call<'_>, member: &Member) {
        let patience_ms = call.now_ms() + PATIENCE_MS;
        let short_ms = call.now_ms() + HEAD_SCORE_MS;
        let lived_ms = self.alive.get(member).unwrap_or(patience_ms);
        let score_ms = self.deadlines.get(member).unwrap_or(0);
        let is_head = self.queue.front() == Some(member);
        let score_ms = if is_head && self.queue.len() > 1 {
            short_ms
        } else {
            short_ms.max(score_ms + patience_ms.saturating_sub(lived_ms))
        };
        self.deadlines.set(member, score_ms);
        self.believe_alive(call, member, patience_ms.max(lived_ms));
    }

    /// Whom a JVM's clock or arithmetic has thrown out gets its place at the head back.
    pub(super) fn take_back(&mut self, call: &Call<'_>, members: &[Member]) {
        for member in members.iter().rev() {
            let is_alive = self.alive.get(member).is_some_and(|ms| ms > call.now_ms());
            if self.deadlines.get(member).is_some() || !is_alive || self.is_held_by(member) {
                continue;
            }
            if !self.queue.contains(member) {
                self.queue.push_front(member.clone());
            }
            self.deadlines.set(member, call.now_ms());
        }
    }

    /// Writes a deadline of our own, and gives the keys the expiry that goes with it.
    pub(super) fn believe_alive(&mut self, call: &Call<'_>, member: &Member, until_ms: u64) {
        self.alive.set(member, until_ms);
        self.alive_expires_ms = Some(call.now_ms() + ALIVE_MS);
        // A JVM expects its queue not to expire.
        self.queue_expires_ms = None;
    }

    /// Whether a foreign member that is told to come is gone: it does not hear, and has had its time
    /// to subscribe. With it go the others of its JVM.
    pub(super) fn has_gone(
        &mut self,
        call: &Call<'_>,
        peers: Peers<'_>,
        member: &Member,
        gone_jvm: &mut Option<String>,
    ) -> bool {
        let now_ms = call.now_ms();
        let score_ms = self.deadlines.get(member).unwrap_or(0);
        if (peers.listens)(member.as_str()) {
            self.suspect = None;
            // Hand-overs among ours subtract nothing. Not the last one's: newcomers build on it.
            if self.queue.len() > 1 {
                self.deadlines.set(member, score_ms.min(now_ms + JVM_STEP_MS));
            }
            return false;
        }
        let jvm = member.as_str().rsplit_once(':').map_or(member.as_str(), |(jvm, _)| jvm);
        if gone_jvm.as_deref() == Some(jvm) {
            return true;
        }
        match &self.suspect {
            Some(known) if known.member == *member && known.score_ms == score_ms => {
                if known.since_ms + GRACE_MS > now_ms {
                    return false;
                }
                self.suspect = None;
                *gone_jvm = Some(jvm.to_owned());
                true
            }
            _ => {
                let expires_ms = now_ms + SUSPECT_MS;
                let member = member.clone();
                self.suspect = Some(Suspect { member, score_ms, since_ms: now_ms, expires_ms });
                false
            }
        }
    }
}
