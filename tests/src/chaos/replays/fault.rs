//! The faults of a serving process, and the steps where they strike.

use std::fmt;
use std::str::FromStr;

/// A fault of the process that runs the handler of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayFault {
    /// Killed in the handler, before the work is committed.
    DiesInHandler,
    /// Killed once the work is committed, before the response is sent to the store.
    DiesCommitted,
    /// Killed while the response is being stored.
    DiesStoring,
    /// Killed once the response is stored, before the client has it.
    DiesStored,
    /// Paused in the handler, until the lease has ended.
    PausesInHandler,
    /// Paused once the work is committed, until the lease has ended.
    PausesCommitted,
}

impl ReplayFault {
    /// All faults.
    pub const ALL: [Self; 6] = [
        Self::DiesInHandler,
        Self::DiesCommitted,
        Self::DiesStoring,
        Self::DiesStored,
        Self::PausesInHandler,
        Self::PausesCommitted,
    ];

    /// Returns the fault of a key: six of ten keys have a fault, in turns.
    pub(super) fn of(number: u64) -> Option<Self> {
        Self::ALL.get(number as usize % 10).copied()
    }

    fn name(self) -> &'static str {
        match self {
            Self::DiesInHandler => "dies-in-handler",
            Self::DiesCommitted => "dies-committed",
            Self::DiesStoring => "dies-storing",
            Self::DiesStored => "dies-stored",
            Self::PausesInHandler => "pauses-in-handler",
            Self::PausesCommitted => "pauses-committed",
        }
    }
}

impl fmt::Display for ReplayFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReplayFault {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|fault| fault.name() == name).ok_or(())
    }
}
