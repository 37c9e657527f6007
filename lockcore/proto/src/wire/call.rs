//! Script calls: the commands that they run, and the context for writing them and for parsing
//! replies.

use std::fmt;

use super::scripts::Script;
use crate::error::StoreError;
use crate::member::NodeId;
use crate::name::LockName;
use crate::{Command, Topology};

/// A script call for a client to send. Keys come first, then the other arguments.
pub trait Call {
    /// Begins a call of this script with this number of keys, without any argument yet.
    fn begin(script: &'static Script, keys: usize) -> Self
    where
        Self: Sized;

    /// Adds a text as the next argument.
    fn text(&mut self, text: &str) -> &mut dyn Call;

    /// Adds a number as the next argument.
    fn number(&mut self, number: u64) -> &mut dyn Call;

    /// Adds a value by its `Display` form as the next argument.
    fn display(&mut self, argument: &dyn fmt::Display) -> &mut dyn Call;
}

/// A place for a call, filled by a layout.
pub trait Begin {
    /// Begins a call of this script with this number of keys.
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call;
}

impl<C: Call> Begin for Option<C> {
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call {
        self.insert(C::begin(script, keys))
    }
}

/// A command's token floor, and other times and tokens that its node has seen, in µs since the
/// epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenFloors {
    /// No new token is below this.
    pub floor_us: u64,
    /// The latest token and time of previous servers; 0 if there was none.
    pub elsewhere_us: u64,
    /// The latest token and time of all servers.
    pub latest_us: u64,
    /// When the server's epoch began, if it is a quorum primary, which grants in no other epoch:
    /// see [`Counter::Epoch`](super::keys::Counter::Epoch). 0 for any other server.
    pub epoch_us: u64,
}

/// A command's context: the sending node, and the token floor.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The grants channels' prefix.
    pub prefix: &'a str,
    /// The server topology.
    pub topology: Topology,
    /// The token floor.
    pub floors: TokenFloors,
}

/// The context for parsing a reply.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The node that sent the request.
    pub node: &'a NodeId,
    /// Parses a server error that appears as text in a reply.
    pub of_error: &'a dyn Fn(&str) -> StoreError,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("node", self.node).finish_non_exhaustive()
    }
}

/// The commands of one script, each with its lock: a single command, several renewals, or several
/// touches.
pub type Commands<'a> = [(&'a LockName, &'a Command)];
