//! `LockError`, with which a request is refused, and its causes.

use std::error::Error;
use std::fmt;
#[cfg(feature = "http")]
use std::sync::Arc;
use std::time::Duration;

use lockcore::LockErrorKind;

#[cfg(feature = "http")]
use crate::http::response_options::ResponseOptions;
use crate::key::{Clash, KeyError};

/// The error of a request that could not be served under its lock.
///
/// A plain service returns this error as `S::Error` (which must implement `From<LockError>`). In
/// HTTP the error becomes a response and is stored in the extensions of the response, so that outer
/// layers can distinguish this crate's 423 from a handler's. With the feature `axum` it is a
/// response type for `?` in handlers.
///
/// [`lockcore::LockError`] is another type, the error of calls on a [`Locks`](lockcore::Locks): `?`
/// converts it into this type.
///
/// ```
/// use lock_tower::{Cause, KeyError, LockError, LockErrorKind};
///
/// let error = LockError::from(KeyError::new("no account"));
/// assert_eq!(error.kind(), LockErrorKind::InvalidKey);
/// assert_eq!(error.cause(), Cause::BadKey);
/// assert_eq!(error.to_string(), "the lock's key: no account");
/// ```
#[derive(Debug, Clone)]
pub struct LockError {
    reason: Reason,
    /// The options of the layer that refuses the request, for rendering the response; `None` if the
    /// layer is unknown.
    #[cfg(feature = "http")]
    pub(super) response_options: Option<Arc<ResponseOptions>>,
}

/// The reason for a [`LockError`], from which [`LockError::cause`] and [`LockError::kind`] are
/// derived: an error of lockcore, an error of the key, or a condition found by a layer.
#[derive(Debug, Clone)]
enum Reason {
    Core(lockcore::LockError),
    Key(KeyError),
    /// A lock was lost before the request was done. `has_begun` is true if the handler may have
    /// begun.
    Lost {
        has_begun: bool,
    },
    /// The request must wait, and its body is larger than `read_ahead` allows to buffer.
    BodyLimit,
    /// The request must wait, and its body does not fit into the memory that `read_ahead_total`
    /// allows for the bodies of all waiting requests.
    ReadAheadFull,
    /// The request body returned an error during the wait.
    BodyFailed,
    /// The connection already has as many waiting requests as `waiting_per_connection` allows.
    ConnectionFull,
    /// The service is misconfigured, as the sentence describes.
    Misuse(&'static str),
}

/// Why a request was refused. Each cause has a row in the table of [`Refusals`](crate::Refusals),
/// with its status and gRPC code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Another request holds the lock, and this request's wait timed out.
    Busy,
    /// All [permits](crate::Keys::permits) are in use, and the request's wait timed out.
    LimitReached,
    /// The queue of this key is full: see [`queue_limit`](crate::HttpLockLayer::queue_limit).
    QueueFull,
    /// The queue of this key is too long for the request to be served within its wait; see
    /// [`refuse_early`](crate::HttpLockLayer::refuse_early).
    WaitTooLong,
    /// A newer request for this key has replaced this request in the queue, under
    /// [`WhenBusy::KeepNewest`](lockcore::WhenBusy).
    Superseded,
    /// The request must wait, and its body is larger than the bound for [reading
    /// ahead](crate::HttpLockLayer::read_ahead).
    BodyLimit,
    /// The request must wait, and its body does not fit into the memory for the bodies of all
    /// waiting requests: see [`read_ahead_total`](crate::HttpLockLayer::read_ahead_total).
    ReadAheadFull,
    /// The body could not be read while the request waited: the client has disconnected, the bytes
    /// are not valid HTTP, or an outer layer's limit or time-out has cut the body off. The
    /// request has left the queue.
    BodyFailed,
    /// The connection already has as many waiting requests as
    /// [`waiting_per_connection`](crate::HttpLockLayer::waiting_per_connection) allows. This
    /// request has left the queue.
    ConnectionFull,
    /// The lock store is unavailable or unusable (read-only, full, or access denied), or this
    /// process is shutting down.
    Unavailable,
    /// A lock of the request was lost. Either the request was still waiting for the inner service,
    /// or for another lock of the same layer or call, and the handler did not begin; or the inner
    /// service had been called, and the effects are unknown.
    Lost,
    /// The request lacks a required key, or the key cannot name a lock.
    BadKey,
    /// The key is in a non-canonical spelling, such as `/orders/07`: the client must use the
    /// canonical spelling.
    KeySpelling,
    /// The server is misconfigured: an option or a permit count is out of range, a layer is
    /// missing, or a request has conflicting demands for the same name ([`Clash`]). Or the `Locks`
    /// do not support the demand: a read or permits with
    /// [`redisson_peers`](lockcore::LocksBuilder::redisson_peers), permits on a
    /// [quorum](lockcore::guide::quorum). Or the lock key belongs to another program.
    Misconfigured,
}

impl LockError {
    fn of(reason: Reason) -> Self {
        Self {
            reason,
            #[cfg(feature = "http")]
            response_options: None,
        }
    }

    /// Sets the options of the layer that refuses the request, from which the response's status and
    /// format are taken.
    #[cfg(feature = "http")]
    pub(crate) fn answered_by(self, response_options: &Arc<ResponseOptions>) -> Self {
        Self { response_options: Some(Arc::clone(response_options)), ..self }
    }

    /// Creates the error for a lock that was lost after the handler may have begun, so that the
    /// effects of the handler are unknown.
    pub(crate) fn lost() -> Self {
        Self::of(Reason::Lost { has_begun: true })
    }

    /// Creates the error for a lock that was lost while the request waited for another lock or for
    /// the inner service, so that the handler did not begin.
    pub(crate) fn lost_before() -> Self {
        Self::of(Reason::Lost { has_begun: false })
    }

    /// Returns false only if a lock was lost before the handler began. Selects the status of
    /// [`Cause::Lost`]: 503 if false, 500 if true. An error from a guard that the handler found
    /// lost counts as true.
    #[cfg(feature = "http")]
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.reason, Reason::Lost { has_begun: false })
    }

    /// Returns the two demands for the same name that the request cannot combine, if it was refused
    /// for this reason; `None` for all other errors.
    pub fn as_clash(&self) -> Option<&Clash> {
        match &self.reason {
            Reason::Key(error) => error.as_clash(),
            _ => None,
        }
    }

    /// Creates the error for a body larger than `read_ahead` ([`Cause::BodyLimit`]).
    pub(crate) fn body_limit() -> Self {
        Self::of(Reason::BodyLimit)
    }

    /// Creates the error for a body that does not fit into `read_ahead_total`
    /// ([`Cause::ReadAheadFull`]).
    pub(crate) fn read_ahead_full() -> Self {
        Self::of(Reason::ReadAheadFull)
    }

    /// Creates the error for a body that failed during the wait ([`Cause::BodyFailed`]).
    pub(crate) fn body_failed() -> Self {
        Self::of(Reason::BodyFailed)
    }

    /// Creates the error for a connection that already has `waiting_per_connection` requests
    /// waiting ([`Cause::ConnectionFull`]).
    pub(crate) fn connection_full() -> Self {
        Self::of(Reason::ConnectionFull)
    }

    /// Creates an error for a misconfigured service ([`Cause::Misconfigured`]), as described by
    /// `sentence`. For extractors and layers built on this crate.
    pub fn misuse(sentence: &'static str) -> Self {
        Self::of(Reason::Misuse(sentence))
    }

    /// Returns the lockcore error kind that corresponds to this error. [`Cause::BodyLimit`],
    /// [`Cause::ReadAheadFull`] and [`Cause::ConnectionFull`] have the kind
    /// [`QueueFull`](LockErrorKind::QueueFull), because there is no room to wait.
    /// [`Cause::BodyFailed`] has the kind [`Timeout`](LockErrorKind::Timeout), because nobody waits
    /// any more.
    pub fn kind(&self) -> LockErrorKind {
        match &self.reason {
            Reason::Core(error) => error.kind(),
            Reason::Key(error) if error.is_misuse() => LockErrorKind::InvalidOption,
            Reason::Key(_) => LockErrorKind::InvalidKey,
            Reason::Lost { .. } => LockErrorKind::Lost,
            Reason::BodyLimit | Reason::ReadAheadFull | Reason::ConnectionFull => {
                LockErrorKind::QueueFull
            }
            Reason::BodyFailed => LockErrorKind::Timeout,
            Reason::Misuse(_) => LockErrorKind::InvalidOption,
        }
    }

    /// Returns the cause, which selects the row in the table of [`Refusals`](crate::Refusals).
    pub fn cause(&self) -> Cause {
        match self.reason {
            Reason::BodyLimit => return Cause::BodyLimit,
            Reason::ReadAheadFull => return Cause::ReadAheadFull,
            Reason::BodyFailed => return Cause::BodyFailed,
            Reason::ConnectionFull => return Cause::ConnectionFull,
            Reason::Core(ref error)
                if error.is_of_permits() && error.kind() == LockErrorKind::Timeout =>
            {
                return Cause::LimitReached;
            }
            Reason::Key(ref error) if error.is_spelling() => return Cause::KeySpelling,
            _ => {}
        }
        match self.kind() {
            LockErrorKind::Timeout => Cause::Busy,
            LockErrorKind::QueueFull => Cause::QueueFull,
            LockErrorKind::WaitTooLong => Cause::WaitTooLong,
            LockErrorKind::Superseded => Cause::Superseded,
            LockErrorKind::Lost => Cause::Lost,
            LockErrorKind::InvalidKey => Cause::BadKey,
            LockErrorKind::InvalidOption
            | LockErrorKind::WrongType
            | LockErrorKind::Unsupported => Cause::Misconfigured,
            // A store error; also any kind added by later versions of lockcore.
            _ => Cause::Unavailable,
        }
    }

    /// Returns how long a client should wait before a retry, as a hint; `None` if a retry is
    /// useless.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.reason {
            Reason::Core(error) if error.kind() == LockErrorKind::Closed => {
                Some(Duration::from_secs(1)) // other processes can serve the request
            }
            Reason::Core(error) => error.retry_after(),
            // These limits do not apply to a request that need not wait.
            Reason::BodyLimit | Reason::ReadAheadFull | Reason::ConnectionFull => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }

    /// Returns true if the store is unreachable for all keys: the connection is down, or no
    /// response arrived within a full request timeout. With `fail_open`, a layer then serves the
    /// request without its lock.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(&self.reason, Reason::Core(error) if error.is_outage())
    }

    /// Returns the key error if the key in the request is missing or invalid, so that the text may
    /// be shown to the client; `None` for all other errors, and for a misconfigured extractor.
    pub(crate) fn key_error(&self) -> Option<&KeyError> {
        match &self.reason {
            Reason::Key(error) if !error.is_misuse() => Some(error),
            _ => None,
        }
    }
}

impl Cause {
    /// Returns the machine-readable name of this cause, such as `lock-busy`. It never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::Busy => "lock-busy",
            Self::LimitReached => "lock-limit-reached",
            Self::QueueFull => "lock-queue-full",
            Self::WaitTooLong => "lock-wait-too-long",
            Self::Superseded => "lock-superseded",
            Self::BodyLimit => "lock-body-limit",
            Self::ReadAheadFull => "lock-read-ahead-full",
            Self::BodyFailed => "lock-body-failed",
            Self::ConnectionFull => "lock-connection-full",
            Self::Unavailable => "lock-unavailable",
            Self::Lost => "lock-lost",
            Self::BadKey => "lock-key-invalid",
            Self::KeySpelling => "lock-key-spelling",
            Self::Misconfigured => "lock-misconfigured",
        }
    }

    /// Returns the number of the gRPC status code, for `tonic::Code::from_i32`.
    pub fn grpc_code(self) -> i32 {
        match self {
            Self::BodyFailed => 1, // CANCELLED
            // UNAVAILABLE
            Self::Busy
            | Self::WaitTooLong
            | Self::ReadAheadFull
            | Self::ConnectionFull
            | Self::Unavailable => 14,
            Self::LimitReached | Self::QueueFull | Self::BodyLimit => 8, // RESOURCE_EXHAUSTED
            Self::Superseded | Self::Lost => 10,                         // ABORTED
            Self::BadKey | Self::KeySpelling => 3,                       // INVALID_ARGUMENT
            Self::Misconfigured => 13,                                   // INTERNAL
        }
    }

    /// Returns a human-readable sentence about this cause, without details about the key or the
    /// store.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Busy => "Another request for the same resource is being served. Try again.",
            Self::LimitReached => {
                "The limit of concurrent requests for this resource is reached. \
                Try again."
            }
            Self::QueueFull => "Too many requests for the same resource are waiting. Try again.",
            Self::WaitTooLong => {
                "The wait for the resource would exceed the request's limit. Try again later."
            }
            Self::Superseded => "A newer request for the same resource has replaced this request.",
            Self::BodyLimit => {
                "The request has to wait for its resource, and the body is too large to buffer \
                 meanwhile. Try again."
            }
            Self::ReadAheadFull => {
                "Too many requests with large bodies are waiting for their resources. Try again."
            }
            Self::BodyFailed => {
                "The body of the request could not be read while the request \
                waited."
            }
            Self::ConnectionFull => {
                "Too many requests on this connection are waiting for their resources. Try again."
            }
            Self::Unavailable => "The lock service is unavailable now. Try again later.",
            Self::Lost => {
                "The lock was lost before the request completed: the effects, if any, are unknown."
            }
            Self::BadKey => "The request does not name a lockable resource.",
            Self::KeySpelling => "The request names its resource in a non-canonical spelling.",
            Self::Misconfigured => "The server's locks are not set up correctly.",
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Core(error) => error.fmt(f),
            Reason::Key(error) => write!(f, "the lock's key: {error}"),
            Reason::Lost { .. } => f.write_str("a hold was lost before the request completed"),
            Reason::BodyLimit => {
                f.write_str("the request's body is too large to buffer during the wait")
            }
            Reason::ReadAheadFull => {
                f.write_str("the bodies of the waiting requests have reached `read_ahead_total`")
            }
            Reason::BodyFailed => f.write_str("the request's body failed during the wait"),
            Reason::ConnectionFull => f.write_str(
                "the waiting requests of the connection have reached `waiting_per_connection`",
            ),
            Reason::Misuse(sentence) => f.write_str(sentence),
        }
    }
}

// Without a source, because the text contains the reason, and an error chain would repeat it.
impl Error for LockError {}

impl From<lockcore::LockError> for LockError {
    fn from(error: lockcore::LockError) -> Self {
        Self::of(Reason::Core(error))
    }
}

impl From<lockcore::KeyError> for LockError {
    fn from(error: lockcore::KeyError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl From<lockcore::ConfigError> for LockError {
    fn from(error: lockcore::ConfigError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl From<lockcore::DowngradeError> for LockError {
    /// Converts the error, and drops the guard inside, which releases the lock.
    fn from(error: lockcore::DowngradeError) -> Self {
        lockcore::LockError::from(error).into()
    }
}

impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self::of(Reason::Key(error))
    }
}
