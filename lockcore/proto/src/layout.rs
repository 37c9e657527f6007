//! Key layouts: how the requests, commands and messages of a lock are stored and written in Redis,
//! and the rules for granting the lock. A node and its store share one layout as a value. No other
//! code depends on which layout is in use.
//!
//! [`QUEUE`] is the layout described in `docs/protocol.md`. Other layouts are in separate crates,
//! such as the layout of Redisson.

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

/// A feature that some layouts do not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Reads and permits, and downgrades from a lock to a read.
    Parts,
    /// Waiters that leave the queue when a newer waiter is queued.
    KeepNewest,
    /// Surveys, which search a store for locks.
    Survey,
}

/// The parts from which a layout creates the member for a new attempt.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    /// The node that makes the attempt.
    pub node: &'a NodeId,
    /// The id of the new member.
    pub number: u64,
    /// The full lease in milliseconds.
    pub lease_ms: u64,
    /// How much of the name is requested.
    pub demand: Demand,
    /// Whether the member may be granted the lock in a batch, or waits only until a newer member is
    /// queued. A layout without this feature ignores it.
    pub service: Service,
    /// The label for people to read.
    pub label: &'a Label,
}

/// A command that the store sends without a script, because it is cheaper that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fast<'a> {
    /// Acquires the lock if it is free. Otherwise the script must run.
    Acquire(FreeAcquire<'a>),
    /// Releases the lock if nobody waits for it. Otherwise the script must run.
    Release(FreeRelease<'a>),
}

/// The Redis ACL rules that a layout requires, in words for an error text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The ACL rules for a lock's keys.
    pub keys: &'static str,
    /// The ACL rules for the channels.
    pub channels: &'static str,
}

/// A key layout: how locks are stored in Redis, and which commands and scripts serve them.
pub trait Layout: fmt::Debug + Send + Sync {
    /// Returns the marker, the first two characters of each member's text. Each layout has a
    /// different marker, so locks of the same name in two layouts are different locks.
    fn marker(&self) -> &'static str;

    /// Returns the reason why the layout does not support a feature, for people to read; `None` if
    /// it does.
    fn refuses(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    /// Returns true if the layout accepts lock names that other programs use.
    fn has_foreign_names(&self) -> bool {
        false
    }

    /// Creates the member for a new attempt. A layout that supports only exclusive locks ignores
    /// the demand and the service.
    fn member(&self, new: NewMember<'_>) -> Member;

    /// Returns the state of a lock that nobody holds, for an in-memory store.
    fn state(&self) -> Box<dyn Decide>;

    /// Returns the scripts that the store loads on each server when it connects. All other scripts
    /// are rare, so their source is sent with the first call.
    fn usual_scripts(&self, topology: Topology) -> Vec<&'static Script>;

    /// Returns true if a single script call can run several commands of this kind, as all renewals
    /// or all touches, for several locks.
    fn goes_together(&self, command: &Command) -> bool;

    /// Writes the script call for these commands into `to`. Returns `None` if the layout has no
    /// script for them.
    fn write(
        &self,
        commands: &Commands<'_>,
        context: Context<'_>,
        to: &mut dyn Begin,
    ) -> Option<()>;

    /// Decodes the reply to a script call with a single command.
    ///
    /// # Errors
    /// The error that the server reported for this lock, or a protocol error if the reply has an
    /// unknown form or belongs to another request.
    fn answer(
        &self,
        reading: Reading<'_>,
        command: (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError>;

    /// Decodes the reply to a script call with several commands into one result per command, in
    /// order.
    ///
    /// # Errors
    /// The reply has an unknown form, or belongs to another request. An error of a single lock is
    /// in the list of results.
    fn answers(
        &self,
        reading: Reading<'_>,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError>;

    /// Returns the form of this command without a script; `None` if the script must run.
    fn fast<'a>(&self, _lock: &'a LockName, _command: &'a Command) -> Option<Fast<'a>> {
        None
    }

    /// Returns true if [`fast`](Self::fast) has a form for acquires of this member.
    fn has_fast_acquire(&self, _member: &Member) -> bool {
        false
    }

    /// Returns the script that tests every right required by the other scripts, and the keys for
    /// it. The keys belong to the lock `probe`, which is not changed.
    fn preflight(&self, probe: &LockName, context: Context<'_>) -> (&'static Script, Vec<String>);

    /// Returns the Redis ACL rules that the layout requires, in words.
    fn rights(&self) -> Rights;

    /// Returns the ACL rule that permits keys like `key`, a key of the lock `probe`, for all locks
    /// of the namespace.
    fn key_rule(&self, key: &str, probe: &LockName, namespace: &str) -> String;

    /// Returns the ACL rule for a channel that is special to the layout; `None` for the channels on
    /// which a node receives its messages.
    fn channel_rule(&self, _channel: &str) -> Option<String> {
        None
    }

    /// Returns a text for people about a key that contains data of another program. `which` is the
    /// key's name in the scripts, and `type_of` is the Redis type of the data. `None` if the layout
    /// has no such key.
    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String>;

    /// Returns the pattern of further channels on which other programs wake waiters of this node,
    /// and the ACL rule for it in words. `None` if the layout has no such channels.
    fn pattern(&self, _node: &NodeId) -> Option<(String, &'static str)> {
        None
    }

    /// Returns the waiter of this node that a message on `channel` wakes, if the channel matches
    /// [`pattern`](Self::pattern). `None` if it names no member of this node.
    fn called(&self, _channel: &str, _node: &NodeId) -> Option<Member> {
        None
    }
}

/// The context in which an in-memory store runs a command on a lock, and the events that the
/// command causes.
pub struct Circumstances<'a> {
    /// The node that sent the command.
    pub node: &'a NodeId,
    /// Returns true if the node with this id is subscribed, so that it would receive a message.
    /// Waiters of nodes that are not subscribed are skipped, because they would miss the grant.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The store's time, in µs since the epoch.
    pub now_us: u64,
    /// The number of the last token, if all locks of the store share a token counter.
    pub counter: &'a mut Option<u64>,
    /// The token floor: the greatest token and server time that the calling node has seen, in
    /// µs since the epoch. New tokens are above it.
    pub floor_us: u64,
    /// The arrangement of the servers, which determines the rules for tokens.
    pub topology: Topology,
    /// The events that the command causes, each with the node that receives it, in order.
    pub events: Vec<(NodeId, Event)>,
}

/// A lock's state in an in-memory store, with the rules of the layout.
pub trait Decide: fmt::Debug + Send {
    /// Runs a command on this state, and returns the reply.
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer;

    /// Returns the reply to an acquire of `members` members as if the queue were full.
    fn full(&mut self, of: &mut Circumstances<'_>, members: usize) -> Answer;

    /// Removes all keys and entries that have expired by `now_ms`, in ms since the epoch.
    fn expire(&mut self, now_ms: u64);

    /// Returns true if the state contains nothing, so that the store can drop it.
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
