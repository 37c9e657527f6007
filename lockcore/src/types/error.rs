//! [`LockError`], the error of each operation on locks.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proto::{ConfigError, LockErrorKind, StoreError};

use crate::types::key::KeyError;

/// Why a lock was not acquired, was lost or could not be released.
///
/// Branch on [`kind`](Self::kind); the text is for people, and names the remedy if there is one.
#[derive(Clone)]
pub struct LockError {
    kind: LockErrorKind,
    detail: Option<Arc<str>>,
    is_of_permits: bool,
    /// True if no request for any lock reaches the store. Always true for the kind `Unavailable`,
    /// and true for `Denied` if the server refuses each new login.
    is_of_outage: bool,
    /// The expected time until the queue is served, 1 s to 30 s, for
    /// [`retry_after`](Self::retry_after). `None` without an estimate.
    retry_after: Option<Duration>,
}

/// The longest hint in [`LockError::retry_after`], because a longer estimate would be stale before
/// it is used.
const LONGEST_HINT: Duration = Duration::from_secs(30);

impl LockError {
    pub(crate) fn new(kind: LockErrorKind) -> Self {
        Self {
            kind,
            detail: None,
            is_of_permits: false,
            is_of_outage: kind == LockErrorKind::Unavailable,
            retry_after: None,
        }
    }

    pub(crate) fn with_detail(kind: LockErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(kind) }
    }

    /// Puts the server's address in front of the error's detail, unless it is there already.
    #[cfg(feature = "redis")]
    pub(crate) fn at(self, address: impl fmt::Display) -> Self {
        let detail = match self.detail {
            Some(detail) if detail.starts_with(&address.to_string()) => detail,
            Some(detail) => format!("{address}: {detail}").into(),
            None => address.to_string().into(),
        };
        Self { detail: Some(detail), ..self }
    }

    /// Converts an error of the store into the error for the caller, with the same kind and detail.
    pub(crate) fn of_store(error: StoreError) -> Self {
        Self::with_detail(error.kind, error.detail)
    }

    /// Returns the kind of the error, on which to branch.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    pub(crate) fn of_permits(self, is_of_permits: bool) -> Self {
        Self { is_of_permits, ..self }
    }

    /// Marks the error as an outage, because the connection is down: [`is_outage`](Self::is_outage)
    /// returns true from now on.
    pub(crate) fn of_outage(self) -> Self {
        Self { is_of_outage: true, ..self }
    }

    /// Returns true if no request for any lock reaches the store: the store is
    /// [`Unavailable`](LockErrorKind::Unavailable), or the connection is down and the server
    /// refuses each new login ([`Denied`](LockErrorKind::Denied)).
    pub fn is_outage(&self) -> bool {
        self.is_of_outage
    }

    /// Returns true if the request was for permits. A [`Timeout`](LockErrorKind::Timeout) then
    /// means that too few permits became free within the wait, not that another request holds the
    /// lock.
    pub fn is_of_permits(&self) -> bool {
        self.is_of_permits
    }

    /// Returns true if the same call may succeed later without any change: the lock was busy, the
    /// queue was full, or the store was unavailable, read-only or out of memory.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// Sets the value of [`retry_after`](Self::retry_after) to `queue`, the time in which the queue
    /// is expected to be served, clamped to 1 s to 30 s. `None` is no estimate.
    pub(crate) fn retry_after_queue(self, queue: Option<Duration>) -> Self {
        let retry_after = queue.map(|queue| queue.clamp(Duration::from_secs(1), LONGEST_HINT));
        Self { retry_after, ..self }
    }

    /// Returns how long to wait before a retry, as a hint; `None` if a retry does not help. With
    /// [early refusal](crate::LockRequest::refuse_early), this is how long the queue is expected to
    /// take, 1 s to 30 s; otherwise it is 1 s or 2 s.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::WaitTooLong => {
                Some(self.retry_after.unwrap_or(Duration::from_secs(1)))
            }
            LockErrorKind::Unavailable | LockErrorKind::ReadOnly | LockErrorKind::OutOfMemory => {
                Some(Duration::from_secs(2))
            }
            _ => None,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.kind {
            LockErrorKind::Timeout if self.is_of_permits => "too few permits became free in time",
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
        // Includes the full text, because a `main` that returns the error prints this form.
        write!(f, "LockError({:?}: {self})", self.kind)
    }
}

// Without a source, because the text is complete, and an error chain would repeat it.
impl Error for LockError {}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self { detail: Some(error.to_string().into()), ..Self::new(LockErrorKind::InvalidKey) }
    }
}

impl From<ConfigError> for LockError {
    fn from(error: ConfigError) -> Self {
        Self { detail: Some(error.to_string().into()), ..Self::new(LockErrorKind::InvalidOption) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An error chain, as printed by anyhow's `{:#}`, once repeated each sentence.
    #[test]
    fn a_chain_of_errors_says_each_thing_once() {
        let bad = ConfigError::new("lease", "1ms", "100 ms to 24 h");
        let errors = [
            LockError::from(bad.clone()),
            crate::types::key::LockKey::new("")
                .map(drop)
                .map_err(LockError::from)
                .expect_err("empty"),
            LockError::with_detail(LockErrorKind::Unavailable, "connection refused"),
        ];
        assert!(errors[0].to_string().contains(&bad.to_string()));
        for error in errors {
            assert!(error.source().is_none(), "{error}");
        }
    }
}
