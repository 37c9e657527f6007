//! The protocol of `docs/protocol.md` as one pure function of one lock's state: locks, reads and
//! permits from one queue. No I/O, no clock, no chance.

use std::collections::BTreeMap;

use super::{Acquired, Answer, Command, Event, Grant, PATIENCE_MS, Reply, SortedSet, Topology};
use crate::member::{Member, NodeId};
use crate::token::{self, FencingToken};

mod advance;
mod commands;
mod door;
#[cfg(test)]
mod tests;

pub use door::{Door, Held, Mark};
pub(crate) use door::{LOST_COUNTER, TOKEN_LIMIT};

/// The time between the end of a lease and the end of its marked door.
pub const MARGIN_MS: u64 = 60_000;
/// The life of the queue from the time that a node of its members was heard of, and the shortest
/// one of a shared door that is waited for.
pub(crate) const WAITING_TTL_MS: u64 = PATIENCE_MS + MARGIN_MS;
/// The expiry of a shared door is a multiple of this, so that it is seldom written.
pub(crate) const ROUND_MS: u64 = 30_000;
/// A newcomer renews its node's patience where less than this is left of it.
pub(crate) const FRESH_MS: u64 = 10_000;
/// The life of the set of members that were passed over, from the last time that one was.
pub(crate) const PASSED_MS: u64 = 15_000;
/// A member that goes back in front of the queue has a place below the head's by this, so that none
/// that waits is in between,
pub(crate) const IN_FRONT: u64 = 1_000_000_000;
/// or from here on where none waits: below all places of newcomers.
pub(crate) const EMPTY_FRONT: u64 = 500_000_000_000_000;
/// The time between two looks for members without patience in a full queue.
pub(crate) const SWEPT_MS: u64 = 1_000;

/// All that a server keeps of one lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct QueueState {
    /// The holder of everything, or how much is held in parts. Absent: free.
    pub door: Option<Door>,
    /// The waiting members with their places.
    pub queue: SortedSet<Member>,
    /// The expiry of the queue.
    pub queue_ends_ms: Option<u64>,
    /// The end of each node's patience: up to then its waiting members are believed alive.
    pub patience: BTreeMap<Box<str>, u64>,
    /// The end of the time for which members without patience are not looked for in a full queue.
    pub swept_until_ms: Option<u64>,
    /// The members of each node that were passed over.
    pub passed: BTreeMap<Box<str>, Passed>,
    /// The members that hold parts, and when each lease ends. A hold whose lease has ended counts
    /// until it is taken out: nothing was granted in its place.
    pub holds: SortedSet<Member>,
    /// The weights of holds that were reduced.
    pub reduced: BTreeMap<Member, u64>,
    /// The expiry of holds and reduced weights.
    pub holds_end_ms: Option<u64>,
    /// Tombstones, each with its end.
    pub gone: SortedSet<Member>,
}

/// The members of one node that were passed over, with their places.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Passed {
    /// The members.
    pub members: SortedSet<Member>,
    /// The end of the record.
    pub ends_ms: u64,
}

/// A message to one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Members of the node were granted.
    Grants {
        /// The node of the channel.
        node: NodeId,
        /// The token of all these holds.
        token: FencingToken,
        /// The members' numbers and the milliseconds of their claims.
        grants: Vec<(u64, u64)>,
    },
    /// A run of members of the node was granted.
    Run {
        /// The node of the channel.
        node: NodeId,
        /// The token of the first; each of the others has the next.
        token: FencingToken,
        /// The milliseconds of the claim.
        left_ms: u64,
        /// The members' numbers, in order.
        numbers: Vec<u64>,
    },
    /// Members of the node were force-released. The caller's own are told in this way, too.
    Revoked {
        /// The node of the channel.
        node: NodeId,
        /// The members' numbers.
        numbers: Vec<u64>,
    },
    /// Waiting members have left the queue for a newer one. The caller's own are told in this way,
    /// too.
    Superseded {
        /// The node on whose channel it is sent.
        node: NodeId,
        /// The members' numbers.
        numbers: Vec<u64>,
    },
}

impl Message {
    /// The node that the message is sent to, and the event that it brings there.
    pub fn event(self) -> (NodeId, Event) {
        match self {
            Self::Grants { node, token, grants } => (node, Event::Granted { token, grants }),
            Self::Run { node, token, left_ms, numbers } => {
                (node, Event::GrantedRun { token, left_ms, numbers })
            }
            Self::Revoked { node, numbers } => (node, Event::Revoked { numbers }),
            Self::Superseded { node, numbers } => (node, Event::Superseded { numbers }),
        }
    }
}

/// The most that one command does, so that no script keeps the server from others for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Members that are granted.
    pub granted: usize,
    /// Members of the queue that are looked at.
    pub looked_at: usize,
    /// Holds that are taken out because their leases have ended, and tombstones that are.
    pub reclaimed: usize,
    /// Tombstones that are left once waiting members were superseded.
    pub gone: usize,
}

impl Bounds {
    /// The bounds of the scripts: a look at so many members is about a millisecond's work.
    pub(crate) const USUAL: Self =
        Self { granted: 256, looked_at: 200, reclaimed: 256, gone: 4_096 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The circumstances of one command, and its effects.
pub struct Call<'a> {
    /// The calling node.
    pub node: &'a NodeId,
    /// Whether a message to the node with this text would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
    /// The counter of tokens, which all locks of a server share.
    pub counter: Option<u64>,
    /// The greatest token and time that the caller has seen on a server, µs since the epoch.
    pub floor_us: u64,
    /// The latest time that the caller has seen on servers before this one, µs since the epoch; 0
    /// if there was none. They may have granted holds that this one does not know.
    pub elsewhere_us: u64,
    /// How the servers are put together.
    pub topology: Topology,
    /// The most that it may do.
    pub bounds: Bounds,
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Holds of the calling node, whose token the end of the command decides.
    grants: Vec<Grant>,
    token: Option<FencingToken>,
    passed_over: u64,
    more: bool,
    /// Whether there are tombstones to be looked at.
    has_gone: bool,
    /// Whether parts are renewed at most: then the mark of their door stays as it is.
    keeps_mark: bool,
    /// The last end of anything that was written.
    latest_ms: u64,
}

impl<'a> Call<'a> {
    /// A call of `node` at `now_us`.
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
            passed_over: 0,
            more: false,
            has_gone: false,
            keeps_mark: false,
            latest_ms: 0,
        }
    }

    /// The server's time, ms since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Tells the caller of a hold of its own.
    fn tell(&mut self, member: &Member, left_ms: u64) {
        let (member, run) = (member.clone(), Vec::new());
        self.grants.push(Grant { member, token: token::NONE, left_ms, run });
    }

    /// Tells the caller of a hold of its own, and which members are served within it.
    fn tell_run(&mut self, member: &Member, left_ms: u64, run: &[u64]) {
        let (member, run) = (member.clone(), run.to_vec());
        self.grants.push(Grant { member, token: token::NONE, left_ms, run });
    }

    /// Whether the caller is told already that this member holds, alone or within a run.
    fn is_told(&self, member: &Member) -> bool {
        self.grants.iter().any(|grant| grant.serves(member))
    }

    /// The holds to tell of, under the token that this command issued, or else under that which
    /// parts share.
    fn told(&mut self, shared: Option<FencingToken>) -> Vec<Grant> {
        let mut told = std::mem::take(&mut self.grants);
        match self.token.or(shared) {
            Some(token) => told.iter_mut().for_each(|grant| grant.token = token),
            None => told.clear(),
        }
        told
    }

    /// The next token: the counter's next number, or one above all that is known.
    fn issue(&mut self) -> FencingToken {
        self.issue_for(1)
    }

    /// The first of so many tokens, one after the other.
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

    /// The place of a newcomer, from the same counter. It has to be above the places before it and
    /// not above the tokens that the caller has seen.
    fn place(&mut self) -> u64 {
        let next = self.counter.unwrap_or(0).saturating_add(1);
        if (LOST_COUNTER + 1..TOKEN_LIMIT).contains(&next) {
            self.counter = Some(next);
            return next;
        }
        let token = self.token;
        let place = self.issue().get();
        self.token = token;
        place
    }

    /// All keys live for a while after this.
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

    /// Runs an acquire of a lock as the transaction of the fast way does: it sets the lock key if
    /// there is none, and draws a number in any case.
    pub fn step_fast(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        self.expire(call.now_ms());
        let drawn = call.counter.unwrap_or(0).saturating_add(1);
        let is_free = self.door.is_none();
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
        Answer::Acquired(Reply {
            outcome: vec![Acquired::NotServed { may_hold: is_free }],
            grants: Vec::new(),
            first_end_ms: None,
            now_us: None,
            passed_over: 0,
            more: false,
        })
    }

    /// Forgets expired keys, as Redis does before a command looks at a key.
    pub fn expire(&mut self, now_ms: u64) {
        let has_ended = |ends_ms: Option<u64>| ends_ms.is_some_and(|at_ms| at_ms <= now_ms);
        self.door.take_if(|door| has_ended(door.ends_ms));
        if has_ended(self.queue_ends_ms) {
            self.queue.clear();
        }
        if has_ended(self.holds_end_ms) {
            self.holds.clear();
            self.reduced.clear();
        }
        self.patience.retain(|_, at_ms| *at_ms > now_ms);
        self.swept_until_ms.take_if(|at_ms| *at_ms <= now_ms);
        self.passed.retain(|_, passed| passed.ends_ms > now_ms && !passed.members.is_empty());
        let ended: Vec<Member> = self.gone.passed(now_ms).cloned().collect();
        for member in &ended {
            self.gone.remove(member);
        }
        self.settle_expiries();
    }

    /// Keys that are empty do not exist, and have no expiry.
    fn settle_expiries(&mut self) {
        if self.queue.is_empty() {
            self.queue_ends_ms = None;
        }
        if self.holds.is_empty() && self.reduced.is_empty() {
            self.holds_end_ms = None;
        }
    }

    /// The weight of a member's hold: that of its demand, unless it was reduced.
    pub fn weight(&self, member: &Member) -> u64 {
        self.reduced.get(member).copied().unwrap_or(member.demand().weight())
    }
}
