//! `Violation`: an event that must never happen, and did.

use std::fmt;

/// The kind of promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Clients believed at one instant to hold more of a lock than there is.
    Overlap,
    /// The server granted more of a lock than was free beside the leases that had not ended.
    TwoHolds,
    /// The written sum of the weights in use is not that of the holds.
    WrongSum,
    /// A token was given out twice, or was not above all before it; or members that share had not
    /// the same.
    TokenNotRising,
    /// A member was granted before a live waiter ahead of it.
    OutOfOrder,
    /// Something free was not granted, although a waiter fitted.
    LeftWaiting,
    /// A waiter was passed over although nothing had happened to its connection.
    PassedOver,
    /// A live waiter was dropped from the queue, or moved to its end.
    PlaceLost,
    /// One attempt stood in the queue twice.
    QueuedTwice,
    /// A member was granted again after its hold, or after it had been given up.
    GrantedAgain,
    /// Another member's request ended a hold.
    WrongRelease,
    /// A hold had no end, or a later one than was asked for.
    Endless,
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

/// A violation with its details.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The kind of promise.
    pub what: What,
    /// The details for people.
    pub detail: String,
}

impl Violation {
    pub(super) fn new(what: What, detail: impl Into<String>) -> Self {
        Self { what, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.what, self.detail)
    }
}
