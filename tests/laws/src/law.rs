//! The laws by name.

use std::fmt;

/// A law that must hold. The names are used in `docs/protocol.md` and `docs/reliability.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Law {
    /// Each grant fits beside the holds with unexpired leases.
    S1,
    /// A guard that reports itself valid has an unexpired lease.
    S2,
    /// Tokens rise over all locks; only concurrent parts share a token. A guard has the hold's
    /// token.
    S3,
    /// A command changes only the holds it names, and only in the way it states.
    S4,
    /// A retried attempt has the same hold, and a cancelled attempt is never granted.
    S5,
    /// A release counts once.
    S6,
    /// The sum in the lock key is the holds' sum; the flag shows waiters, and for a minute
    /// tombstones.
    S7,
    /// A new token is above every token seen by the process, and above the server's time when the
    /// process connected; the token of a new hold, also of a shared hold, is above everything seen
    /// by the process on previous servers.
    S9,
    /// Grants follow the order of arrival among reachable waiters.
    F1,
    /// A waiter with an unexpired liveness deadline keeps the position, even if it is skipped; in
    /// keep-the-newest mode until a newer waiter is queued, and no longer.
    F2,
    /// All free weight is granted, as far as it fits.
    F5,
    /// Replies and messages are true.
    T1,
    /// Every key expires, and a lease has the promised length.
    T2,
    /// No waiter is stuck: without faults everything comes to rest in bounded time.
    L1,
    /// A grant never taken by the caller delays the others by a claim.
    L2,
    /// No hold, waiter or key stays behind.
    L3,
    /// A guard is notified of the loss: before the deadline, or immediately if the server reports
    /// it; and the loss is final.
    L4,
    /// A shutdown that reports all holds as released has released them.
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

/// Reports a broken law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The law.
    pub law: Law,
    /// The facts that break the law.
    pub how: String,
}

impl Broken {
    /// Creates a report with the facts.
    pub fn new(law: Law, how: impl Into<String>) -> Self {
        Self { law, how: how.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.how)
    }
}
