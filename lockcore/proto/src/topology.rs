//! How a store's servers are arranged.

use crate::name::LockName;

/// How a store's servers are arranged: decides from which counter a lock's tokens are drawn, and
/// which locks share the counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Topology {
    /// A server for all locks, which sentinels may replace.
    #[default]
    Single,
    /// A Redis Cluster. A script only reaches the keys of a single slot, so each slot has a
    /// counter.
    Cluster,
    /// A quorum primary, with a token counter per epoch. If a node has seen a greater token, it
    /// came from another primary. So the next token follows that one, and never the server's clock.
    Quorum,
}

impl Topology {
    /// The slot whose counter issues the lock's tokens; 0 if a server has a single counter.
    pub fn slot(self, lock: &LockName) -> u16 {
        match self {
            Self::Cluster => lock.slot(),
            Self::Single | Self::Quorum => 0,
        }
    }
}
