//! The state of a node, as it knows it without asking the server.

use std::time::Duration;

use proto::Link;
use tokio::sync::watch;

/// A snapshot of one node; made by [`Locks::status`](crate::Locks::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The connection for commands. On a Redis Cluster it is up while the connection to at least
    /// one primary is, on a [quorum](crate::guide::quorum) while as many primaries are reached as a
    /// guard needs.
    pub commands: Connection,
    /// The connection on which grants arrive; on a Redis Cluster and on a quorum as for commands.
    pub subscription: Connection,
    /// Acquisitions that have no outcome yet.
    pub waiting: usize,
    /// Holds that have a guard.
    pub holding: usize,
    /// Holds that end and waiters that leave, until the server has confirmed it; on a quorum, of
    /// all primaries together.
    pub releasing: usize,
    /// The number of places that waiters have lost since the node began; on a quorum, at all
    /// primaries together.
    pub places_lost: u64,
    /// The server that locks are on: the primary; on a Redis Cluster and on a quorum, all primaries
    /// that this node has connected to, by their addresses. In memory there is none.
    pub servers: Vec<ServerStatus>,
}

impl Status {
    /// Whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The connections to one server.
///
/// A metric that has the address as a label is read from here when it is asked for: then its labels
/// are as many as there are servers, also where servers come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// The connection for commands.
    pub commands: Connection,
    /// The connection on which grants of this server arrive.
    pub subscription: Connection,
    /// The time since the server last answered a command: the time for which it has been away, if
    /// it is down. A server that is not asked for anything else answers a PING every five seconds.
    pub silent_for: Duration,
    /// Requests on their way that the server has not answered. Not known while there is no
    /// connection, and where it is one of a client or pool of yours.
    pub unanswered: Option<usize>,
    /// The number of slots of a Redis Cluster that it serves. A server without slots is kept for a
    /// minute, and as long as the Cluster names it as a primary.
    pub slots: Option<u16>,
}

impl ServerStatus {
    /// Whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// A connection that is up.
    Up,
    /// A connection that is down; the node is reconnecting.
    Down {
        /// The reason, for people.
        reason: String,
    },
}

impl Connection {
    /// Looks only for the length of this call: a state that is looked at cannot change, and the
    /// task that changes it may hold a mutex that the rest of a status needs.
    pub(crate) fn of(link: &watch::Receiver<Link>) -> Self {
        match &*link.borrow() {
            Link::Up => Self::Up,
            Link::Down { reason, .. } => Self::Down { reason: reason.to_string() },
        }
    }
}
