//! `Plan`: the number and the sizes from which everything in a run follows.

use crate::fault::{Fault, Faults};
use crate::pairs::Pairs;
use laws::Law;
use proto::LockName;

/// A plan of a run: everything in the run follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all chance.
    pub seed: u64,
    /// The number of calls of a table or of the protocol's function, before everything comes to
    /// rest.
    pub events: u64,
    /// The number of processes at a time.
    pub nodes: u64,
    /// The number of callers of each process.
    pub callers: u64,
    /// The number of locks that they share.
    pub locks: u64,
    /// The number of primaries, each with some of the locks.
    pub primaries: u64,
    /// The greatest number of attempts of all callers together.
    pub operations: u64,
    /// The faults and their rates.
    pub faults: Faults,
    /// The number of the first fault that really happens.
    pub first: u64,
    /// The number of the last fault that really happens.
    pub last: u64,
}

impl Plan {
    /// The usual plan of a seed: most are small, every eighth has hundreds of nodes, and every
    /// fourth few nodes with many callers each, so that whole runs of them wait.
    pub fn of(seed: u64, events: u64, faults: Faults) -> Self {
        let (nodes, callers, locks) = match seed % 8 {
            0 => (100 + seed % 301, 1 + seed % 3, 5 + seed % 60),
            1 | 5 => (2 + seed % 3, 8 + seed % 17, 1 + seed % 3),
            _ => (2 + seed % 20, 1 + seed % 9, 1 + seed % 7),
        };
        let primaries = if faults.have_any([Fault::MoveSlot]) { 2 + seed % 4 } else { 1 };
        let operations = u64::MAX;
        let first = 0;
        let last = u64::MAX;
        Self { seed, events, nodes, callers, locks, primaries, operations, faults, first, last }
    }

    /// Whether most callers of a process wait one behind the other.
    pub(crate) fn is_crowded(&self) -> bool {
        self.callers >= 8 && self.locks <= 3 && self.nodes <= 4
    }

    /// The number of hash slots: on a Cluster, two locks lie in each.
    pub(crate) fn slots(&self) -> usize {
        if self.primaries == 1 { 1 } else { self.locks.div_ceil(2) as usize }
    }

    /// The hash slot of a lock, by its number.
    pub(crate) fn slot(&self, lock: usize) -> usize {
        lock % self.slots()
    }

    /// The name of a lock: its number, behind a hash tag on a Cluster.
    pub(crate) fn name(&self, lock: usize) -> LockName {
        match self.primaries {
            1 => LockName::from(&*lock.to_string()),
            _ => LockName::from(&*format!("{{{}}}{lock}", self.slot(lock))),
        }
    }
}

/// The size of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of calls of a table or of the protocol's function.
    pub events: u64,
    /// The number of faults that happened.
    pub faults: u64,
    /// The number of attempts that callers began.
    pub operations: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The size that the run reached.
    pub size: Size,
    /// The number of guards that callers had.
    pub holds: u64,
    /// The number of guards for reads or permits.
    pub parts: u64,
    /// The number of guards within a run.
    pub in_runs: u64,
    /// The number of times that a holder works, with its lock or with the read that is left of it,
    pub works: u64,
    /// and of those that last for longer than a lease.
    pub long_works: u64,
    /// The pairs of mechanisms that met.
    pub pairs: Pairs,
    /// The number of waiters that left the queue for a newer one.
    pub superseded: u64,
    /// The number of guards that were lost.
    pub lost: u64,
    /// The number of messages to processes.
    pub messages: u64,
    /// The number of members that a node gave up to tell the server of, and says so.
    pub given_up: u64,
    /// The number of breaks of each law that does not hold under these faults.
    pub counted: [u64; Law::ALL.len()],
    /// The virtual milliseconds that the run lasted.
    pub lasted_ms: u64,
    /// A digest of all events: two runs that differ anywhere differ here.
    pub digest: u64,
}

impl Outcome {
    /// Adds the result of another run.
    pub fn add(&mut self, other: &Self) {
        self.size.events += other.size.events;
        self.size.faults += other.size.faults;
        self.size.operations += other.size.operations;
        self.holds += other.holds;
        self.parts += other.parts;
        self.in_runs += other.in_runs;
        self.works += other.works;
        self.long_works += other.long_works;
        self.pairs.add(&other.pairs);
        self.superseded += other.superseded;
        self.lost += other.lost;
        self.messages += other.messages;
        self.given_up += other.given_up;
        self.lasted_ms += other.lasted_ms;
        for (sum, count) in self.counted.iter_mut().zip(other.counted) {
            *sum += count;
        }
    }
}
