//! The rules of `docs/redisson.md` as a pure function of one lock's state. No I/O, no clock, no
//! chance.

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

/// The time left of a waiter's patience once its node was found not connected.
pub const PASSED_OVER_MS: u64 = 5_000;
/// The number of passed deadlines that an enqueue or touch looks at.
pub const SWEEP: usize = 16;
/// The least lease of a foreign hold without an end: a JVM's own lease, by default.
pub(crate) const FOREIGN_LEASE_MS: u64 = 30_000;

/// All that a server keeps of one lock. An expiry of `None` is a key without a TTL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The holder of the lock.
    pub hold: Option<Hold>,
    /// The waiting members, the next one first.
    pub queue: VecDeque<Party>,
    /// The waiting members' deadlines.
    pub deadlines: SortedSet<Party>,
    /// The expiry of queue and deadlines.
    pub queue_expires_ms: Option<u64>,
    /// The last token.
    pub token: Option<LastToken>,
    /// Tombstones, each with its end.
    pub gone: BTreeMap<Member, u64>,
    /// Our waiting members, with the end of the time in which each is believed alive: JVMs judge by
    /// `deadlines`.
    pub alive: SortedSet<Party>,
    /// The same members in the order in which they came.
    pub arrivals: Vec<Party>,
    /// The expiry of `alive` and `arrivals`.
    pub alive_expires_ms: Option<u64>,
    /// The foreign members that do not hear.
    pub suspects: Suspects,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The holder.
    pub member: Party,
    /// The end of its lease.
    pub expires_ms: Option<u64>,
}

/// The last token that was given out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LastToken {
    /// The token.
    pub value: FencingToken,
    /// Its expiry.
    pub expires_ms: Option<u64>,
}

/// A message that a command sends unasked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Tells a node that its member was granted the lock.
    Grant {
        /// The node of the channel.
        node: NodeId,
        /// The new holder.
        member: Member,
        /// The token of the hold.
        token: FencingToken,
        /// Milliseconds of its claim.
        left_ms: u64,
    },
    /// Tells a node that its member was force-released.
    Revoked {
        /// The node of the channel.
        node: NodeId,
        /// The former holder.
        member: Member,
    },
    /// Tells a foreign waiter to try again.
    Poke {
        /// The waiter.
        member: Party,
    },
}

/// The circumstances of one command, and the messages it causes.
pub struct Call<'a> {
    /// The calling node.
    pub node: &'a NodeId,
    /// Whether a message to the node with this text would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
    /// The latest time that the caller has seen on a server, µs since the epoch. One that this
    /// server has replaced may have been ahead of it.
    pub seen_us: u64,
    /// The JVMs.
    pub peers: Peers<'a>,
    /// The published messages, in order.
    pub messages: Vec<Message>,
    /// Members that were passed over.
    pub passed_over: u64,
}

impl<'a> Call<'a> {
    /// A call of `node` at `now_us`, while no JVM hears.
    pub fn new(node: &'a NodeId, connected: &'a dyn Fn(&str) -> bool, now_us: u64) -> Self {
        Self {
            node,
            connected,
            now_us,
            seen_us: 0,
            peers: Peers::default(),
            messages: Vec::new(),
            passed_over: 0,
        }
    }

    /// The server's time, ms since the epoch.
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
    /// Whether nothing is left to remember.
    pub fn is_empty(&self) -> bool {
        self.hold.is_none()
            && self.token.is_none()
            && self.queue.is_empty()
            && self.deadlines.is_empty()
            && self.gone.is_empty()
            && self.alive.is_empty()
            && self.arrivals.is_empty()
            && self.suspects.since_ms.is_empty()
    }

    /// Forgets expired keys, as Redis does before a command looks at a key.
    pub fn expire(&mut self, now_ms: u64) {
        let has_ended = |expiry: Option<u64>| expiry.is_some_and(|at_ms| at_ms <= now_ms);
        self.hold.take_if(|hold| has_ended(hold.expires_ms));
        self.token.take_if(|token| has_ended(token.expires_ms));
        self.gone.retain(|_, at_ms| !has_ended(Some(*at_ms)));
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

    /// Keys that are empty do not exist, and have no expiry.
    fn settle(&mut self) {
        if self.queue.is_empty() && self.deadlines.is_empty() {
            self.queue_expires_ms = None;
        }
        if self.alive.is_empty() && self.arrivals.is_empty() {
            self.alive_expires_ms = None;
        }
    }
}
