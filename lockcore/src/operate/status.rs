//! The state of a node, without a request to the server.

use std::time::Duration;

use proto::Link;
use tokio::sync::watch;

/// A snapshot of a node; made by [`Locks::status`](crate::Locks::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The connection for commands. On a Redis Cluster, up while any primary is connected; on a
    /// [quorum](crate::guide::quorum), while as many primaries are reachable as a guard needs.
    pub commands: Connection,
    /// The connection for grants; on a Redis Cluster and on a quorum as for commands.
    pub subscription: Connection,
    /// Acquisitions without an outcome yet.
    pub waiting: usize,
    /// Holds with a guard.
    pub holding: usize,
    /// Ending holds and leaving waiters, until confirmed by the server; on a quorum, over all
    /// primaries.
    pub releasing: usize,
    /// The number of queue positions lost by waiters since the node began; on a quorum, over all
    /// primaries.
    pub places_lost: u64,
    /// The locks' server: the primary; on a Redis Cluster and on a quorum, all primaries that this
    /// node has connected to, by address. Empty in memory.
    pub servers: Vec<ServerStatus>,
}

impl Status {
    /// Returns whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The connections to a server.
///
/// For a metric with the address as a label, read this when the metric is collected: then there are
/// as many labels as servers, even when servers come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// `host:port`, or a socket path.
    pub address: String,
    /// The connection for commands.
    pub commands: Connection,
    /// The connection for grants from this server.
    pub subscription: Connection,
    /// The time since the server's last response: how long it has been away, if it is down. An
    /// otherwise idle server responds to a PING every five seconds.
    pub silent_for: Duration,
    /// Requests in flight without a response. `None` without a connection, and for connections of
    /// your own client or pool.
    pub unanswered: Option<usize>,
    /// The number of Redis Cluster slots on this server. A server without slots is kept for a
    /// minute, and as long as the Cluster names it as a primary.
    pub slots: Option<u16>,
}

impl ServerStatus {
    /// Returns whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// A connection state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// The connection is up.
    Up,
    /// The connection is down; the node is reconnecting.
    Down {
        /// The reason, for people.
        reason: String,
    },
}

impl Connection {
    /// Borrows only during this call: a borrowed state cannot change, and the task that changes it
    /// may hold a mutex needed for the rest of the status.
    pub(crate) fn of(link: &watch::Receiver<Link>) -> Self {
        match &*link.borrow() {
            Link::Up => Self::Up,
            Link::Down { reason, .. } => Self::Down { reason: reason.to_string() },
        }
    }
}
