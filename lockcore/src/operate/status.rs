//! [`Status`]: the state of a `Locks` and the connections, read without a request to the server.

use std::time::Duration;

use proto::Link;
use tokio::sync::watch;

/// A snapshot of the connections, waits and holds of a [`Locks`](crate::Locks); made by
/// [`Locks::status`](crate::Locks::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state of the connection for commands. On a Redis Cluster, it is up while any primary is
    /// connected; on a [quorum](crate::guide::quorum), while enough primaries for a guard are
    /// reachable.
    pub commands: Connection,
    /// The state of the connection on which messages about grants arrive. On a Redis Cluster and on
    /// a quorum, it is up under the same conditions as for commands.
    pub subscription: Connection,
    /// The number of acquisitions in progress, from the first poll until the lock is granted or the
    /// acquisition fails.
    pub waiting: usize,
    /// The number of holds that have a guard and are not lost. On a quorum, a lost hold counts
    /// until its remaining primaries are released, at most 0.1 s later. The gauge
    /// `lockcore_holding` counts a lost hold until the last guard is dropped.
    pub holding: usize,
    /// The number of ended holds and cancelled waits that the server has not yet confirmed; on a
    /// quorum, over all primaries.
    pub releasing: usize,
    /// The number of times that a waiter lost its queue position, for example by a failover, since
    /// this `Locks` was built; on a quorum, over all primaries.
    pub positions_lost: u64,
    /// The servers that keep the locks, with their connections: the primary; on a Redis Cluster,
    /// all primaries that this `Locks` has connected to; on a quorum, all primaries, where both
    /// connections of a primary that does not count are shown as down. Empty for an in-memory
    /// store.
    pub servers: Vec<ServerStatus>,
}

impl Status {
    /// Returns whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The state of the two connections to a server; part of [`Status`].
///
/// For a metric with the address as a label, read the status when the metric is collected: then
/// there are as many labels as servers, even when servers come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's address: `host:port`, or the path of a Unix socket.
    pub address: String,
    /// The state of the connection for commands.
    pub commands: Connection,
    /// The state of the connection on which messages about grants arrive.
    pub subscription: Connection,
    /// The time since the server's last response. If the server is down, this is how long it has
    /// been away. An otherwise idle server responds to a PING every five seconds.
    pub silent_for: Duration,
    /// The number of requests in flight without a response. `None` without a connection, and for
    /// connections of your own client or pool.
    pub unanswered: Option<usize>,
    /// The number of Redis Cluster slots that this server serves; `None` without a Redis Cluster. A
    /// server without slots is listed for a minute, and as long as the Cluster names it as a
    /// primary.
    pub slots: Option<u16>,
}

impl ServerStatus {
    /// Returns whether both connections are up.
    pub fn is_connected(&self) -> bool {
        self.commands == Connection::Up && self.subscription == Connection::Up
    }
}

/// The state of a connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// The connection is up.
    Up,
    /// The connection is down; the node is reconnecting.
    #[non_exhaustive]
    Down {
        /// Why the connection is down, for people.
        reason: String,
    },
}

impl Connection {
    /// Returns the present state of `link`. Does not keep `link` borrowed, because this could cause
    /// a deadlock: a borrow blocks the task that changes the state, and this task may hold a mutex
    /// that the caller needs for the rest of the status.
    pub(crate) fn of(link: &watch::Receiver<Link>) -> Self {
        match &*link.borrow() {
            Link::Up => Self::Up,
            Link::Down { reason, .. } => Self::Down { reason: reason.to_string() },
        }
    }
}
