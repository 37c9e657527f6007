//! Script calls: what a client has to implement to send a script, and the context for writing calls
//! and parsing replies.

use std::fmt;

use super::scripts::Script;
use crate::error::StoreError;
use crate::member::NodeId;
use crate::name::LockName;
use crate::{Command, Topology};

/// A script call, as a Redis client represents it. The keys come first, then the other arguments.
pub trait Call {
    /// Creates a call of `script` without arguments. The first `keys` of the arguments added later
    /// are the script's keys.
    fn begin(script: &'static Script, keys: usize) -> Self
    where
        Self: Sized;

    /// Adds a text as the next argument.
    fn text(&mut self, text: &str) -> &mut dyn Call;

    /// Adds a number as the next argument.
    fn number(&mut self, number: u64) -> &mut dyn Call;

    /// Adds a value in its `Display` form as the next argument.
    fn display(&mut self, argument: &dyn fmt::Display) -> &mut dyn Call;
}

/// A place for one script call, filled by a layout. It hides the type of the [`Call`].
pub trait Begin {
    /// Begins a call of `script`, in place of any earlier call. The first `keys` of the arguments
    /// added to the result are the script's keys.
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call;
}

impl<C: Call> Begin for Option<C> {
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call {
        self.insert(C::begin(script, keys))
    }
}

/// The times and tokens that the calling node has seen in replies so far, in µs since the epoch.
/// They determine the next tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenFloors {
    /// The token floor: new tokens are above this number.
    pub floor_us: u64,
    /// The latest time or token from previous servers; 0 without a previous server. Until this
    /// time, a previous server may have granted holds unknown to this server.
    pub elsewhere_us: u64,
    /// The latest time or token from any server, the present server included.
    pub latest_us: u64,
    /// The time when the present epoch of a quorum primary began; 0 for any other server. An epoch
    /// ends when the server loses its data, and a primary grants locks in its present epoch only:
    /// see [`Counter::Epoch`](super::keys::Counter::Epoch).
    pub epoch_us: u64,
}

/// The context for writing a command: the calling node, the channels, and the token floor.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The node that sends the command.
    pub node: &'a NodeId,
    /// The prefix of the channels on which nodes receive their messages.
    pub prefix: &'a str,
    /// The arrangement of the servers, which determines the token counter.
    pub topology: Topology,
    /// The token floor, and other times and tokens that the node has seen.
    pub floors: TokenFloors,
}

/// What is needed to parse a reply: the node, and a parser for errors.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The node that sent the request. If the reply to a release contains the grant of a waiter,
    /// the waiter must belong to this node.
    pub node: &'a NodeId,
    /// The function that parses the text of a server error in a reply.
    pub of_error: &'a dyn Fn(&str) -> StoreError,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("node", self.node).finish_non_exhaustive()
    }
}

/// The commands of one script call, each with its lock: a single command, several renewals, or
/// several touches.
pub type Commands<'a> = [(&'a LockName, &'a Command)];
