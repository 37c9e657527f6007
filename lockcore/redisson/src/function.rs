//! The rules in `docs/redisson.md` as a pure function of a lock's state: no I/O, no clock, no
//! randomness.

use std::collections::{BTreeMap, VecDeque};

use proto::{
    Acquired, Answer, Command, FencingToken, Grant, Inspection, Leaving, Left, Member, Mode,
    NodeId, PATIENCE_MS, Party, Presence, Released, Renewed, Reply, SortedSet, TOMBSTONE_MS,
    Touched, claim_ms,
};

mod advance;
mod commands;
mod peers;
mod recognise;
mod step;
#[cfg(test)]
mod tests;

pub use peers::{
    ALIVE_MS, GRACE_MS, JVM_STEP_MS, LEADING, LOOKED_AT, SHORT_SCORE_MS, SLACK_MS, SUSPECTS_MS,
};
pub use peers::{Peers, Suspects};
pub(crate) use recognise::MAX_COUNT_DIGITS;
pub use recognise::{is_hold, is_member, is_token};
pub use step::step;

/// Maximum time, in ms, for which a waiter stays in the queue after it was skipped, unless its node
/// touches it. A waiter is skipped if its node is not connected.
pub const SKIPPED_MS: u64 = 5_000;
/// Maximum number of waiters with passed liveness deadlines that an acquire or a touch removes.
/// Limits the cost of the command.
pub const SWEEP: usize = 16;
/// Minimum lease, in ms, that lockcore sets on a JVM's hold without an expiry, since otherwise the
/// hold would never end. Equal to the default lease of a JVM.
pub(crate) const FOREIGN_LEASE_MS: u64 = 30_000;

/// The content of a lock's keys on a server. An expiry is in ms since the epoch; `None` if the key
/// has no TTL, or does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The granted lock; `None` if the lock is free.
    pub hold: Option<Hold>,
    /// The waiters of lockcore and of JVMs, the next holder first. A list in Redis.
    pub queue: VecDeque<Party>,
    /// The waiters, each with a score in ms since the epoch. A JVM removes the first waiter of the
    /// queue once the score has passed on the JVM's clock. lockcore applies the score only to JVM
    /// threads.
    pub deadlines: SortedSet<Party>,
    /// When `queue` and `deadlines` expire, in ms since the epoch. `None` if they have no TTL, as
    /// usual: JVMs expect none.
    pub queue_expires_ms: Option<u64>,
    /// The last issued fencing token; `None` if no token was issued, or the token key was lost.
    pub token: Option<LastToken>,
    /// The members whose acquires were given up, each with the time in ms since the epoch when the
    /// tombstone expires. Until then, a late copy of the acquire is refused.
    pub tombstones: BTreeMap<Member, u64>,
    /// The waiters of lockcore, each with a liveness deadline in ms since the epoch: the waiter's
    /// node is assumed alive until then. JVMs do not know this key.
    pub alive: SortedSet<Party>,
    /// The waiters of lockcore in order of arrival, by which they are restored to the queue after a
    /// JVM has removed them.
    pub arrivals: Vec<Party>,
    /// When `alive` and `arrivals` expire, in ms since the epoch; `None` if both are empty.
    pub alive_expires_ms: Option<u64>,
    /// The waiting JVM threads without a subscription, which may be dead.
    pub suspects: Suspects,
}

/// The holder of a granted lock, and when the lease ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The member of lockcore, or the JVM thread, that holds the lock.
    pub member: Party,
    /// When the lease ends, in ms since the epoch; `None` if the key has no TTL, so that the lease
    /// does not end.
    pub expires_ms: Option<u64>,
}

/// The last fencing token that was issued for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LastToken {
    /// The token itself. The next token will be above it.
    pub value: FencingToken,
    /// When the token key expires, in ms since the epoch; `None` if it does not expire, as after
    /// each grant by lockcore.
    pub expires_ms: Option<u64>,
}

/// A message that a command publishes to a node of lockcore, or to a JVM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Notifies a node that a member was granted the lock.
    Grant {
        /// The node that the message is for.
        node: NodeId,
        /// The new holder.
        member: Member,
        /// The fencing token of the grant.
        token: FencingToken,
        /// The claim in milliseconds: a short lease, within which the new holder must renew the
        /// hold for the first time.
        left_ms: u64,
    },
    /// Notifies a node that its hold was ended by a force-release.
    Revoked {
        /// The node that the message is for.
        node: NodeId,
        /// The member that held the lock.
        member: Member,
    },
    /// Wakes a waiting JVM thread, which then tries to acquire.
    Poke {
        /// The JVM thread to wake.
        member: Party,
    },
}

/// What a command depends on besides the lock's state, and the messages that it publishes.
pub struct Call<'a> {
    /// The node that sends the command.
    pub node: &'a NodeId,
    /// Returns true if a message to the node with this id would be received. Waiters of a node that
    /// is not connected are skipped, unless they belong to `node`.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, in µs since the epoch.
    pub now_us: u64,
    /// The latest server time seen by the node, in µs since the epoch. New tokens are above it,
    /// because the clock of a replaced server may have been ahead of this server's clock.
    pub seen_us: u64,
    /// The subscriptions of JVM threads. A thread without one cannot be woken.
    pub peers: Peers<'a>,
    /// The messages published by the command, in order.
    pub messages: Vec<Message>,
    /// The number of waiters that the command skipped because their nodes are not connected.
    pub skipped: u64,
}

impl<'a> Call<'a> {
    /// Creates the context of a command from `node` at the server time `now_us`, with no JVM
    /// subscribed and no message published.
    pub fn new(node: &'a NodeId, connected: &'a dyn Fn(&str) -> bool, now_us: u64) -> Self {
        Self {
            node,
            connected,
            now_us,
            seen_us: 0,
            peers: Peers::default(),
            messages: Vec::new(),
            skipped: 0,
        }
    }

    /// Returns the server's time, `now_us`, in ms since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("node", self.node)
            .field("now_us", &self.now_us)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl LockState {
    /// Returns true if the lock has no key on the server: it is free, nobody waits, and no token is
    /// stored.
    pub fn is_empty(&self) -> bool {
        self.hold.is_none()
            && self.token.is_none()
            && self.queue.is_empty()
            && self.deadlines.is_empty()
            && self.tombstones.is_empty()
            && self.alive.is_empty()
            && self.arrivals.is_empty()
            && self.suspects.since_ms.is_empty()
    }

    /// Removes the content of keys that have expired at `now_ms`, as Redis does before a command
    /// reads a key.
    pub fn expire(&mut self, now_ms: u64) {
        let has_ended = |expiry: Option<u64>| expiry.is_some_and(|at_ms| at_ms <= now_ms);
        self.hold.take_if(|hold| has_ended(hold.expires_ms));
        self.token.take_if(|token| has_ended(token.expires_ms));
        self.tombstones.retain(|_, at_ms| !has_ended(Some(*at_ms)));
        if has_ended(self.queue_expires_ms) {
            self.queue.clear();
            self.deadlines.clear();
        }
        if has_ended(self.alive_expires_ms) {
            self.alive.clear();
            self.arrivals.clear();
        }
        if has_ended(self.suspects.expire_ms) {
            self.suspects = Suspects::default();
        }
        self.clear_empty_expiries();
    }

    /// Clears the expiry of the queue's and the liveness keys once they are empty, because Redis
    /// deletes an empty key with its TTL. Called after each removal of a waiter.
    fn clear_empty_expiries(&mut self) {
        if self.queue.is_empty() && self.deadlines.is_empty() {
            self.queue_expires_ms = None;
        }
        if self.alive.is_empty() && self.arrivals.is_empty() {
            self.alive_expires_ms = None;
        }
    }
}
