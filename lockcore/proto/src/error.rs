//! The errors: their kinds, errors of a store, and errors about options.

use std::fmt;
use std::sync::Arc;

/// The kinds of errors that callers of a lock can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The name is not a valid lock name. No request was sent.
    InvalidKey,
    /// An option is out of range. No request was sent.
    InvalidOption,
    /// The lock was not acquired within the caller's `wait`. Or, for an attempt that does not wait,
    /// the server responded, but not to this attempt within the `request_timeout`.
    Timeout,
    /// Too many requests wait. The lock's queue has reached `queue_limit`, or all queues of this
    /// `Locks` together have reached `max_waiting`. An attempt that does not wait also gets this
    /// error if this `Locks` has so many other requests under way that the `request_timeout` passes
    /// before the attempt is sent.
    QueueFull,
    /// The estimated wait exceeds the request's limit. The estimate is based on the queue length
    /// and on past hold times. Only requests with early refusal receive this error.
    WaitTooLong,
    /// A newer request for the same lock replaced this request in the queue. This happens only if
    /// both requests use `KeepNewest`.
    Superseded,
    /// The store could not be reached: it was disconnected or did not respond within the
    /// `request_timeout`, for the request's `store_wait` or longer.
    ///
    /// If the caller's wait ends first, the error is the same while the connection is down, even
    /// for a queued request, and after a failed try. While the connection is open and the server
    /// silent or slow, it is a [`Timeout`](Self::Timeout).
    ///
    /// This is also the error in these cases:
    ///
    /// - The server is loading its data.
    /// - Too few replicas acknowledged the grant for `require_replicas`.
    /// - The grant was not on the disk in time for `require_fsync`.
    /// - The request has lost its queue position 4 095 times, and its id cannot count more.
    Unavailable,
    /// The server refuses writes, because it is a replica, has too few replicas, or cannot save to
    /// disk.
    ReadOnly,
    /// The server refuses the user name or the password, or the user lacks a right.
    Denied,
    /// The server's memory is full, so no lock can be acquired. Releases and renewals still work.
    OutOfMemory,
    /// A Redis key of the lock contains data of another program or of another version of the
    /// protocol. The data was not changed.
    WrongType,
    /// The server, or this kind of `Locks`, does not support the request.
    ///
    /// - A server is refused if it is too old, if it is in a mode that the URL does not name, such
    ///   as Redis Cluster, or if it is a quorum primary with replicas.
    /// - With `redisson_peers` there are no reads, permits, downgrades, surveys and no
    ///   `KeepNewest`.
    /// - On a quorum there are no permits, downgrades and no `KeepNewest`.
    /// - Foreign names require `redisson_peers`.
    Unsupported,
    /// The hold ended before it was released. Its lease expired, it reached `max_hold`, it was
    /// force-released or leaked, the `Locks` was shut down, or the server no longer has it.
    Lost,
    /// The `Locks` handle was shut down, or the async runtime has ended.
    Closed,
    /// The server sent a reply that the client does not understand.
    Protocol,
}

impl LockErrorKind {
    /// Returns a sentence for people that states the fault, and the remedy if there is one.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid lock name",
            Self::InvalidOption => "invalid option",
            Self::Timeout => "the lock did not become free in time",
            Self::QueueFull => "too many requests wait: try again later, or raise the queue limit",
            Self::WaitTooLong => "the queue is too long for the wait: try again later",
            Self::Superseded => "superseded by a newer request",
            Self::Unavailable => "the lock store is unavailable",
            Self::ReadOnly => {
                "the lock store refuses writes: if it is a replica, connect to the primary; \
                 otherwise it has too few replicas or cannot save to disk"
            }
            Self::Denied => {
                "the lock store refuses the credentials, or the user lacks a right: correct the credentials, or grant the right"
            }
            Self::OutOfMemory => {
                "the lock store's memory is full: raise maxmemory or free some; holds can still be released"
            }
            Self::WrongType => {
                "a lock key belongs to another program or to another version of lockcore: use a \
                 namespace or another name, or stop the processes of one version"
            }
            Self::Unsupported => "not supported here",
            Self::Lost => "the hold is lost: it ended before it was released",
            Self::Closed => "this Locks is closed, so create a new one",
            Self::Protocol => "the lock store sent an unexpected reply",
        }
    }
}

/// The error that a store returns instead of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The kind of error reported to the caller.
    pub kind: LockErrorKind,
    /// The error text of the server or the connection, for people to read.
    pub detail: Arc<str>,
    /// True if the command may have run or may still run, so that its outcome is unknown. False if
    /// the command certainly did not run.
    pub may_have_run: bool,
    /// True if a Redis Cluster slot is migrating, and the server did not have all keys of the
    /// command. A command for other keys of the same slot may succeed.
    pub lacks_keys: bool,
}

impl StoreError {
    /// Creates the error for a command that certainly did not run.
    pub fn refused(kind: LockErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), may_have_run: false, lacks_keys: false }
    }

    /// Creates the error for a command that may have run, such as a time-out. The kind is
    /// `Unavailable`.
    pub fn ambiguous(detail: impl Into<Arc<str>>) -> Self {
        Self { may_have_run: true, ..Self::refused(LockErrorKind::Unavailable, detail) }
    }

    /// Returns true if the error may end by itself, without action by a person. A waiter then keeps
    /// waiting; after any other error it fails.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, LockErrorKind::Unavailable | LockErrorKind::ReadOnly)
    }
}

/// The error for an option that is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    option: &'static str,
    value: String,
    range: &'static str,
}

impl ConfigError {
    /// Creates the error for the option named `option`, whose `value` is outside `range`.
    pub fn new(option: &'static str, value: impl Into<String>, range: &'static str) -> Self {
        Self { option, value: value.into(), range }
    }

    /// Returns the name of the option that is out of range.
    pub fn option(&self) -> &'static str {
        self.option
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: it must be {}", self.option, self.value, self.range)
    }
}

impl std::error::Error for ConfigError {}
