//! A call of a script: the commands that it runs, what they are written with, and what their
//! answers are read with.

use std::fmt;

use super::scripts::Script;
use crate::error::StoreError;
use crate::member::NodeId;
use crate::name::LockName;
use crate::{Command, Topology};

/// The call of a script, which a client sends. Keys come first, then the other arguments.
pub trait Call {
    /// A call of this script with so many keys, without any argument yet.
    fn begin(script: &'static Script, keys: usize) -> Self
    where
        Self: Sized;

    /// Adds a text as the next argument.
    fn text(&mut self, text: &str) -> &mut dyn Call;

    /// Adds a number as the next argument.
    fn number(&mut self, number: u64) -> &mut dyn Call;

    /// Adds a displayed value as the next argument.
    fn display(&mut self, argument: &dyn fmt::Display) -> &mut dyn Call;
}

/// The place of a call, which a layout begins.
pub trait Begin {
    /// Begins the call of this script with so many keys.
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call;
}

impl<C: Call> Begin for Option<C> {
    fn begin(&mut self, script: &'static Script, keys: usize) -> &mut dyn Call {
        self.insert(C::begin(script, keys))
    }
}

/// Bounds for a command by all that its node has seen, µs since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floors {
    /// No new token is below this.
    pub floor_us: u64,
    /// The latest token and time of the servers before the present one; 0 if there was none.
    pub elsewhere_us: u64,
    /// The latest token and time of all servers.
    pub latest_us: u64,
    /// The beginning of the server's epoch, in which alone it grants, if it is a primary of a
    /// quorum: see [`Counter::Epoch`](super::keys::Counter::Epoch). 0 for any other server.
    pub epoch_us: u64,
}

/// The circumstances of one command: the node that sends it, and the bounds of its floors.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The first part of the grants channels.
    pub prefix: &'a str,
    /// How the servers are put together.
    pub topology: Topology,
    /// The bounds.
    pub floors: Floors,
}

/// The circumstances in which an answer is read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The node that has asked.
    pub node: &'a NodeId,
    /// Reads the error of a server that stands as a text in an answer.
    pub of_error: &'a dyn Fn(&str) -> StoreError,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("node", self.node).finish_non_exhaustive()
    }
}

/// The commands of one script, each with its lock: one command, several renewals, or several
/// touches.
pub type Commands<'a> = [(&'a LockName, &'a Command)];
