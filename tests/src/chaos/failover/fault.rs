//! The ways in which a primary is replaced.

use std::fmt;
use std::str::FromStr;

/// A way to take the primary out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Kills the primary; it comes back empty, as a replica.
    Kill,
    /// Stops the primary; it comes back as it was, and thinks that it is the primary.
    Freeze,
    /// Cuts the replicas, and the sentinels or the other primaries, off from the primary; the
    /// clients still reach it.
    Partition,
    /// Asks the sentinels, or the replica, for another primary.
    Planned,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Freeze, Self::Partition, Self::Planned];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "failover-kill",
            Self::Freeze => "failover-freeze",
            Self::Partition => "failover-partition",
            Self::Planned => "failover-planned",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| format!("no way to replace a primary: {text:?}"))
    }
}
