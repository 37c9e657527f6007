//! The laws, and the report of a broken one.

use std::fmt;

use crate::plan::Size;

/// A law that must hold. The names are those of `docs/reliability.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// A hold ends by its own end or its own release alone, and each grant fits beside the others.
    S1,
    /// A guard that says it is valid has its lease, to its own end.
    S2,
    /// Tokens rise over all locks, but for parts that are held together; a guard has the token of
    /// its hold.
    S3,
    /// A member that was given up is never granted.
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
    /// A waiter that is heard of within its patience keeps its place, also if it was passed over.
    F2,
    /// Everything that is free is granted, as far as it fits.
    F5,
    /// Everything comes to rest in bounded time without faults.
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
    pub const ALL: [Self; 15] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S5,
        Self::S6,
        Self::S7,
        Self::S9,
        Self::F1,
        Self::F2,
        Self::F5,
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
    /// The size of the run at that point.
    pub size: Size,
    /// The law.
    pub law: Law,
    /// The facts that break it.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {:?} {}", self.size.events, self.law, self.how)
    }
}
