//! `Plan`: a run's seed and sizes.

use crate::fault::{Fault, Faults};
use crate::pairs::Pairs;
use laws::Law;
use proto::LockName;

/// A plan, which determines everything in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many calls of a core or of the protocol's function happen before everything comes to
    /// rest.
    pub events: u64,
    /// How many processes run at a time.
    pub nodes: u64,
    /// How many callers each process has.
    pub callers: u64,
    /// How many locks the processes share.
    pub locks: u64,
    /// How many primaries there are, each with some of the locks.
    pub primaries: u64,
    /// The most attempts of all callers together.
    pub operations: u64,
    /// The faults and their rates.
    pub faults: Faults,
    /// Faults before this number do not happen.
    pub first: u64,
    /// Faults after this number do not happen.
    pub last: u64,
}

impl Plan {
    /// Returns the usual plan of a seed: most are small, every eighth has hundreds of nodes, and
    /// every fourth has few nodes with many callers each, so that whole batches wait.
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

    /// Whether most callers of a process wait behind each other.
    pub(crate) fn is_crowded(&self) -> bool {
        self.callers >= 8 && self.locks <= 3 && self.nodes <= 4
    }

    /// Returns how many hash slots there are: on a Cluster, two locks are in each.
    pub(crate) fn slots(&self) -> usize {
        if self.primaries == 1 { 1 } else { self.locks.div_ceil(2) as usize }
    }

    /// Returns a lock's hash slot.
    pub(crate) fn slot(&self, lock: usize) -> usize {
        lock % self.slots()
    }

    /// Returns a lock's name: the number, preceded on a Cluster by a hash tag.
    pub(crate) fn name(&self, lock: usize) -> LockName {
        match self.primaries {
            1 => LockName::from(&*lock.to_string()),
            _ => LockName::from(&*format!("{{{}}}{lock}", self.slot(lock))),
        }
    }
}

/// A run's size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// How many calls of a core or of the protocol's function happened.
    pub events: u64,
    /// How many faults happened.
    pub faults: u64,
    /// How many attempts were begun by callers.
    pub operations: u64,
}

/// A run's result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The size reached by the run.
    pub size: Size,
    /// How many guards callers had.
    pub holds: u64,
    /// How many guards were for reads or permits.
    pub parts: u64,
    /// How many guards belonged to a batch.
    pub in_batches: u64,
    /// How many times a holder worked, with a lock or with a read after a downgrade,
    pub works: u64,
    /// and how many of these times lasted longer than a lease.
    pub long_works: u64,
    /// The pairs of mechanisms that met.
    pub pairs: Pairs,
    /// How many waiters left the queue for a newer waiter.
    pub superseded: u64,
    /// How many guards were lost.
    pub lost: u64,
    /// How many messages were sent to processes.
    pub messages: u64,
    /// How many members a node gave up without informing the server, and reported so.
    pub given_up: u64,
    /// How often each law was broken that does not hold under these faults.
    pub counted: [u64; Law::ALL.len()],
    /// How long the run lasted, in virtual milliseconds.
    pub lasted_ms: u64,
    /// A digest of all events: different for two runs with any difference.
    pub digest: u64,
}

impl Outcome {
    /// Adds the outcome of another run.
    pub fn add(&mut self, other: &Self) {
        self.size.events += other.size.events;
        self.size.faults += other.size.faults;
        self.size.operations += other.size.operations;
        self.holds += other.holds;
        self.parts += other.parts;
        self.in_batches += other.in_batches;
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
