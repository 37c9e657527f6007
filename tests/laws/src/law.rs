//! The laws by name.

use std::fmt;

/// A law that must hold. The names are those of `docs/protocol.md` and `docs/reliability.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Law {
    /// Each grant fits beside the holds whose leases have not ended.
    S1,
    /// A guard that says it is valid has its lease, to its own end.
    S2,
    /// Tokens rise over all locks, but for parts that are held together: they share one. A guard
    /// has the token of its hold.
    S3,
    /// A command changes no hold but those that it names, and these only as it says.
    S4,
    /// An attempt that asks again has the same hold, and one that was given up is never granted.
    S5,
    /// A release counts once.
    S6,
    /// The weight in the door is the sum of the holds; the mark tells of waiters, and of tombstones
    /// for a minute.
    S7,
    /// A new token is above every token that the process has seen, and above the server's time when
    /// it connected; the token of a new hold, also one that is shared, is above everything that the
    /// process has seen on earlier servers.
    S9,
    /// Grants follow the order of arrival among the waiters that can be reached.
    F1,
    /// A waiter that is heard of within its patience keeps its place, also if it was passed over;
    /// one of which only the newest waits, until a newer one is queued, and no longer.
    F2,
    /// Everything that is free is granted, as far as it fits.
    F5,
    /// Answers and messages are true.
    T1,
    /// Every key ends, and a lease is as long as it should be.
    T2,
    /// No waiter is stuck: without faults everything comes to rest in bounded time.
    L1,
    /// A grant whose caller does not come delays the others by a claim.
    L2,
    /// No hold, waiter or key stays behind.
    L3,
    /// A guard learns of its loss: before the deadline, at once if the server says so, and for
    /// good.
    L4,
    /// A shutdown that says it released everything has done so.
    L6,
}

impl Law {
    /// All laws.
    pub const ALL: [Self; 18] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S4,
        Self::S5,
        Self::S6,
        Self::S7,
        Self::S9,
        Self::F1,
        Self::F2,
        Self::F5,
        Self::T1,
        Self::T2,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::L4,
        Self::L6,
    ];
}

/// The report of a law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The law.
    pub law: Law,
    /// The facts that break it.
    pub how: String,
}

impl Broken {
    /// A report, with the facts.
    pub fn new(law: Law, how: impl Into<String>) -> Self {
        Self { law, how: how.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.how)
    }
}
