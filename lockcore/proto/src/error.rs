//! The kinds of errors, the error of a store, and that of an option.

use std::fmt;
use std::sync::Arc;

/// The kinds of the errors of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The name cannot name a lock. Nothing was sent.
    InvalidKey,
    /// An option is out of its range. Nothing was sent.
    InvalidOption,
    /// The lock was not acquired within the caller's wait.
    Timeout,
    /// As many waiters are queued for this lock as its `queue_limit` allows, or for all locks of
    /// this `Locks` as `max_waiting` allows. Also: an attempt that does not wait was not sent
    /// within the `request_timeout`, since this `Locks` had too many others to send.
    QueueFull,
    /// The queue is so long that the request would wait for longer than its limit, judged by the
    /// lengths of past holds. Only where the request refuses early.
    WaitTooLong,
    /// A newer request of the same lock waits in its place. Only where both keep the newest.
    Superseded,
    /// The store is disconnected, or did not answer within the `request_timeout`, for the
    /// `store_wait` of the request or for longer. If the caller's
    /// wait is shorter than that and ends first, the error is a [`Timeout`](Self::Timeout). Also:
    /// the server is loading its data, fewer replicas acknowledged the grant than
    /// `require_replicas` asks for, or the request has lost its place 4 095 times.
    Unavailable,
    /// The server refuses writes: it is a replica, has too few replicas, or cannot save to disk.
    ReadOnly,
    /// The server refuses the credentials, or the user lacks a right.
    Denied,
    /// The server's memory is full: no new lock can be acquired. Releases and renewals still work.
    OutOfMemory,
    /// One of the lock's keys exists already and belongs to another program. It was not changed.
    WrongType,
    /// The server, or the kind of this `Locks`, does not support the request. A server is too old,
    /// is in a mode that the URL does not name, such as Redis Cluster, or is a primary of a quorum
    /// and has replicas. With `redisson_peers` there are no reads, permits, downgrades, surveys and
    /// no `KeepNewest`; on a quorum no permits, downgrades and no `KeepNewest`. A foreign name
    /// needs `redisson_peers`.
    Unsupported,
    /// The hold ended before it was released: its lease expired, it reached its `max_hold`, it was
    /// force-released or leaked, the `Locks` was shut down, or the server no longer knows it.
    Lost,
    /// The `Locks` was shut down, or its runtime has ended.
    Closed,
    /// The server's answer cannot be understood.
    Protocol,
}

impl LockErrorKind {
    /// One sentence that names the fault, and the remedy where there is one.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid lock name",
            Self::InvalidOption => "invalid option",
            Self::Timeout => "timed out waiting for the lock",
            Self::QueueFull => "too many requests wait: try again later, or raise the queue limit",
            Self::WaitTooLong => "the queue is too long for the wait: try again later",
            Self::Superseded => "a newer request waits in its place",
            Self::Unavailable => "the lock store is unavailable",
            Self::ReadOnly => {
                "the lock store refuses writes: if it is a replica, connect to the primary; else it has too few replicas, or cannot save to disk"
            }
            Self::Denied => {
                "the lock store refuses the credentials, or the user lacks a right: correct the credentials, or grant the right"
            }
            Self::OutOfMemory => {
                "the lock store's memory is full: raise maxmemory or free some; holds can still be released"
            }
            Self::WrongType => {
                "one of the lock's keys belongs to another program: use a namespace or another name"
            }
            Self::Unsupported => "this is not supported here",
            Self::Lost => "the hold is lost: it ended before it was released",
            Self::Closed => "this Locks is closed, so make a new one",
            Self::Protocol => "the lock store gave an answer that cannot be understood",
        }
    }
}

/// The error of a store that cannot answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The kind that the caller will see.
    pub kind: LockErrorKind,
    /// The error of the server or the connection, for people.
    pub detail: Arc<str>,
    /// The command may have run, or may still run: its outcome is unknown.
    pub may_have_run: bool,
}

impl StoreError {
    /// The command did not run.
    pub fn refused(kind: LockErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), may_have_run: false }
    }

    /// Whether the command ran is unknown.
    pub fn ambiguous(detail: impl Into<Arc<str>>) -> Self {
        Self { kind: LockErrorKind::Unavailable, detail: detail.into(), may_have_run: true }
    }

    /// Whether it may pass by itself, so that a waiter should wait it out.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, LockErrorKind::Unavailable | LockErrorKind::ReadOnly)
    }
}

/// An option is out of its range: which option, and the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    option: &'static str,
    value: String,
    range: &'static str,
}

impl ConfigError {
    /// This option has this value, and should be in this range.
    pub fn new(option: &'static str, value: impl Into<String>, range: &'static str) -> Self {
        Self { option, value: value.into(), range }
    }

    /// The name of the option.
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
