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

/// How long, in ms, a waiter is kept after it was skipped because its node is not connected. A
/// touch extends the time.
pub const SKIPPED_MS: u64 = 5_000;
/// Maximum number of expired waiters that an acquire or a touch removes.
pub const SWEEP: usize = 16;
/// The minimum lease, in ms, given to a JVM's hold without an expiry. It is a JVM's default lease.
pub(crate) const FOREIGN_LEASE_MS: u64 = 30_000;

/// A lock's state on a server. An expiry is in ms since the epoch; `None` means a key without a
/// TTL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The current hold; `None` if the lock is free.
    pub hold: Option<Hold>,
    /// The waiting members in order, the next holder first.
    pub queue: VecDeque<Party>,
    /// The waiting members, each with a score. For JVMs a score is a deadline, in ms since the
    /// epoch.
    pub deadlines: SortedSet<Party>,
    /// The expiry of `queue` and `deadlines`.
    pub queue_expires_ms: Option<u64>,
    /// The last issued fencing token; `None` without a token key.
    pub token: Option<LastToken>,
    /// The members that were given up, each with the expiry of the tombstone.
    pub tombstones: BTreeMap<Member, u64>,
    /// Our waiting members, each with a liveness deadline in ms since the epoch. JVMs do not know
    /// this key, and use `deadlines`.
    pub alive: SortedSet<Party>,
    /// Our waiting members in order of arrival.
    pub arrivals: Vec<Party>,
    /// The expiry of `alive` and `arrivals`.
    pub alive_expires_ms: Option<u64>,
    /// The waiting JVM threads without a subscription.
    pub suspects: Suspects,
}

/// A granted lock, and when the grant ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The member that holds the lock.
    pub member: Party,
    /// When the lease ends, in ms since the epoch; `None` if it does not end.
    pub expires_ms: Option<u64>,
}

/// The last fencing token that was issued for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LastToken {
    /// The value of the token.
    pub value: FencingToken,
    /// When the token key expires, in ms since the epoch; `None` if it does not expire.
    pub expires_ms: Option<u64>,
}

/// A message that a command publishes.
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
        /// The grace lease in milliseconds: the lock is kept for so long until the first renewal.
        left_ms: u64,
    },
    /// Notifies a node that a member was force-released.
    Revoked {
        /// The node that the message is for.
        node: NodeId,
        /// The former holder.
        member: Member,
    },
    /// Wakes a waiting JVM thread, which then tries to acquire.
    Poke {
        /// The JVM thread to wake.
        member: Party,
    },
}

/// The context of a command, and the messages it publishes.
pub struct Call<'a> {
    /// The node that sends the command.
    pub node: &'a NodeId,
    /// Returns true if a message to the node with this id would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, in µs since the epoch.
    pub now_us: u64,
    /// The latest server time seen by the node, in µs since the epoch. New tokens are above it,
    /// because the clock of a replaced server may have been ahead of this server's clock.
    pub seen_us: u64,
    /// Which JVM threads are subscribed, and so can be woken.
    pub peers: Peers<'a>,
    /// The published messages, in order.
    pub messages: Vec<Message>,
    /// The number of waiters that were skipped because their nodes are not connected.
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

    /// Returns the server's time, in ms since the epoch.
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
    /// Returns true if the lock has no keys left.
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

    /// Removes expired keys, as Redis does before a command reads a key.
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
        self.settle();
    }

    /// Clears the expiry of empty keys, because Redis deletes a key once it is empty.
    fn settle(&mut self) {
        if self.queue.is_empty() && self.deadlines.is_empty() {
            self.queue_expires_ms = None;
        }
        if self.alive.is_empty() && self.arrivals.is_empty() {
            self.alive_expires_ms = None;
        }
    }
}
