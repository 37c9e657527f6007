//! Key layouts: a lock's members, commands, messages and rules, as a value shared by a node and the
//! store. Nothing else depends on which layout is in use.
//!
//! [`QUEUE`] is the layout in `docs/protocol.md`. Other layouts are separate crates.

mod queue;

use std::fmt;

pub use queue::{QUEUE, QueueLayout};

use crate::demand::Demand;
use crate::error::StoreError;
use crate::member::{Label, Member, NodeId, Service};
use crate::name::LockName;
use crate::wire::call::{Begin, Commands, Context, Reading};
use crate::wire::queue::{FreeAcquire, FreeRelease};
use crate::wire::scripts::Script;
use crate::wire::value::Value;
use crate::{Answer, Answers, Command, Event, Topology};

/// A feature that a layout may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Demands for less than the whole name, and downgrades.
    Parts,
    /// Waiters that leave the queue for a newer waiter.
    KeepNewest,
    /// Searching a store for locks.
    Survey,
}

/// A new member's parts.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The member id.
    pub number: u64,
    /// The lease, ms.
    pub lease_ms: u64,
    /// The demand.
    pub demand: Demand,
    /// How the member is served, if the layout supports it.
    pub service: Service,
    /// The label.
    pub label: &'a Label,
}

/// A command without a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fast<'a> {
    /// Acquires a lock that may be free.
    Acquire(FreeAcquire<'a>),
    /// Releases a lock that may be without waiters.
    Release(FreeRelease<'a>),
}

/// The ACL rules required by a layout, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The rules for a lock's keys.
    pub keys: &'static str,
    /// The rules for the channels.
    pub channels: &'static str,
}

/// A key layout.
pub trait Layout: fmt::Debug + Send + Sync {
    /// The first two characters of member texts. Each layout has a different marker, so the locks
    /// of a name in two layouts are different locks.
    fn marker(&self) -> &'static str;

    /// Why the layout lacks a feature, for people; `None` if supported.
    fn refuses(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    /// Whether lock names may come from other programs.
    fn has_foreign_names(&self) -> bool {
        false
    }

    /// Returns the member for a new attempt. The layout may ignore demands it refuses, and batches.
    fn member(&self, new: NewMember<'_>) -> Member;

    /// A lock's initial state in an in-memory store.
    fn state(&self) -> Box<dyn Decide>;

    /// The scripts loaded on each server from the start. The others are rare: their first call
    /// sends the source.
    fn usual_scripts(&self, topology: Topology) -> Vec<&'static Script>;

    /// Whether a script can run several commands of this kind together, all renewals or all
    /// touches.
    fn goes_together(&self, command: &Command) -> bool;

    /// Writes the script call for the commands; `None` if there is no such script.
    fn write(
        &self,
        commands: &Commands<'_>,
        context: Context<'_>,
        to: &mut dyn Begin,
    ) -> Option<()>;

    /// Decodes the reply to a single command.
    ///
    /// # Errors
    /// The server's error for this lock, or a reply in an unknown form or to another request.
    fn answer(
        &self,
        reading: Reading<'_>,
        command: (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError>;

    /// Decodes the replies to commands run together by a script.
    ///
    /// # Errors
    /// The reply has an unknown form, or belongs to another request.
    fn answers(
        &self,
        reading: Reading<'_>,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError>;

    /// The command's form without a script, if there is one.
    fn fast<'a>(&self, _lock: &'a LockName, _command: &'a Command) -> Option<Fast<'a>> {
        None
    }

    /// Whether [`fast`](Self::fast) may acquire for this member.
    fn has_fast_acquire(&self, _member: &Member) -> bool {
        false
    }

    /// The script that tests the rights required by all other scripts, and the script's keys, which
    /// belong to the lock `probe`.
    fn preflight(&self, probe: &LockName, context: Context<'_>) -> (&'static Script, Vec<String>);

    /// The ACL rules required by the layout.
    fn rights(&self) -> Rights;

    /// The ACL rule that covers this key of the lock `probe` for all locks of the namespace.
    fn key_rule(&self, key: &str, probe: &LockName, namespace: &str) -> String;

    /// The ACL rule for a channel other than the grants channels.
    fn channel_rule(&self, _channel: &str) -> Option<String> {
        None
    }

    /// Describes a foreign key, for people: `which` is the key's name in the scripts, `type_of` the
    /// type of the other program's data.
    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String>;

    /// The pattern of the layout's own channels on which members are woken, and the right they
    /// require, in words.
    fn pattern(&self, _node: &NodeId) -> Option<(String, &'static str)> {
        None
    }

    /// The node's member that a message on such a channel wakes.
    fn called(&self, _channel: &str, _node: &NodeId) -> Option<Member> {
        None
    }
}

/// The context of a command on a lock in an in-memory store, and the events it causes.
pub struct Circumstances<'a> {
    /// The calling node.
    pub node: &'a NodeId,
    /// Whether a message to the node with this text would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The store's time, µs since the epoch.
    pub now_us: u64,
    /// The last token, if the store's locks share a counter.
    pub counter: &'a mut Option<u64>,
    /// The greatest token and time seen by the caller, µs since the epoch.
    pub floor_us: u64,
    /// How the servers are arranged.
    pub topology: Topology,
    /// The events for nodes, in order.
    pub events: Vec<(NodeId, Event)>,
}

/// A lock's state in an in-memory store. The layout's rules are a function of this state.
pub trait Decide: fmt::Debug + Send {
    /// Runs a command.
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer;

    /// Replies to an acquire of `members` members when the queue is full.
    fn full(&mut self, of: &mut Circumstances<'_>, members: usize) -> Answer;

    /// Removes everything that has expired by `now_ms`, ms since the epoch.
    fn expire(&mut self, now_ms: u64);

    /// Whether the state is empty, so that the lock can be dropped.
    fn is_empty(&self) -> bool;
}

impl fmt::Debug for Circumstances<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circumstances")
            .field("node", self.node)
            .field("now_us", &self.now_us)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
