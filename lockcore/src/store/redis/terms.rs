//! `Terms`: the circumstances of one command.

use super::seen::Floors;
use crate::member::NodeId;

/// The node that sends a command, and the tokens and times that it has seen by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) node: &'a NodeId,
    /// The first part of the grants channels.
    pub(crate) prefix: &'a str,
    pub(crate) floors: Floors,
}
