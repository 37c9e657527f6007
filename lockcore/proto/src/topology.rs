//! The arrangement of a store's servers: a single one, a Cluster or a quorum.

use crate::name::LockName;

/// The arrangement of a store's servers. It determines from which counter the fencing tokens of a
/// lock are drawn, and which other locks share the counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Topology {
    /// A single primary for all locks. Sentinels may replace it by another server.
    #[default]
    Single,
    /// A Redis Cluster. Each slot has a separate token counter, because a script reaches only the
    /// keys of a single slot.
    Cluster,
    /// A primary of a quorum, with a token counter per epoch. An epoch ends when the server loses
    /// its data. New tokens are above the greatest token that the node has seen, perhaps from
    /// another primary. The server's clock is not used.
    Quorum,
}

impl Topology {
    /// Returns the Cluster slot whose counter issues the tokens of `lock`; 0 if the server has a
    /// single counter.
    pub fn slot(self, lock: &LockName) -> u16 {
        match self {
            Self::Cluster => lock.slot(),
            Self::Single | Self::Quorum => 0,
        }
    }
}
