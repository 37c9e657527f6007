//! The layout of a lock's keys: its members, its commands and messages on the wire, and its rules,
//! as one value that a node and its store have. Nothing else knows which layout it is.
//!
//! [`QUEUE`] is the layout of `docs/protocol.md`. Other layouts are crates of their own.

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

/// A use of locks that a layout may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Demands for less than everything, and downgrades to them.
    Parts,
    /// A waiter that leaves the queue for a newer one.
    KeepNewest,
    /// The search of a store for its locks.
    Survey,
}

/// A member to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    /// Its node.
    pub node: &'a NodeId,
    /// Its number.
    pub number: u64,
    /// Its lease, ms.
    pub lease_ms: u64,
    /// Its demand.
    pub demand: Demand,
    /// The way in which it is served, if the layout has it.
    pub service: Service,
    /// Its label.
    pub label: &'a Label,
}

/// A command without a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fast<'a> {
    /// The acquire of a lock that may be free.
    Acquire(FreeAcquire<'a>),
    /// The release of a lock that may have no waiters.
    Release(FreeRelease<'a>),
}

/// The rules of an ACL that a layout needs, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The rules for the keys of a lock.
    pub keys: &'static str,
    /// The rules for the channels.
    pub channels: &'static str,
}

/// A layout.
pub trait Layout: fmt::Debug + Send + Sync {
    /// The first two characters of its members' texts. Two layouts have different ones, and then
    /// the locks of one name are different locks.
    fn marker(&self) -> &'static str;

    /// The reason why it has no such use, for people; `None` if it has.
    fn refuses(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    /// Whether other programs may have named its locks.
    fn has_foreign_names(&self) -> bool {
        false
    }

    /// The member of a new attempt. It need not have a demand that the layout refuses, nor be in a
    /// run.
    fn member(&self, new: NewMember<'_>) -> Member;

    /// A lock of which nothing is kept yet.
    fn state(&self) -> Box<dyn Decide>;

    /// The scripts that each server is to know from the start. The others are rare, and go by their
    /// source the first time.
    fn usual_scripts(&self, topology: Topology) -> Vec<&'static Script>;

    /// Whether one script runs several commands such as this one, which are all renewals or all
    /// touches.
    fn goes_together(&self, command: &Command) -> bool;

    /// Writes the call of the script that runs the commands; `None` if there is no such script.
    fn write(
        &self,
        commands: &Commands<'_>,
        context: Context<'_>,
        to: &mut dyn Begin,
    ) -> Option<()>;

    /// The answer to the only command.
    ///
    /// # Errors
    /// The server's for this lock, or that the answer has no known form or is one to another
    /// request.
    fn answer(
        &self,
        reading: Reading<'_>,
        command: (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError>;

    /// The answers to commands that one script ran.
    ///
    /// # Errors
    /// The answer has no known form, or is one to another request.
    fn answers(
        &self,
        reading: Reading<'_>,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError>;

    /// The command without a script, if there is such a way.
    fn fast<'a>(&self, _lock: &'a LockName, _command: &'a Command) -> Option<Fast<'a>> {
        None
    }

    /// Whether [`fast`](Self::fast) may acquire for this member.
    fn has_fast_acquire(&self, _member: &Member) -> bool {
        false
    }

    /// The script that tries every right of the others, and the keys on which it does, those of the
    /// lock `probe`.
    fn preflight(&self, probe: &LockName, context: Context<'_>) -> (&'static Script, Vec<String>);

    /// The rules of an ACL that it needs.
    fn rights(&self) -> Rights;

    /// The rule for this key of the lock `probe`, by which all locks of the namespace have it.
    fn key_rule(&self, key: &str, probe: &LockName, namespace: &str) -> String;

    /// The rule for a channel other than the grants channels.
    fn channel_rule(&self, _channel: &str) -> Option<String> {
        None
    }

    /// The key at one of a lock's names that its scripts call so, for people: it holds another
    /// program's data, of this type.
    fn foreign_key(&self, which: &str, type_of: &str) -> Option<String>;

    /// The pattern of the channels beside that of grants on which the node's members are told to
    /// come, and the right that it takes, in words.
    fn pattern(&self, _node: &NodeId) -> Option<(String, &'static str)> {
        None
    }

    /// The member of the node that is told to come by a message on such a channel.
    fn called(&self, _channel: &str, _node: &NodeId) -> Option<Member> {
        None
    }
}

/// The circumstances of a command on a lock of a store in memory, and the events that it causes.
pub struct Circumstances<'a> {
    /// The calling node.
    pub node: &'a NodeId,
    /// Whether a message to the node with this text would be received.
    pub connected: &'a dyn Fn(&str) -> bool,
    /// The store's time, µs since the epoch.
    pub now_us: u64,
    /// The last token, if the locks of the store share a counter.
    pub counter: &'a mut Option<u64>,
    /// The greatest token and time that the caller has seen, µs since the epoch.
    pub floor_us: u64,
    /// How the store and others are put together.
    pub topology: Topology,
    /// The events for nodes, in order.
    pub events: Vec<(NodeId, Event)>,
}

/// All that a store in memory keeps of one lock. The rules of its layout are a function of it.
pub trait Decide: fmt::Debug + Send {
    /// Runs one command.
    fn step(&mut self, of: &mut Circumstances<'_>, command: &Command) -> Answer;

    /// Answers an acquire of so many members where the queue is full.
    fn full(&mut self, of: &mut Circumstances<'_>, members: usize) -> Answer;

    /// Forgets what has ended by now, ms since the epoch.
    fn expire(&mut self, now_ms: u64);

    /// Whether nothing is left to remember.
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
