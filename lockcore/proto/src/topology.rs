//! `Topology`: how the servers of a store are put together.

use crate::name::LockName;

/// How the servers of a store are put together. It says which counter a lock's tokens are drawn
/// from, and which locks share it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Topology {
    /// One server for all locks, which sentinels may replace.
    #[default]
    Single,
    /// A Redis Cluster. A script reaches the keys of one slot only, so each slot has a counter.
    Cluster,
    /// The primaries of a quorum, each with a counter for each of its epochs. A token above a
    /// primary's counter is another primary's, and not one of a server before this one: the clock
    /// is not asked for.
    Quorum,
}

impl Topology {
    /// The slot of a lock, of whose counter its tokens are; 0 where a server has one counter.
    pub fn slot(self, lock: &LockName) -> u16 {
        match self {
            Self::Cluster => lock.slot(),
            Self::Single | Self::Quorum => 0,
        }
    }
}
