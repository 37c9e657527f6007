//! How a node stands, without asking the server.

use crate::store::Link;

/// A snapshot of one node; made by [`Locks::status`](crate::Locks::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The connection for commands.
    pub commands: Connection,
    /// The connection on which grants arrive.
    pub subscription: Connection,
    /// Attempts that have no outcome yet.
    pub waiting: usize,
    /// Holds with a guard.
    pub holding: usize,
    /// What was dropped and is not given back on the server yet.
    pub giving_back: usize,
    /// How many times a waiting attempt has lost its place since the start.
    pub places_lost: u64,
}

impl Status {
    /// Whether both connections stand.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// Usable.
    Up,
    /// Gone, being re-established.
    Down {
        /// Why, for people.
        reason: String,
    },
}

impl From<&Link> for Connection {
    fn from(link: &Link) -> Self {
        match link {
            Link::Up => Self::Up,
            Link::Down { reason } => Self::Down { reason: reason.to_string() },
        }
    }
}
