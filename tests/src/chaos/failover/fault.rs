//! How a primary is replaced.

use std::fmt;
use std::str::FromStr;

/// A fault that takes the primary out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Kills the primary; it returns empty, as a replica.
    Kill,
    /// Stops the primary; it returns with its data, and believes to be the primary.
    Freeze,
    /// Cuts the primary off from its replicas and from the sentinels or the other primaries;
    /// clients still reach it.
    Partition,
    /// Requests another primary from the sentinels or the replica.
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
