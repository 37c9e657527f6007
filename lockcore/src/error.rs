//! One error type for everything that can go wrong with a lock, and its kinds.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::KeyError;
use crate::options::ConfigError;

/// Why a lock was not had, not kept or not given back.
///
/// Branch on [`kind`](Self::kind); the text is for people and says what to do.
#[derive(Clone)]
pub struct LockError {
    kind: LockErrorKind,
    detail: Option<Arc<str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kinds of [`LockError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The name cannot name a lock. Nothing was sent.
    InvalidKey,
    /// An option is out of its range. Nothing was sent.
    InvalidOption,
    /// The lock was not had within the time the caller allowed.
    Timeout,
    /// As many are waiting as the [queue limit](crate::LockOptions::queue_limit) allows for this lock, or
    /// [`max_waiting`](crate::LocksBuilder::max_waiting) for all locks of one `Locks`.
    QueueFull,
    /// The store cannot be reached, or did not answer within the
    /// [request timeout](crate::LocksBuilder::request_timeout). A server that is slower than the caller's wait, but
    /// not that slow, is a [`Timeout`](Self::Timeout).
    Unavailable,
    /// The server is a read-only replica, or does not accept writes for want of replicas.
    ReadOnly,
    /// The server refuses the credentials, or the user lacks a right.
    Denied,
    /// The server's memory is full: nothing new can be locked. Releases and renewals still work.
    OutOfMemory,
    /// A key of another program stands at one of the lock's names. Nothing was changed.
    WrongType,
    /// The server cannot carry this lock: too old, or in a mode that is not supported.
    Unsupported,
    /// The hold is lost: its lease ended, or it was forced off.
    Lost,
    /// The `Locks` was shut down, or its runtime has ended.
    Closed,
    /// The server answered something that makes no sense here.
    Protocol,
}

impl LockError {
    pub(crate) fn new(kind: LockErrorKind) -> Self {
        Self { kind, detail: None, source: None }
    }

    pub(crate) fn with_detail(kind: LockErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), source: None }
    }

    /// What went wrong.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without anybody changing anything: the lock was busy,
    /// its queue full, or the store away.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// How long to wait before trying again, as a hint; `None` when trying again is no use.
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
            Self::Timeout => "the lock was not had in time",
            Self::QueueFull => "the lock's queue is full",
            Self::Unavailable => "the lock store cannot be reached",
            Self::ReadOnly => "the lock store does not accept writes: connect to the primary",
            Self::Denied => "the lock store refuses the credentials or lacks a right for this user",
            Self::OutOfMemory => {
                "the lock store's memory is full: raise maxmemory or free some; holds can still be released"
            }
            Self::WrongType => {
                "another program's key stands at one of the lock's names: use a namespace or another name"
            }
            Self::Unsupported => "this server cannot carry the lock",
            Self::Lost => "the hold is lost: its lease ended or it was forced off",
            Self::Closed => "this Locks was shut down",
            Self::Protocol => "the lock store gave an answer that makes no sense",
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.sentence())?;
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
        }
    }
}

impl From<ConfigError> for LockError {
    fn from(error: ConfigError) -> Self {
        Self {
            kind: LockErrorKind::InvalidOption,
            detail: Some(error.to_string().into()),
            source: Some(Arc::new(error)),
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

    /// Nobody knows whether the command ran.
    pub fn ambiguous(detail: impl Into<Arc<str>>) -> Self {
        Self { kind: LockErrorKind::Unavailable, detail: detail.into(), may_have_run: true }
    }

    /// Whether it may pass by itself, so that a waiter should ride it out.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, LockErrorKind::Unavailable | LockErrorKind::ReadOnly)
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        Self::with_detail(error.kind, error.detail)
    }
}
