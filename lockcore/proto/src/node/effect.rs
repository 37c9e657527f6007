//! Effects: what the driver has to do after an event, such as sending a request or waking a caller.

use std::time::Duration;

use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::entry::Refusal;
use crate::node::moment::Moment;

/// A request to the store. The driver sends it, and passes the response back to the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreRequest {
    /// The lock that the command concerns.
    pub lock: LockName,
    /// The command to send.
    pub command: Command,
    /// When the request was sent. A lease reported by the response is counted from this time.
    pub sent: Moment,
    /// True for requests that the core sends by itself, such as renewals, retried acquires, touches
    /// (which keep waiters alive) and leaves (which remove members). False for first acquires,
    /// releases, and requests of a caller; the core limits these separately or not at all.
    pub background: bool,
    /// The lane (server) of the lock when the request was sent. The request counts as in flight
    /// there, even if the lock has moved since.
    pub lane: u16,
    /// How the store runs the command.
    pub way: Way,
}

/// How the store runs a command: by a script, or by the fast path, a few plain Redis commands. The
/// fast path is cheaper, but works only for a lock without other holders or waiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// The store runs a script.
    #[default]
    Script,
    /// The store uses the fast path, plain Redis commands, if the connection supports it. An
    /// acquire that it cannot serve, for example of a held lock, gets the response
    /// [`Acquired::NotServed`](crate::Acquired::NotServed). A release that it cannot serve is run
    /// again by a script.
    Fast,
    /// The store ran this release by a script, after the fast path could not serve it. Only the
    /// store sets this value.
    FellBack,
}

/// An action that the driver must run after an event. The effects of an event run in order.
#[derive(Debug, Clone)]
pub enum Effect<P> {
    /// Send the request. The driver passes the response to
    /// [`Core::replied`](crate::node::Core::replied), or the error to
    /// [`Core::unanswered`](crate::node::Core::unanswered).
    Send(StoreRequest),
    /// Send this renewal, then wait until the store confirms that the write is on replicas or on
    /// disk. The driver passes the response to [`Core::replied`](crate::node::Core::replied), or
    /// the error to [`Core::unconfirmed`](crate::node::Core::unconfirmed).
    Confirm(StoreRequest),
    /// Wake the task that waits for the attempt or for the release, because the outcome may be
    /// known now.
    Wake(P),
    /// Notify the guards of this hold that it is lost.
    NotifyLost(P),
    /// Open the subscription to the node's channel again, because the server does not know it any
    /// more and so delivers no messages.
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
