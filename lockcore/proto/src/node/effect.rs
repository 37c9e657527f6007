//! The effects that the core asks its driver to run.

use std::time::Duration;

use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::entry::Refusal;
use crate::node::moment::Moment;

/// A request on its way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The lock that it is about.
    pub lock: LockName,
    /// A command for the store.
    pub command: Command,
    /// The time at which it was sent: leases that it grants are counted from here.
    pub sent: Moment,
    /// Whether it is no caller's own: then it counts against the window.
    pub background: bool,
}

/// Something to do outside the table, in order.
#[derive(Debug, Clone)]
pub enum Effect<P> {
    /// Send it, and feed its answer back.
    Send(Ask),
    /// Send this renewal so that replicas have it, and feed back how many do.
    Confirm(Ask),
    /// Wakes the caller, which has something to look up.
    Wake(P),
    /// Tell the guards that their hold is lost.
    TellLost(P),
    /// The server does not count the subscription: open it anew.
    Reopen,
    /// Log and count.
    Observe(Note<P>),
}

/// An event for logs and metrics; `of` is the driver's own part of the entry.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Note<P> {
    Queued { lock: LockName, position: u64, of: P },
    Granted { lock: LockName, waited: Duration, handed_over: bool, of: P },
    Cancelled { lock: LockName, waited: Duration, of: P },
    Refused { lock: LockName, refusal: Refusal, of: P },
    PlaceLost { lock: LockName },
    Missed { lock: LockName },
    Renewed { lock: LockName },
    RenewalFailed { lock: LockName, error: StoreError },
    Lost { lock: LockName, held: Duration, why: &'static str, of: P },
    LeaveFailed { lock: LockName, error: StoreError },
    TouchFailed { lock: LockName, error: StoreError },
    PassedOver { lock: LockName, waiters: u64 },
    Deaf,
    ServerAhead { ahead: Duration },
}
