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
    /// Whether it is no caller's own.
    pub background: bool,
    /// The lane of its lock when it was sent: there it counts while it is on its way.
    pub lane: u16,
    /// How the store sends the command.
    pub way: Way,
}

/// How the store sends a command. The fast path has no script, and serves only a lock that nobody
/// else holds or waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// By a script.
    #[default]
    Script,
    /// The fast path, if the connection has one. An acquire that it does not serve is answered with
    /// [`Acquired::NotServed`](crate::Acquired::NotServed); a release runs its script then.
    Fast,
    /// By a script, after the fast path did not serve the release. The store sets this.
    FellBack,
}

/// Something to do outside the table, in order.
#[derive(Debug, Clone)]
pub enum Effect<P> {
    /// Sends the request, whose answer [`Core::replied`](crate::node::Core::replied) or
    /// [`Core::unanswered`](crate::node::Core::unanswered) takes.
    Send(Ask),
    /// Sends this renewal and has the store confirm its write.
    /// [`Core::replied`](crate::node::Core::replied) takes the answer to a confirmed renewal,
    /// [`Core::unconfirmed`](crate::node::Core::unconfirmed) the reason why it does not count.
    Confirm(Ask),
    /// Wakes the caller, which has something to look up.
    Wake(P),
    /// Tells the guards that their hold is lost.
    TellLost(P),
    /// Opens the subscription anew, since the server does not count it.
    Reopen,
    /// Logs and counts an event.
    Observe(Note<P>),
}

/// An event for logs and metrics; `of` is the driver's own part of the entry.
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
