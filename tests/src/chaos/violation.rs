//! `Violation`: an event that must never happen, but did.

use std::fmt;

use laws::Law;

/// The kind of broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The server's commands, or the tokens received by clients, broke a law.
    Law(Law),
    /// Clients relied at the same instant on more of a lock than is available.
    Overlap,
    /// A waiter was skipped although its connection had no fault.
    Skipped,
    /// An attempt was in the queue twice.
    QueuedTwice,
    /// A guard believed in its hold beyond the lease on the server.
    LateDeadline,
    /// A grant expired although its client was alive and connected, and the client was never
    /// notified.
    Unclaimed,
    /// A client received a grant that the server never issued.
    UnknownGrant,
    /// A hold was lost before the deadline.
    LostEarly,
    /// A call did not end within the bound.
    Late,
    /// No lock was granted for a long time.
    Stuck,
    /// A key was left behind in Redis.
    LeftBehind,
    /// A fenced write was overwritten unread.
    LostUpdate,
    /// A reader saw a fenced pair of registers half written.
    TornRead,
    /// Valid holds used more than is available.
    OverLimit,
    /// A control, without fencing or without deadlines, noticed nothing: the run has shown nothing.
    ToothlessControl,
    /// A child process ended by itself, or the machine's clock was set.
    Broken,
}

impl From<Law> for What {
    fn from(law: Law) -> Self {
        Self::Law(law)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Law(law) => write!(f, "{law:?}"),
            what => write!(f, "{what:?}"),
        }
    }
}

/// A violation with its details.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The kind of the broken promise.
    pub what: What,
    /// The details for people.
    pub detail: String,
}

impl Violation {
    pub(super) fn new(what: impl Into<What>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.detail)
    }
}
