//! Grants a free lock to the next waiter, and maintains the list and the sorted set of the queue.

use proto::token;
use proto::{FencingToken, Member, NodeId, Party};

use super::{
    Call, FOREIGN_LEASE_MS, Hold, LastToken, LockState, Message, SKIPPED_MS, SWEEP, claim_ms,
};
use super::{Grant, Reply};

/// The result of the search for the next holder of a free lock, by [`LockState::advance`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdvanceOutcome {
    /// This waiter now holds the lock.
    Granted(Party),
    /// A JVM thread is next, and has to acquire the lock itself. The lock stays free, and nobody
    /// else may take it.
    Stopped,
    /// No waiter can take the lock, so a new acquire may.
    End,
}

impl LockState {
    /// Grants a free lock to the first waiter that can take it, or wakes the JVM thread that is
    /// next. Waiters whose nodes are not connected are skipped, and dead waiters are removed.
    pub(super) fn advance(&mut self, call: &mut Call<'_>) -> AdvanceOutcome {
        let mut skipped = Vec::new();
        let advanced = self.walk(call, &mut skipped);
        self.lower(call, &skipped);
        call.skipped += skipped.len() as u64;
        if advanced == AdvanceOutcome::End {
            self.drop_leftovers();
        }
        advanced
    }

    /// Walks along the queue until a waiter gets the lock, or a JVM thread is next. Removes dead
    /// waiters, and adds the waiters that it skips to `skipped`.
    fn walk(&mut self, call: &mut Call<'_>, skipped: &mut Vec<Party>) -> AdvanceOutcome {
        let mut not_connected: Vec<String> = Vec::new();
        let mut gone = None;
        // Skipped members stay at the front.
        while let Some(member) = self.queue.get(skipped.len()).cloned() {
            if self.life(&member).is_none_or(|ms| ms <= call.now_ms()) {
                self.drop_waiting_at(skipped.len());
                // A JVM may be alive. Once woken, it queues anew.
                if member.ours().is_none() {
                    call.messages.push(Message::Poke { member });
                }
                continue;
            }
            let Some(ours) = member.ours() else {
                // If woken while others are ahead, a JVM would retry without a pause.
                if !skipped.is_empty() {
                    return AdvanceOutcome::Stopped;
                }
                call.messages.push(Message::Poke { member: member.clone() });
                if self.has_gone(call, &member, &mut gone) {
                    self.drop_waiting_at(skipped.len());
                    continue;
                }
                return AdvanceOutcome::Stopped;
            };
            if ours.is_of(call.node) {
                self.drop_waiting_at(skipped.len());
                self.grant(call, &member, claim_ms(ours.lease_ms()));
                return AdvanceOutcome::Granted(member);
            }
            if not_connected.iter().any(|node| node == ours.node()) {
                skipped.push(member);
            } else if !(call.connected)(ours.node()) {
                not_connected.push(ours.node().to_owned());
                skipped.push(member);
            } else {
                let node = NodeId::from(ours.node());
                let left_ms = claim_ms(ours.lease_ms());
                self.drop_waiting_at(skipped.len());
                let token = self.grant(call, &member, left_ms);
                let granted = ours.clone();
                call.messages.push(Message::Grant { node, member: granted, token, left_ms });
                return AdvanceOutcome::Granted(member);
            }
        }
        AdvanceOutcome::End
    }

    /// Grants the lock to the next waiter, as [`advance`](Self::advance) does. Does nothing if the
    /// lock is held.
    pub(super) fn advance_if_free(&mut self, call: &mut Call<'_>) {
        if self.hold.is_none() {
            self.advance(call);
        }
    }

    /// Grants the lock to `member` with a lease of `ms` milliseconds. Returns the new fencing
    /// token.
    pub(super) fn grant(&mut self, call: &Call<'_>, member: &Party, ms: u64) -> FencingToken {
        let expires_ms = call.now_ms() + ms;
        self.hold = Some(Hold { member: member.clone(), expires_ms: Some(expires_ms) });
        self.issue_token(call)
    }

    /// Issues and stores a fencing token. It is above the last token of this lock, and above the
    /// latest server time that the node has seen.
    fn issue_token(&mut self, call: &Call<'_>) -> FencingToken {
        let previous = self.token.as_ref().map(|token| token.value);
        let value = token::after(previous, call.seen_us, call.now_us);
        // No TTL, because an RFencedLock may continue from it at any time.
        self.token = Some(LastToken { value, expires_ms: None });
        value
    }

    /// Sets a lease on a hold without an expiry, which otherwise would never end. Called for
    /// commands of `member`, whose lease is used. For a hold of a JVM, which does not know of this
    /// lease, it is at least [`FOREIGN_LEASE_MS`].
    pub(super) fn end_endless_hold(&mut self, member: &Member, now_ms: u64) {
        let Some(hold) = &mut self.hold else { return };
        if hold.expires_ms.is_none() {
            let least_ms = if hold.member.ours().is_some() { 0 } else { FOREIGN_LEASE_MS };
            hold.expires_ms = Some(now_ms + member.lease_ms().max(least_ms));
        }
    }

    /// Creates the reply to a command, from `outcome` and the lock's state after the command.
    pub(super) fn reply<T>(&mut self, call: &Call<'_>, outcome: T) -> Reply<T> {
        let end_ms = self.hold.as_ref().map_or(0, |hold| left_ms(hold, call.now_ms()).max(1));
        Reply {
            outcome,
            grants: self.grant_of(call, end_ms).into_iter().collect(),
            first_end_ms: Some(end_ms),
            now_us: Some(call.now_us),
            skipped: call.skipped,
            more: false,
        }
    }

    /// Returns the grant of the current holder if it belongs to the node that sends the command;
    /// otherwise `None`. Issues a new token if the token key was lost.
    fn grant_of(&mut self, call: &Call<'_>, left_ms: u64) -> Option<Grant> {
        let hold = self.hold.as_ref()?;
        let member = hold.member.ours().filter(|member| member.is_of(call.node))?.clone();
        let token = match &self.token {
            Some(token) => token.value,
            None => self.issue_token(call),
        };
        Some(Grant { member, token, left_ms, batch: Vec::new() })
    }

    /// Returns the number of waiters ahead of a waiter. `None` if `member` is not in the list, or
    /// has no score.
    pub(super) fn position(&self, member: &Party) -> Option<usize> {
        // Newcomers, the usual case, skip the search.
        self.deadlines.get(member)?;
        self.queue.iter().position(|waiting| waiting == member)
    }

    /// Removes `member` from the queue and from all keys about waiters. Returns true if it had a
    /// score or a liveness deadline.
    pub(super) fn drop_waiting(&mut self, member: &Party) -> bool {
        let found = self.deadlines.remove(member) | self.alive.remove(member);
        self.arrivals.retain(|arrived| arrived != member);
        if found && let Some(at) = self.queue.iter().position(|waiting| waiting == member) {
            self.queue.remove(at);
        }
        self.clear_empty_expiries();
        found
    }

    /// Removes the waiter at this index of the queue from all keys about waiters.
    fn drop_waiting_at(&mut self, at: usize) {
        if let Some(member) = self.queue.remove(at) {
            self.deadlines.remove(&member);
            self.alive.remove(&member);
            self.arrivals.retain(|arrived| *arrived != member);
        }
        self.clear_empty_expiries();
    }

    /// Lowers the liveness deadlines of skipped waiters, whose nodes are not connected, to at most
    /// [`SKIPPED_MS`] from now. They then leave the queue soon, unless their nodes touch them.
    fn lower(&mut self, call: &Call<'_>, skipped: &[Party]) {
        let at_most_ms = call.now_ms() + SKIPPED_MS;
        for member in skipped {
            let until_ms = self.alive.get(member).map_or(at_most_ms, |ms| ms.min(at_most_ms));
            self.believe_alive(call, member, until_ms);
        }
    }

    /// Removes up to [`SWEEP`] waiters of lockcore whose liveness deadlines have passed, anywhere
    /// in the queue.
    pub(super) fn sweep(&mut self, call: &Call<'_>) {
        let ghosts: Vec<Party> = self.alive.passed(call.now_ms()).take(SWEEP).cloned().collect();
        for ghost in &ghosts {
            self.drop_waiting(ghost);
        }
    }

    /// Removes all scores if the queue is empty: a score without a waiter in the queue is a
    /// leftover.
    pub(super) fn drop_leftovers(&mut self) {
        if self.queue.is_empty() {
            self.deadlines.clear();
            self.clear_empty_expiries();
        }
    }
}

/// Returns the remaining lease of a hold in ms; 0 if it has no expiry.
pub(super) fn left_ms(hold: &Hold, now_ms: u64) -> u64 {
    hold.expires_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms))
}
