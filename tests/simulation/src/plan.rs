//! A run: what happens in it follows from its plan, and so from a number.

use crate::fault::Faults;
use crate::law::Law;

/// A run: everything in it follows from this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Calls of a table or of the protocol's function, before everything comes to rest.
    pub events: u64,
    /// Processes at a time.
    pub nodes: u64,
    /// Callers of each.
    pub callers: u64,
    /// Locks that they share.
    pub locks: u64,
    /// How often callers ask for a lock, all together, at most.
    pub operations: u64,
    /// What goes wrong,
    pub faults: Faults,
    /// and which of it really happens: from this one on,
    pub first: u64,
    /// up to this one.
    pub last: u64,
}

impl Plan {
    /// The usual plan of a seed: most are small, every eighth has hundreds of nodes.
    pub fn of(seed: u64, events: u64, faults: Faults) -> Self {
        let (nodes, callers, locks) = match seed % 8 {
            0 => (100 + seed % 301, 1 + seed % 3, 5 + seed % 60),
            _ => (2 + seed % 20, 1 + seed % 9, 1 + seed % 7),
        };
        let (operations, first, last) = (u64::MAX, 0, u64::MAX);
        Self { seed, events, nodes, callers, locks, operations, faults, first, last }
    }
}

/// How far a run got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Calls of a table or of the protocol's function.
    pub events: u64,
    /// What went wrong.
    pub faults: u64,
    /// Attempts that callers began.
    pub operations: u64,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How far it got.
    pub size: Size,
    /// Guards that callers had.
    pub holds: u64,
    /// Of these, those that read or have permits,
    pub parts: u64,
    /// and those that were lost.
    pub lost: u64,
    /// Members that a node gave up to tell the server of, and says so.
    pub given_up: u64,
    /// How often laws were broken that do not hold under these faults.
    pub counted: [u64; Law::ALL.len()],
    /// Virtual milliseconds.
    pub lasted_ms: u64,
    /// What all of it boils down to: two runs that differ anywhere differ here.
    pub digest: u64,
}

impl Outcome {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.size.events += other.size.events;
        self.size.faults += other.size.faults;
        self.size.operations += other.size.operations;
        self.holds += other.holds;
        self.parts += other.parts;
        self.lost += other.lost;
        self.given_up += other.given_up;
        self.lasted_ms += other.lasted_ms;
        for (sum, count) in self.counted.iter_mut().zip(other.counted) {
            *sum += count;
        }
    }
}
