//! `Violation`: an event that must never happen, and did.

use std::fmt;

use laws::Law;

/// The kind of promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The commands of the server, or the tokens that clients were told, broke a law.
    Law(Law),
    /// Clients believed at one instant to hold more of a lock than there is.
    Overlap,
    /// A waiter was passed over although nothing had happened to its connection.
    PassedOver,
    /// One attempt stood in the queue twice.
    QueuedTwice,
    /// A guard believed in its hold beyond the lease on the server.
    LateDeadline,
    /// A grant expired though its client was alive and connected, and the client never heard of it.
    Unclaimed,
    /// A client was told of a grant that the server never gave.
    UnknownGrant,
    /// A hold was lost before its deadline.
    LostEarly,
    /// A call did not end within its bound.
    Late,
    /// No lock was granted for a long time.
    Stuck,
    /// A key stayed behind in Redis.
    LeftBehind,
    /// A fenced write was overwritten unread.
    LostUpdate,
    /// A reader saw a fenced pair of registers half written.
    TornRead,
    /// More was in use than there is, by holds that were valid.
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
    /// The kind of promise.
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
