//! The state of a node, as it knows it without asking the server.

use proto::Link;

/// A snapshot of one node; made by [`Locks::status`](crate::Locks::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The connection for commands. On a Redis Cluster it is up while that to one primary is.
    pub commands: Connection,
    /// The connection on which grants arrive; on a Redis Cluster as for commands.
    pub subscription: Connection,
    /// Acquisitions that have no outcome yet.
    pub waiting: usize,
    /// Holds that have a guard.
    pub holding: usize,
    /// Holds that end and waiters that leave, until the server has confirmed it.
    pub releasing: usize,
    /// The number of places that waiters have lost since the node began.
    pub places_lost: u64,
}

impl Status {
    /// Whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// Connected.
    Up,
    /// Disconnected; the node is reconnecting.
    Down {
        /// The reason, for people.
        reason: String,
    },
}

impl Connection {
    pub(crate) fn of(link: &Link) -> Self {
        match link {
            Link::Up => Self::Up,
            Link::Down { reason, .. } => Self::Down { reason: reason.to_string() },
        }
    }
}
