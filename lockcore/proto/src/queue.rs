//! The protocol in `docs/protocol.md` as a pure function of a lock's state: locks, reads and
//! permits in one queue. No I/O, no clock, no randomness.

use std::collections::BTreeMap;

use super::{Acquired, Answer, Command, Event, Grant, PATIENCE_MS, Reply, SortedSet, Topology};
use crate::member::{Member, NodeId};
use crate::token::{self, FencingToken};

mod advance;
mod commands;
mod lock_key;
#[cfg(test)]
mod tests;

pub use lock_key::{Held, LockKeyValue, Mark};
pub(crate) use lock_key::{LOST_COUNTER, TOKEN_LIMIT};

/// How long a flagged lock key outlives the lease.
pub const MARGIN_MS: u64 = 60_000;
/// The queue's TTL after the last sign of life from a queued node, and the shortest TTL for a
/// shared lock key with waiters.
pub(crate) const WAITING_TTL_MS: u64 = PATIENCE_MS + MARGIN_MS;
/// A shared lock key's expiry is a multiple of this, so that it is rarely written.
pub(crate) const ROUND_MS: u64 = 30_000;
/// A newcomer renews the node's liveness deadline when less than this is left.
pub(crate) const FRESH_MS: u64 = 10_000;
/// The TTL for a node's skipped members, from the last skip on.
pub(crate) const ASIDE_MS: u64 = 15_000;
/// A member that returns to the queue's front gets a score lower than the head's by this, so that
/// no waiter is in between,
pub(crate) const IN_FRONT: u64 = 1_000_000_000;
/// or from here on if nobody waits: below all scores of newcomers.
pub(crate) const EMPTY_FRONT: u64 = 500_000_000_000_000;
/// The interval of scans for dead members in a full queue.
pub(crate) const SWEPT_MS: u64 = 1_000;

/// Everything that a server stores for a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct QueueState {
    /// The exclusive holder, or the shared holds' sum. Absent: free.
    pub lock_key: Option<LockKeyValue>,
    /// The waiting members with their scores.
    pub queue: SortedSet<Member>,
    /// When the queue expires.
    pub queue_ends_ms: Option<u64>,
    /// Each node's liveness deadline: until then waiting members count as alive.
    pub patience: BTreeMap<Box<str>, u64>,
    /// Until when a full queue is not scanned for dead members.
    pub swept_until_ms: Option<u64>,
    /// The skipped members of each node.
    pub aside: BTreeMap<Box<str>, SetAside>,
    /// The shared holds, with lease ends. An expired hold counts until it is removed: nothing else
    /// was granted instead.
    pub holds: SortedSet<Member>,
    /// The weights of reduced holds.
    pub reduced: BTreeMap<Member, u64>,
    /// When holds and reduced weights expire.
    pub holds_end_ms: Option<u64>,
    /// Tombstones, with the expiry of each.
    pub tombstones: SortedSet<Member>,
}

/// A node's skipped members, with their scores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SetAside {
    /// The members.
    pub members: SortedSet<Member>,
    /// When the record expires.
    pub ends_ms: u64,
}

/// A message to one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Members of the node were granted.
    Grants {
        /// The receiving node.
        node: NodeId,
        /// The token shared by these holds.
        token: FencingToken,
        /// The member ids and the milliseconds of their claims.
        grants: Vec<(u64, u64)>,
    },
    /// Members were granted as a batch.
    Batch {
        /// The receiving node.
        node: NodeId,
        /// The first member's token; each later member has the next token.
        token: FencingToken,
        /// The claim in milliseconds.
        left_ms: u64,
        /// The member ids, in order.
        numbers: Vec<u64>,
    },
    /// Members of the node were force-released. Sent for the caller's members, too.
    Revoked {
        /// The receiving node.
        node: NodeId,
        /// The member ids.
        numbers: Vec<u64>,
    },
    /// Waiting members have left the queue for a newer member. Sent for the caller's members, too.
    Superseded {
        /// The receiving node.
        node: NodeId,
        /// The member ids.
        numbers: Vec<u64>,
    },
}

impl Message {
    /// Returns the receiving node, and the event for it.
    pub fn event(self) -> (NodeId, Event) {
        match self {
            Self::Grants { node, token, grants } => (node, Event::Granted { token, grants }),
            Self::Batch { node, token, left_ms, numbers } => {
                (node, Event::GrantedBatch { token, left_ms, numbers })
            }
            Self::Revoked { node, numbers } => (node, Event::Revoked { numbers }),
            Self::Superseded { node, numbers } => (node, Event::Superseded { numbers }),
        }
    }
}

/// The maximum work per command, so that no script blocks the server for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Members to grant.
    pub granted: usize,
    /// Queued members to examine.
    pub looked_at: usize,
    /// Expired holds to remove, and expired tombstones.
    pub reclaimed: usize,
    /// Tombstones left after waiting members were superseded.
    pub tombstones: usize,
}

impl Bounds {
    /// The scripts' bounds: examining this many members takes about a millisecond.
    pub(crate) const USUAL: Self =
        Self { granted: 256, looked_at: 200, reclaimed: 256, tombstones: 4_096 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::USUAL
    }
}

/// A command's context and effects.
pub struct Call<'a> {
    /// The calling node.
    pub node: &'a NodeId,
    /// Whether a message to the node with this id would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, in µs since the epoch.
    pub now_us: u64,
    /// The token counter, shared by all locks on a server.
    pub counter: Option<u64>,
    /// The token floor: the greatest token or time the caller has seen on a server, in µs
    /// since the epoch.
    pub floor_us: u64,
    /// The latest time the caller has seen on previous servers, in µs since the epoch; 0 if there
    /// was none. Those servers may have granted holds unknown to this server.
    pub elsewhere_us: u64,
    /// The server topology.
    pub topology: Topology,
    /// The maximum work.
    pub bounds: Bounds,
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Holds of the calling node. Their token is set when the command ends.
    grants: Vec<Grant>,
    token: Option<FencingToken>,
    skipped: u64,
    more: bool,
    /// Whether there are tombstones to check.
    has_tombstones: bool,
    /// Whether the command at most renews shared holds: then the lock key's flag stays.
    keeps_mark: bool,
    /// The latest expiry of anything written.
    latest_ms: u64,
}

impl<'a> Call<'a> {
    /// Creates a call by `node` at `now_us`.
    pub fn new(node: &'a NodeId, connected: &'a dyn Fn(&str) -> bool, now_us: u64) -> Self {
        Self {
            node,
            connected,
            now_us,
            counter: None,
            floor_us: 0,
            elsewhere_us: 0,
            topology: Topology::Single,
            bounds: Bounds::default(),
            messages: Vec::new(),
            grants: Vec::new(),
            token: None,
            skipped: 0,
            more: false,
            has_tombstones: false,
            keeps_mark: false,
            latest_ms: 0,
        }
    }

    /// Returns the server's time, in ms since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Reports a hold to the caller.
    fn tell(&mut self, member: &Member, left_ms: u64) {
        let (member, batch) = (member.clone(), Vec::new());
        self.grants.push(Grant { member, token: token::NONE, left_ms, batch });
    }

    /// Reports a hold to the caller, with the batch members.
    fn tell_batch(&mut self, member: &Member, left_ms: u64, batch: &[u64]) {
        let (member, batch) = (member.clone(), batch.to_vec());
        self.grants.push(Grant { member, token: token::NONE, left_ms, batch });
    }

    /// Whether this member's hold is reported already, alone or within a batch.
    fn is_told(&self, member: &Member) -> bool {
        self.grants.iter().any(|grant| grant.serves(member))
    }

    /// Returns the holds to report, under the token issued by this command, or else under the
    /// shared token.
    fn told(&mut self, shared: Option<FencingToken>) -> Vec<Grant> {
        let mut told = std::mem::take(&mut self.grants);
        match self.token.or(shared) {
            Some(token) => told.iter_mut().for_each(|grant| grant.token = token),
            None => told.clear(),
        }
        told
    }

    /// Issues the next token: the counter's next number, or a number above all known ones.
    fn issue(&mut self) -> FencingToken {
        self.issue_for(1)
    }

    /// Issues this many consecutive tokens, and returns the first.
    fn issue_for(&mut self, holds: usize) -> FencingToken {
        let next = self.counter.unwrap_or(0).saturating_add(1);
        let others = holds.saturating_sub(1) as u64;
        let is_usual = next > self.floor_us && next.saturating_add(others) < TOKEN_LIMIT;
        let clock_us = match self.topology {
            Topology::Single | Topology::Cluster => self.now_us,
            Topology::Quorum => 0,
        };
        let next = if is_usual { next } else { self.floor_us.max(clock_us) + 1 };
        self.counter = Some(next + others);
        let token = FencingToken::try_from(next).unwrap_or(token::after(None, 0, self.now_us));
        self.token = Some(token);
        token
    }

    /// Returns a newcomer's score, from the same counter. It must be above earlier scores, but not
    /// above the tokens the caller has seen.
    fn score(&mut self) -> u64 {
        let next = self.counter.unwrap_or(0).saturating_add(1);
        if (LOST_COUNTER + 1..TOKEN_LIMIT).contains(&next) {
            self.counter = Some(next);
            return next;
        }
        let token = self.token;
        let score = self.issue().get();
        self.token = token;
        score
    }

    /// Keeps all keys alive for a while after this.
    fn keep(&mut self, until_ms: u64) {
        self.latest_ms = self.latest_ms.max(until_ms);
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

impl QueueState {
    /// Runs one command.
    pub fn step(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        self.expire(call.now_ms());
        match command {
            Command::Acquire { members, mode, queue_limit } => {
                Answer::Acquired(self.acquire(call, members, *mode, *queue_limit))
            }
            Command::Release { member } => Answer::Released(self.release(call, member)),
            Command::Renew { members } => Answer::Renewed(self.renew(call, members)),
            Command::Confirm { member } => Answer::Renewed(self.confirm(call, member)),
            Command::Reduce { member, served, weight, back } => {
                Answer::Renewed(self.reduce(call, (member, *served), *weight, back))
            }
            Command::Touch { members } => Answer::Touched(self.touch(call, members)),
            Command::Leave { leaving } => Answer::Left(self.leave(call, leaving)),
            Command::ForceRelease { member } => {
                Answer::Released(self.force_release(call, member.as_ref()))
            }
            Command::Inspect { from, most } => {
                Answer::Inspected(self.inspect(call.now_us, *from, *most))
            }
        }
    }

    /// Runs an acquire of a lock as the transaction of the fast path does: it sets the lock key if
    /// there is none, and draws a number in any case.
    pub fn step_fast(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        self.expire(call.now_ms());
        let drawn = call.counter.unwrap_or(0).saturating_add(1);
        let is_free = self.lock_key.is_none();
        let is_token = drawn > call.floor_us && drawn < token::LIMIT;
        if is_free && is_token {
            return self.step(call, command);
        }
        if is_free {
            // The member holds the lock, under a number that is no token.
            self.step(call, command);
            call.token = None;
        }
        call.counter = Some(drawn);
        Answer::Acquired(Reply::short(vec![Acquired::NotServed { may_hold: is_free }]))
    }

    /// Removes expired keys, as Redis does before a command reads a key.
    pub fn expire(&mut self, now_ms: u64) {
        let has_ended = |ends_ms: Option<u64>| ends_ms.is_some_and(|at_ms| at_ms <= now_ms);
        self.lock_key.take_if(|lock_key| has_ended(lock_key.ends_ms));
        if has_ended(self.queue_ends_ms) {
            self.queue.clear();
        }
        if has_ended(self.holds_end_ms) {
            self.holds.clear();
            self.reduced.clear();
        }
        self.patience.retain(|_, at_ms| *at_ms > now_ms);
        self.swept_until_ms.take_if(|at_ms| *at_ms <= now_ms);
        self.aside.retain(|_, aside| aside.ends_ms > now_ms && !aside.members.is_empty());
        let ended: Vec<Member> = self.tombstones.passed(now_ms).cloned().collect();
        for member in &ended {
            self.tombstones.remove(member);
        }
        self.settle_expiries();
    }

    /// Clears expiries: empty keys do not exist, and have none.
    fn settle_expiries(&mut self) {
        if self.queue.is_empty() {
            self.queue_ends_ms = None;
        }
        if self.holds.is_empty() && self.reduced.is_empty() {
            self.holds_end_ms = None;
        }
    }

    /// Returns the weight that a member holds: the demand's weight, unless reduced.
    pub fn weight(&self, member: &Member) -> u64 {
        self.reduced.get(member).copied().unwrap_or(member.demand().weight())
    }
}
