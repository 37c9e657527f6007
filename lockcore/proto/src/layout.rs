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

/// A feature of locks that some key layouts do not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Shared holds: reads and permits, and downgrades from a lock to a read.
    Parts,
    /// Waiters that leave the queue when a newer waiter is queued.
    KeepNewest,
    /// Surveys: searches for all locks in a store.
    Survey,
}

/// The properties of a new attempt, from which [`Layout::member`] creates the member.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    /// The node that makes the attempt.
    pub node: &'a NodeId,
    /// The id of the new member.
    pub number: u64,
    /// The full lease in milliseconds, as opposed to the shorter lease right after a grant to a
    /// waiter.
    pub lease_ms: u64,
    /// How much of the name is requested.
    pub demand: Demand,
    /// How the member is served: alone, in a batch, or only until a newer member is queued. A
    /// layout that supports only exclusive locks ignores this.
    pub service: Service,
    /// The label for people to read.
    pub label: &'a Label,
}

/// A command as plain Redis commands (the fast path), which cost less than a script. They work only
/// on a lock that is free or has no waiters; otherwise the script must run after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fast<'a> {
    /// Acquires the lock if it is free.
    Acquire(FreeAcquire<'a>),
    /// Releases the lock if nobody waits for it.
    Release(FreeRelease<'a>),
}

/// The Redis ACL rules that users of the layout need, as text for an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The ACL rules for a lock's keys.
    pub keys: &'static str,
    /// The ACL rules for the channels on which nodes receive messages.
    pub channels: &'static str,
}

/// A key layout: how locks are stored in Redis, and which commands and scripts serve them.
pub trait Layout: fmt::Debug + Send + Sync {
    /// Returns the marker: the first two characters of each member's text, different for each
    /// layout. An in-memory store uses it to keep apart the locks of the same name in different
    /// layouts.
    fn marker(&self) -> &'static str;

    /// Returns why the layout does not support a feature, as a text for people; `None` if the
    /// layout supports it.
    fn refuses(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    /// Returns true if the layout accepts foreign names: lock names as other programs spell them.
    fn has_foreign_names(&self) -> bool {
        false
    }

    /// Creates the member for a new attempt. A layout that supports only exclusive locks ignores
    /// the demand and the service.
    fn member(&self, new: NewMember<'_>) -> Member;

    /// Creates the state of a lock that nobody holds, for an in-memory store.
    fn state(&self) -> Box<dyn Decide>;

    /// Returns the frequently used scripts, for the store to load on each server when it connects.
    /// The source of any other script is sent with its first call.
    fn usual_scripts(&self, topology: Topology) -> Vec<&'static Script>;

    /// Returns true if one script call can run several commands of this kind, each on another lock.
    /// The result is used only for renewals and touches, because a node never joins other commands
    /// on different locks.
    fn goes_together(&self, command: &Command) -> bool;

    /// Writes one script call for all the commands into `to`. Returns `None` if the layout has no
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

    /// Returns the command as plain Redis commands, which cost less than a script; `None` if it
    /// needs a script.
    fn fast<'a>(&self, _lock: &'a LockName, _command: &'a Command) -> Option<Fast<'a>> {
        None
    }

    /// Returns true if an acquire of this member can run as plain Redis commands, as returned by
    /// [`fast`](Self::fast). They succeed only while the lock is free.
    fn has_fast_acquire(&self, _member: &Member) -> bool {
        false
    }

    /// Returns the preflight script and its keys. The script tries every Redis command of the other
    /// scripts, to find ACL rights that the user lacks. `probe` is an otherwise unused lock name,
    /// from which the keys are derived.
    fn preflight(&self, probe: &LockName, context: Context<'_>) -> (&'static Script, Vec<String>);

    /// Returns the Redis ACL rules that the layout requires, in words.
    fn rights(&self) -> Rights;

    /// Returns the ACL rule to add if the user lacks the right to `key`, a key of the lock `probe`.
    /// The rule permits this kind of key for all locks of the namespace.
    fn key_rule(&self, key: &str, probe: &LockName, namespace: &str) -> String;

    /// Returns the ACL rule to add if the user lacks the right to `channel`. `None` for the
    /// channels on which nodes receive their messages.
    fn channel_rule(&self, _channel: &str) -> Option<String> {
        None
    }

    /// Describes, for people, a key of a lock that contains data of another program. `which` is the
    /// key's name in the scripts, and `type_of` is the Redis type of the data. `None` if the layout
    /// has no such key.
    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String>;

    /// Returns a pattern of further channels to subscribe to, on which other programs wake waiters
    /// of this node, and the ACL rule for it in words. `None` if the layout has no such channels.
    fn pattern(&self, _node: &NodeId) -> Option<(String, &'static str)> {
        None
    }

    /// Returns the waiter of this node that a message on `channel` wakes, if the channel matches
    /// [`pattern`](Self::pattern). `None` if the channel's name contains no member of this node.
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
    /// The last number drawn from the token counter, if all locks of the store share one; `None`
    /// before the first. A layout with other counters ignores it.
    pub counter: &'a mut Option<u64>,
    /// The token floor: the greatest among all tokens and server times, in µs since the epoch, that
    /// the calling node has seen. New tokens are above it.
    pub floor_us: u64,
    /// The arrangement of the servers, which determines the rules for tokens.
    pub topology: Topology,
    /// The events that the command causes, each with the node that receives it, in order.
    pub events: Vec<(NodeId, Event)>,
}

/// The state of a lock in an in-memory store, with the layout's rules for granting the lock.
pub trait Decide: fmt::Debug + Send {
    /// Runs a command on this state, and returns the reply.
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer;

    /// Returns the reply to an acquire of this many members as if the queue were full. For tests
    /// that need this refusal.
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
