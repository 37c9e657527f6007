//! One error type for everything that can go wrong with a lock, and its kinds.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proto::{ConfigError, LockErrorKind, StoreError};

use crate::types::key::KeyError;

/// The reason why a lock was not acquired, was lost or could not be released.
///
/// Branch on [`kind`](Self::kind); the text is for people, and names the remedy where there is one.
#[derive(Clone)]
pub struct LockError {
    kind: LockErrorKind,
    detail: Option<Arc<str>>,
    is_of_permits: bool,
    /// The connection is down, whatever the kind says.
    is_of_outage: bool,
    /// The hint, where the queue is known.
    retry_after: Option<Duration>,
}

/// The longest hint: a queue that is longer than this may be another one by then.
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

    /// The same error of the server at this address.
    #[cfg(feature = "redis")]
    pub(crate) fn at(self, address: impl fmt::Display) -> Self {
        let detail = match self.detail {
            Some(detail) if detail.starts_with(&address.to_string()) => detail,
            Some(detail) => format!("{address}: {detail}").into(),
            None => address.to_string().into(),
        };
        Self { detail: Some(detail), ..self }
    }

    /// An error of the store as a caller sees it.
    pub(crate) fn of_store(error: StoreError) -> Self {
        Self::with_detail(error.kind, error.detail)
    }

    /// The kind of the error.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    pub(crate) fn of_permits(self, is_of_permits: bool) -> Self {
        Self { is_of_permits, ..self }
    }

    /// The same of a connection that is down.
    pub(crate) fn of_outage(self) -> Self {
        Self { is_of_outage: true, ..self }
    }

    /// Whether no request reaches the store, of this lock or another: it is
    /// [`Unavailable`](LockErrorKind::Unavailable), or the connection is down and the server
    /// refuses the login of each new one, which is [`Denied`](LockErrorKind::Denied).
    pub fn is_outage(&self) -> bool {
        self.is_of_outage
    }

    /// Whether permits were asked for. A [`Timeout`](LockErrorKind::Timeout) then says that too few
    /// permits became free within the wait, and not that another request holds the lock.
    pub fn is_of_permits(&self) -> bool {
        self.is_of_permits
    }

    /// Whether the same call may succeed later although nothing is changed: the lock was busy, its
    /// queue was full, or the store was unavailable, read-only or out of memory.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// The same error, with the time that the queue is expected to take.
    pub(crate) fn retry_after_queue(self, queue: Option<Duration>) -> Self {
        let retry_after = queue.map(|queue| queue.clamp(Duration::from_secs(1), LONGEST_HINT));
        Self { retry_after, ..self }
    }

    /// The time to wait before trying again, as a hint; `None` if trying again does not help. The
    /// time that the queue is expected to take, 30 s at most, where the request [refuses
    /// early](crate::LockRequest::refuse_early); else a second or two.
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
        // With the remedy: a `main` that returns the error shows it in this form.
        write!(f, "LockError({:?}: {self})", self.kind)
    }
}

// It has no source: its text has all that there is to say, and a chain would say it twice.
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

    // U3: a chain of errors, as anyhow's `{:#}` shows it, said each sentence twice.
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
