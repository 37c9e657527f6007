//! Effects: what the driver has to do after an event, such as sending a request or waking a caller.

use std::time::Duration;

use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::entry::Refusal;
use crate::node::moment::Moment;

/// A request that the driver sends to the store, and for which it passes the response back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The lock that the command concerns.
    pub lock: LockName,
    /// The command to send.
    pub command: Command,
    /// The time when the request was sent. A lease reported by the response is counted from here.
    pub sent: Moment,
    /// True if the core sent the request by itself, so that no caller waits for the response.
    pub background: bool,
    /// The lane (server) of the lock when the request was sent. The request is counted as in flight
    /// there.
    pub lane: u16,
    /// Whether the store sends the command by a script or by the fast path.
    pub way: Way,
}

/// Whether the store sends a command by a script or by the fast path. The fast path runs no script,
/// and serves only a lock without other holders or waiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// The command is run by a script.
    #[default]
    Script,
    /// The command is run by the fast path if the connection supports it. If the fast path cannot
    /// serve an acquire, the response is [`Acquired::NotServed`](crate::Acquired::NotServed). If it
    /// cannot serve a release, the store runs the script instead.
    Fast,
    /// The release was run by a script, because the fast path could not serve it. The store sets
    /// this value.
    FellBack,
}

/// An action that the driver runs after an event. The effects of an event run in order.
#[derive(Debug, Clone)]
pub enum Effect<P> {
    /// Send the request. The driver passes the response to
    /// [`Core::replied`](crate::node::Core::replied), or the error to
    /// [`Core::unanswered`](crate::node::Core::unanswered).
    Send(Ask),
    /// Send this renewal, then wait until the store confirms that the write is on replicas or on
    /// disk. The driver passes the response to [`Core::replied`](crate::node::Core::replied), or
    /// the error to [`Core::unconfirmed`](crate::node::Core::unconfirmed).
    Confirm(Ask),
    /// Wake the attempt's caller, because the outcome may have changed.
    Wake(P),
    /// Notify the guards of this hold that it is lost.
    NotifyLost(P),
    /// Reopen the subscription to the node's channel, because the server does not know it, so that
    /// messages would be lost.
    Reopen,
    /// Log the event and count it in the metrics.
    Observe(Note<P>),
}

/// An event for logs and metrics. The field `of` is the driver's own data for the attempt.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Note<P> {
    Queued { lock: LockName, position: u64, of: P },
    Granted { lock: LockName, waited: Duration, handed_over: bool, of: P },
    Cancelled { lock: LockName, waited: Duration, of: P },
    Refused { lock: LockName, refusal: Refusal, of: P },
    PositionLost { lock: LockName },
    Missed { lock: LockName },
    Renewed { lock: LockName },
    WaitsBehindOwn { lock: LockName, waited: Duration },
    RenewalFailed { lock: LockName, error: StoreError },
    Lost { lock: LockName, held: Duration, why: &'static str, of: P },
    LeaveFailed { lock: LockName, error: StoreError },
    TouchFailed { lock: LockName, error: StoreError },
    Skipped { lock: LockName, waiters: u64 },
    Deaf,
    ServerAhead { ahead: Duration },
}
