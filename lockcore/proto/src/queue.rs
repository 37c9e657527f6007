//! The server's half of the protocol: each command as a pure function of a lock's state, as
//! described in `docs/protocol.md`. Locks, reads and permits of a name share one queue. No I/O, no
//! clock, no randomness.

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

/// How long a lock key outlives the holder's lease, in ms, if its value has a flag for waiters or
/// tombstones. So a command after the lease's end still reads the flag.
pub const MARGIN_MS: u64 = 60_000;
/// How long the queue stays in Redis after the last sign of life from a waiter's node, in ms. While
/// there are waiters and no exclusive holder, the lock key stays at least as long.
pub(crate) const WAITING_TTL_MS: u64 = PATIENCE_MS + MARGIN_MS;
/// The expiry of a lock key with shared holds is rounded up to a multiple of this many ms. So most
/// commands need not write it again.
pub(crate) const ROUND_MS: u64 = 30_000;
/// The minimum time until the liveness deadline of a node, in ms. If less is left, a command that
/// queues a member of the node extends the deadline.
pub(crate) const FRESH_MS: u64 = 10_000;
/// How long the server remembers a node's waiters that it has set aside, in ms: see [`SetAside`].
/// The time begins again when another waiter of the node is set aside.
pub(crate) const ASIDE_MS: u64 = 15_000;
/// When members return to the queue's front, their scores end below the head's score by this
/// number.
pub(crate) const IN_FRONT: u64 = 1_000_000_000;
/// Where the scores end of members that return to the front of an empty queue. It is below the
/// score of any newly queued member, because those are above [`LOST_COUNTER`].
pub(crate) const EMPTY_FRONT: u64 = 500_000_000_000_000;
/// The minimum interval between two searches of a full queue for waiters of dead nodes, in ms.
pub(crate) const SWEPT_MS: u64 = 1_000;

/// Everything that a server stores for a lock, as in the Redis keys. All times are in ms since the
/// epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct QueueState {
    /// The value and expiry of the lock key. `None` if the key does not exist, because the lock is
    /// free and has neither waiters nor tombstones.
    pub lock_key: Option<LockKeyValue>,
    /// The waiting members, ordered by score.
    pub queue: SortedSet<Member>,
    /// The time when the queue expires, unless a waiter's node shows a sign of life. `None` if the
    /// queue is empty.
    pub queue_ends_ms: Option<u64>,
    /// The liveness deadline of each node, by node id. Until then the server believes the node's
    /// waiters alive.
    pub patience: BTreeMap<Box<str>, u64>,
    /// The time until which a full queue is not searched again for waiters of dead nodes. `None` if
    /// it may be searched now.
    pub swept_until_ms: Option<u64>,
    /// The waiters that were taken out of the queue and may return, by node id.
    pub set_aside: BTreeMap<Box<str>, SetAside>,
    /// The members with shared holds, ordered by the time when their leases end. An expired hold
    /// keeps its weight until a command removes it.
    pub holds: SortedSet<Member>,
    /// The present weight of each shared hold whose weight was reduced, for example by a downgrade.
    pub reduced: BTreeMap<Member, u64>,
    /// The time when Redis removes `holds` and `reduced`. `None` if both are empty.
    pub holds_end_ms: Option<u64>,
    /// Tombstones: members that must not be granted the lock any more, ordered by the time when the
    /// tombstone expires.
    pub tombstones: SortedSet<Member>,
}

/// The waiters of a node that the server took out of the queue without an answer. Either the node
/// was not connected, or the hold of their batch ended without a release. The node's next touch,
/// the command that keeps waiters alive, puts them back: with their old scores or, after a batch,
/// at the queue's front.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SetAside {
    /// The waiters, ordered by the score with which they return.
    pub members: SortedSet<Member>,
    /// The time when the waiters are forgotten unless they return, in ms since the epoch.
    pub ends_ms: u64,
}

/// A message to one node about its waiters or holds, which a command publishes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Waiters of the node were granted the lock, each with a separate hold.
    Grants {
        /// The node that receives the message.
        node: NodeId,
        /// The fencing token shared by the holds in `grants`.
        token: FencingToken,
        /// The id of each granted member, and the milliseconds until its hold expires unless
        /// renewed.
        grants: Vec<(u64, u64)>,
    },
    /// Consecutive waiters of the node were granted the lock as a batch: one exclusive hold, which
    /// they use one after the other.
    Batch {
        /// The node that receives the message.
        node: NodeId,
        /// The first member's fencing token. The token of each later member is greater by 1.
        token: FencingToken,
        /// Milliseconds until the batch's hold expires, unless it is renewed.
        left_ms: u64,
        /// The ids of the batch members, in the order in which they are served.
        numbers: Vec<u64>,
    },
    /// Holds of the node were force-released. The message is sent even if the node itself sent the
    /// command.
    Revoked {
        /// The node that receives the message.
        node: NodeId,
        /// The ids of the members that lost their holds.
        numbers: Vec<u64>,
    },
    /// Waiters of the node were removed from the queue, because a newer member replaces them
    /// ([`KeepNewest`](crate::WhenBusy::KeepNewest)). The message is sent even if the node itself
    /// sent the command.
    Superseded {
        /// The node that receives the message.
        node: NodeId,
        /// The ids of the members that were removed.
        numbers: Vec<u64>,
    },
}

impl Message {
    /// Converts the message into the receiving node and the event for it.
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

/// The limits for the work of one command, so that no script blocks the server for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of members to which the lock is granted. Only tests set it below
    /// `looked_at`.
    pub granted: usize,
    /// The maximum number of waiters to examine, from the head of the queue.
    pub looked_at: usize,
    /// The maximum number of expired holds to remove, and also the maximum number of old
    /// tombstones.
    pub reclaimed: usize,
    /// The maximum number of tombstones that are kept when a newer member replaces waiters with
    /// `KeepNewest`.
    pub tombstones: usize,
}

impl Bounds {
    /// The limits used by the scripts: examining this many members takes about a millisecond.
    pub(crate) const USUAL: Self =
        Self { granted: 256, looked_at: 200, reclaimed: 256, tombstones: 4_096 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The context in which a command runs on a lock, and the messages and grants that result.
pub struct Call<'a> {
    /// The node that sent the command.
    pub node: &'a NodeId,
    /// Returns true if the node with this id would receive a message. Waiters of other nodes are
    /// skipped.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, in µs since the epoch.
    pub now_us: u64,
    /// The last number issued by the token counter, which all locks on a server share; `None` if
    /// the server has no counter yet.
    pub counter: Option<u64>,
    /// The token floor: the greatest among all tokens and server times, in µs since the epoch, that
    /// the calling node has seen. New tokens are above it.
    pub floor_us: u64,
    /// The latest time that the calling node has read from previous servers, in µs since the epoch;
    /// 0 without a previous server. Until this time, a previous server may have granted holds
    /// unknown to this server.
    pub elsewhere_us: u64,
    /// The arrangement of the servers, which determines the rules for tokens.
    pub topology: Topology,
    /// The limits for the work of the command.
    pub bounds: Bounds,
    /// The messages that the command sends, in order.
    pub messages: Vec<Message>,
    /// The calling node's holds for the reply. Their tokens are set when the command ends.
    grants: Vec<Grant>,
    token: Option<FencingToken>,
    skipped: u64,
    more: bool,
    /// Whether the lock has tombstones, entries that refuse late copies of an acquire. If not, the
    /// command looks for none.
    has_tombstones: bool,
    /// True in a renewal or confirmation of shared holds. Such a command does not read the queue,
    /// so it leaves the lock key's flag for waiters and tombstones as it is.
    keeps_mark: bool,
    /// The latest time when anything written by the command expires, in ms since the epoch; 0 if
    /// nothing was written. The keys of shared holds must exist until then.
    latest_ms: u64,
}

impl<'a> Call<'a> {
    /// Creates the context of a command from `node` at `now_us`, with the default limits.
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

    /// Adds a hold to the reply. Its token is set when the command ends.
    fn report(&mut self, member: &Member, left_ms: u64) {
        let (member, batch) = (member.clone(), Vec::new());
        self.grants.push(Grant { member, token: FencingToken::NONE, left_ms, batch });
    }

    /// Adds a hold to the reply, with the ids of its batch members. Its token is set when the
    /// command ends.
    fn report_batch(&mut self, member: &Member, left_ms: u64, batch: &[u64]) {
        let (member, batch) = (member.clone(), batch.to_vec());
        self.grants.push(Grant { member, token: FencingToken::NONE, left_ms, batch });
    }

    /// Returns true if the reply already contains this member's hold, alone or within a batch.
    fn is_reported(&self, member: &Member) -> bool {
        self.grants.iter().any(|grant| grant.serves(member))
    }

    /// Takes the holds that were collected for the reply, and sets their token: the token issued by
    /// this command, or else `shared`, the token of all shared holds. Without either, no hold is
    /// reported.
    fn take_reported(&mut self, shared: Option<FencingToken>) -> Vec<Grant> {
        let mut grants = std::mem::take(&mut self.grants);
        match self.token.or(shared) {
            Some(token) => grants.iter_mut().for_each(|grant| grant.token = token),
            None => grants.clear(),
        }
        grants
    }

    /// Issues the next token: the counter's next number, or a number above the token floor if the
    /// counter is below it.
    fn issue(&mut self) -> FencingToken {
        self.issue_for(1)
    }

    /// Issues `holds` consecutive tokens, and returns the first.
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

    /// Draws the score for a newly queued member from the token counter. Each score is above all
    /// earlier scores, but unlike a token it may be below the token floor.
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

    /// Records that the command wrote something that expires at `until_ms`, in ms since the epoch.
    /// At the end, `update_lock_key` makes the lock key and the keys of shared holds last longer
    /// than that.
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
    /// Runs a command on the lock, and returns the reply. Messages are added to `call`.
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

    /// Runs an acquire as the fast path does in Redis, with two plain commands instead of a script:
    /// one sets the lock key if there is none, the other draws a token in any case. The reply is
    /// `NotServed` if the lock is busy, or if the token is unusable.
    pub fn step_fast(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        self.expire(call.now_ms());
        let drawn = call.counter.unwrap_or(0).saturating_add(1);
        let is_free = self.lock_key.is_none();
        let is_token = drawn > call.floor_us && drawn < token::LIMIT;
        if is_free && is_token {
            return self.step(call, command);
        }
        if is_free {
            // The member holds the lock, but the drawn number cannot be its token.
            self.step(call, command);
            call.token = None;
        }
        call.counter = Some(drawn);
        Answer::Acquired(Reply::short(vec![Acquired::NotServed { may_hold: is_free }]))
    }

    /// Removes expired keys, as Redis does before a command reads a key. `now_ms` is in ms since
    /// the epoch.
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
        self.set_aside.retain(|_, of_node| of_node.ends_ms > now_ms && !of_node.members.is_empty());
        let ended: Vec<Member> = self.tombstones.passed(now_ms).cloned().collect();
        for member in &ended {
            self.tombstones.remove(member);
        }
        self.clear_empty_expiries();
    }

    /// Clears the expiries of empty keys, because in Redis an empty key does not exist.
    fn clear_empty_expiries(&mut self) {
        if self.queue.is_empty() {
            self.queue_ends_ms = None;
        }
        if self.holds.is_empty() && self.reduced.is_empty() {
            self.holds_end_ms = None;
        }
    }

    /// Returns the weight of a member's hold: the weight that it requested, unless reduced.
    pub fn weight(&self, member: &Member) -> u64 {
        self.reduced.get(member).copied().unwrap_or(member.demand().weight())
    }
}
