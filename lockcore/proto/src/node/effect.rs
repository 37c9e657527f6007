//! The effects for the driver to run.

use std::time::Duration;

use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::entry::Refusal;
use crate::node::moment::Moment;

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The lock.
    pub lock: LockName,
    /// The command for the store.
    pub command: Command,
    /// When the request was sent: granted leases are counted from here.
    pub sent: Moment,
    /// Whether the request belongs to no caller.
    pub background: bool,
    /// The lock's lane when the request was sent, where it counts while in flight.
    pub lane: u16,
    /// How the store sends the command.
    pub way: Way,
}

/// How the store sends a command. The fast path runs no script, and serves only a lock without
/// other holders or waiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// By a script.
    #[default]
    Script,
    /// By the fast path, if the connection supports it. An acquire not served there is answered
    /// with [`Acquired::NotServed`](crate::Acquired::NotServed); a release then runs the script.
    Fast,
    /// By a script, after the fast path did not serve the release. Set by the store.
    FellBack,
}

/// An action outside the table; effects run in order.
#[derive(Debug, Clone)]
pub enum Effect<P> {
    /// Sends the request. The response goes to [`Core::replied`](crate::node::Core::replied), an
    /// error to [`Core::unanswered`](crate::node::Core::unanswered).
    Send(Ask),
    /// Sends this renewal and has the store confirm the write. The response to a confirmed renewal
    /// goes to [`Core::replied`](crate::node::Core::replied), the error for an unconfirmed renewal
    /// to [`Core::unconfirmed`](crate::node::Core::unconfirmed).
    Confirm(Ask),
    /// Wakes the caller, because the outcome may have changed.
    Wake(P),
    /// Notifies the guards that their hold is lost.
    TellLost(P),
    /// Reopens the subscription, because the server does not count it.
    Reopen,
    /// Logs and counts an event.
    Observe(Note<P>),
}

/// An event for logs and metrics; `of` is the driver's part in the entry.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Note<P> {
    Queued { lock: LockName, position: u64, of: P },
    Granted { lock: LockName, waited: Duration, handed_over: bool, of: P },
    Cancelled { lock: LockName, waited: Duration, of: P },
    Refused { lock: LockName, refusal: Refusal, of: P },
    PlaceLost { lock: LockName },
    Missed { lock: LockName },
    Renewed { lock: LockName },
    WaitsBehindOwn { lock: LockName, waited: Duration },
    RenewalFailed { lock: LockName, error: StoreError },
    Lost { lock: LockName, held: Duration, why: &'static str, of: P },
    LeaveFailed { lock: LockName, error: StoreError },
    TouchFailed { lock: LockName, error: StoreError },
    PassedOver { lock: LockName, waiters: u64 },
    Deaf,
    ServerAhead { ahead: Duration },
}
