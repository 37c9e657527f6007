//! One error type for everything that can go wrong with a lock, and its kinds.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::KeyError;
use crate::options::ConfigError;

/// Why a lock was not acquired, was lost or could not be released.
///
/// Branch on [`kind`](Self::kind); the text is for people and says what to do.
#[derive(Clone)]
pub struct LockError {
    kind: LockErrorKind,
    detail: Option<Arc<str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    is_of_permits: bool,
}

/// The kinds of [`LockError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The name cannot name a lock. Nothing was sent.
    InvalidKey,
    /// An option is out of its range. Nothing was sent.
    InvalidOption,
    /// The lock was not acquired within the caller's wait.
    Timeout,
    /// As many waiters are queued for this lock as its [queue
    /// limit](crate::LockOptions::queue_limit) allows, or for all locks of this `Locks` as
    /// [`max_waiting`](crate::LocksBuilder::max_waiting) allows. Also: an attempt that does not
    /// wait was not sent within the [request timeout](crate::LocksBuilder::request_timeout),
    /// since this `Locks` had too many others to send.
    QueueFull,
    /// The store is disconnected, or did not answer within the [request
    /// timeout](crate::LocksBuilder::request_timeout). If the caller's wait is shorter than that
    /// and ends first, the error is a [`Timeout`](Self::Timeout). Also: the server is loading its
    /// data, or fewer replicas acknowledged the grant than
    /// [`require_replicas`](crate::LocksBuilder::require_replicas) asks for.
    Unavailable,
    /// The server refuses writes: it is a replica, has too few replicas, or cannot save to disk.
    ReadOnly,
    /// The server refuses the credentials, or the user lacks a right.
    Denied,
    /// The server's memory is full: no new lock can be acquired. Releases and renewals still work.
    OutOfMemory,
    /// One of the lock's keys exists already and belongs to another program. It was not changed.
    WrongType,
    /// The server does not support the lock: it is too old, or in a mode such as Redis Cluster.
    Unsupported,
    /// The hold ended before it was released: its lease expired, it reached
    /// [`max_hold`](crate::LockOptions::max_hold), it was force-released or leaked, the `Locks` was
    /// shut down, or the server no longer knows it.
    Lost,
    /// The `Locks` was shut down, or its runtime has ended.
    Closed,
    /// The server's answer cannot be understood.
    Protocol,
}

impl LockError {
    pub(crate) fn new(kind: LockErrorKind) -> Self {
        Self { kind, detail: None, source: None, is_of_permits: false }
    }

    pub(crate) fn with_detail(kind: LockErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), source: None, is_of_permits: false }
    }

    /// An error of the store as a caller sees it.
    pub(crate) fn of_store(error: StoreError) -> Self {
        Self::with_detail(error.kind, error.detail)
    }

    /// What went wrong.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    pub(crate) fn of_permits(self, is_of_permits: bool) -> Self {
        Self { is_of_permits, ..self }
    }

    /// Whether permits were asked for. A [`Timeout`](LockErrorKind::Timeout) then says that too few
    /// permits came free within the wait, and not that one other holder has a lock.
    pub fn is_of_permits(&self) -> bool {
        self.is_of_permits
    }

    /// Whether the same call may succeed later although nothing is changed: the lock was busy, its
    /// queue was full, or the store was unavailable, read-only or out of memory.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// How long to wait before trying again, as a hint; `None` if trying again does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            LockErrorKind::Timeout | LockErrorKind::QueueFull => Some(Duration::from_secs(1)),
            LockErrorKind::Unavailable | LockErrorKind::ReadOnly | LockErrorKind::OutOfMemory => {
                Some(Duration::from_secs(2))
            }
            _ => None,
        }
    }
}

impl LockErrorKind {
    /// One sentence that says what happened and what to do.
    fn sentence(self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid lock name",
            Self::InvalidOption => "invalid option",
            Self::Timeout => "timed out waiting for the lock",
            Self::QueueFull => "the queue limit is reached",
            Self::Unavailable => "the lock store is unavailable",
            Self::ReadOnly => {
                "the lock store refuses writes: it is a replica, has too few replicas, or cannot save to disk"
            }
            Self::Denied => "the lock store refuses the credentials, or the user lacks a right",
            Self::OutOfMemory => {
                "the lock store's memory is full: raise maxmemory or free some; holds can still be released"
            }
            Self::WrongType => {
                "one of the lock's keys belongs to another program: use a namespace or another name"
            }
            Self::Unsupported => "this server does not support the lock",
            Self::Lost => "the hold is lost: it ended before it was released",
            Self::Closed => "this Locks is closed",
            Self::Protocol => "the lock store gave an answer that cannot be understood",
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.kind {
            LockErrorKind::Timeout if self.is_of_permits => "timed out waiting for permits",
            kind => kind.sentence(),
        };
        f.write_str(sentence)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockError").field("kind", &self.kind).field("detail", &self.detail).finish()
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self {
            kind: LockErrorKind::InvalidKey,
            detail: Some(error.to_string().into()),
            source: Some(Arc::new(error)),
            is_of_permits: false,
        }
    }
}

impl From<ConfigError> for LockError {
    fn from(error: ConfigError) -> Self {
        Self {
            kind: LockErrorKind::InvalidOption,
            detail: Some(error.to_string().into()),
            source: Some(Arc::new(error)),
            is_of_permits: false,
        }
    }
}

impl From<Infallible> for LockError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What a store answers when it cannot answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The kind that the caller will see.
    pub kind: LockErrorKind,
    /// For people: what the server or the connection said.
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
