//! The protocol of `docs/permits-protocol.md` as one pure function of one resource's state: fair
//! read-write locks and counting semaphores with weights, from one queue. No I/O, no clock, no
//! chance.

use std::collections::BTreeMap;

use super::{Answer, Command, SortedSet};
use crate::member::{Member, NodeId};
use crate::token::FencingToken;

mod advance;
mod commands;
#[cfg(any(test, feature = "unstable-internals"))]
mod recognise;
#[cfg(test)]
mod tests;

pub use crate::demand::{ALL, Demand};
#[cfg(feature = "unstable-internals")]
pub use recognise::{is_state, is_tombstone};

/// How long a resource's keys outlive the last thing in them, at least.
const MEMORY_MS: u64 = 60_000;
/// Their expiry is a multiple of this, so that it is not written with every command.
const ROUND_MS: u64 = 30_000;

/// All that a server keeps of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PermitState {
    /// What all holds weigh together, as it was written last.
    pub used: Option<u64>,
    /// The last token: that of every hold there is.
    pub token: Option<FencingToken>,
    /// Whether the next shared grant has a token of its own.
    pub era: Option<Era>,
    /// What holds that were reduced weigh now.
    pub reduced: BTreeMap<Member, u64>,
    /// When all this expires, tombstones aside.
    pub ends_ms: Option<u64>,
    /// Who holds, and when each lease ends. A hold whose lease has ended counts until it is taken
    /// out: nothing was granted in its place.
    pub holds: SortedSet<Member>,
    /// The waiting members with their places.
    pub queue: SortedSet<Member>,
    /// Up to when each of them is believed alive.
    pub deadlines: SortedSet<Member>,
    /// Tombstones, and when they expire.
    pub gone: BTreeMap<Member, u64>,
}

/// Who was granted last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// A write: no other hold has its token.
    Exclusive,
    /// Others, which share one token.
    Shared,
}

/// What a command says to nodes other than its caller's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// Members of the node were granted.
    Grants {
        /// Whose channel.
        node: NodeId,
        /// The token of all these holds.
        token: FencingToken,
        /// The members' numbers and the milliseconds of their claims.
        grants: Vec<(u64, u64)>,
    },
    /// Members of the node were force-released. The caller's own are told in this way, too.
    Revoked {
        /// Whose channel.
        node: NodeId,
        /// The members' numbers.
        numbers: Vec<u64>,
    },
}

/// How much one command does at most, so that no script keeps the server from others for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Members that are granted.
    pub granted: usize,
    /// Members of the queue that are looked at.
    pub looked_at: usize,
    /// Holds that are taken out because their leases have ended.
    pub reclaimed: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { granted: 256, looked_at: 1_000, reclaimed: 256 }
    }
}

/// The circumstances of one command, and what it causes.
pub struct Call<'a> {
    /// Who calls.
    pub node: &'a NodeId,
    /// Whether a message to the node with this text would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
    /// The latest time that the caller has seen on a server, µs since the epoch. One that this
    /// server has replaced may have been ahead of it.
    pub seen_us: u64,
    /// The latest time that the caller has seen on servers before this one, µs since the epoch; 0
    /// if there was none. They may have granted what this one does not know.
    pub elsewhere_us: u64,
    /// How much it may do.
    pub bounds: Bounds,
    /// What was published, in order.
    pub messages: Vec<Message>,
    /// Holds of the calling node, with the milliseconds left of each.
    grants: Vec<(Member, u64)>,
    passed_over: u64,
    more: bool,
    /// Whether a member waited when the command began.
    is_waited_for: bool,
}

impl<'a> Call<'a> {
    /// A call of `node` at `now_us`.
    pub fn new(node: &'a NodeId, connected: &'a dyn Fn(&str) -> bool, now_us: u64) -> Self {
        Self {
            node,
            connected,
            now_us,
            seen_us: 0,
            elsewhere_us: 0,
            bounds: Bounds::default(),
            messages: Vec::new(),
            grants: Vec::new(),
            passed_over: 0,
            more: false,
            is_waited_for: false,
        }
    }

    /// The server's time, ms since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Tells the caller of a hold of its own.
    fn tell(&mut self, member: &Member, left_ms: u64) {
        self.grants.push((member.clone(), left_ms));
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

impl PermitState {
    /// Runs one command.
    pub fn step(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        match command {
            Command::Acquire { member, mode, queue_limit } => {
                Answer::Acquired(self.acquire(call, member, *mode, *queue_limit))
            }
            Command::Release { member } => Answer::Released(self.release(call, member)),
            Command::Renew { members } => Answer::Renewed(self.renew(call, members)),
            Command::Reduce { member, weight } => {
                Answer::Renewed(self.reduce(call, member, *weight))
            }
            Command::Touch { members } => Answer::Touched(self.touch(call, members)),
            Command::Leave { leaving } => Answer::Left(self.leave(call, leaving)),
            Command::ForceRelease { member } => {
                Answer::Released(self.force_release(call, member.as_ref()))
            }
            Command::Inspect => Answer::Inspected(self.inspect(call.now_us)),
        }
    }

    /// Forgets what has expired, as Redis does before a command looks at a key.
    pub fn expire(&mut self, now_ms: u64) {
        if self.ends_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            *self = Self { gone: std::mem::take(&mut self.gone), ..Self::default() };
        }
        self.gone.retain(|_, at_ms| *at_ms > now_ms);
    }

    /// What a hold of the member weighs: what it asked for, unless it was reduced.
    pub fn weight(&self, member: &Member) -> u64 {
        self.reduced.get(member).copied().unwrap_or(member.demand().weight())
    }

    /// Makes everything live for a while after `until_ms`, in which something of it still counts.
    fn keep(&mut self, until_ms: u64) {
        let needed_ms = until_ms + MEMORY_MS;
        if self.ends_ms.is_none_or(|at_ms| at_ms < needed_ms) {
            self.ends_ms = Some(needed_ms.next_multiple_of(ROUND_MS));
            self.used.get_or_insert(0);
        }
    }
}
