//! Refusals, and their causes.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use lock_tower::refusal::problem;

/// A request that the layer does not serve, or whose response it does not send.
///
/// The response is `application/problem+json` ([RFC 9457]) with a stable member `code`, like the
/// refusals of [`lock_tower`]. The refusal is in the response's extensions, so that outer layers
/// can distinguish it from a handler's response. Lock refusals come from lock-tower: 423
/// `lock-busy` if the earlier request runs longer than the wait, or the process died and the lease
/// has not expired; 429 if too many requests wait. See [`lock_tower::Refusals`].
///
/// | cause | status | `code` |
/// |---|---|---|
/// | [`KeyMissing`](Cause::KeyMissing) | 400 | `idempotency-key-missing` |
/// | [`KeyInvalid`](Cause::KeyInvalid) | 400 | `idempotency-key-invalid` |
/// | [`KeyReused`](Cause::KeyReused) | 422 | `idempotency-key-reused` |
/// | [`ScopeRefused`](Cause::ScopeRefused) | set by the scope function | `idempotency-scope-refused` |
/// | [`BodyTooLarge`](Cause::BodyTooLarge) | 413 | `idempotency-body-too-large` |
/// | [`BodyRoomFull`](Cause::BodyRoomFull) | 503, `Retry-After` | `idempotency-body-room-full` |
/// | [`BodyTimeout`](Cause::BodyTimeout) | 408 | `idempotency-body-timeout` |
/// | [`BodyFailed`](Cause::BodyFailed) | 400 | `idempotency-body-failed` |
/// | [`OutcomeUnknown`](Cause::OutcomeUnknown) | 409 | `idempotency-outcome-unknown` |
/// | [`AnswerNotKept`](Cause::AnswerNotKept) | 409 | `idempotency-answer-not-kept` |
/// | [`StoreUnavailable`](Cause::StoreUnavailable) | 503, `Retry-After` | `idempotency-store-unavailable` |
/// | [`RecordMalformed`](Cause::RecordMalformed) | 500 | `idempotency-record-malformed` |
/// | [`RunTooLong`](Cause::RunTooLong) | 500 | `idempotency-run-too-long` |
/// | [`NotStored`](Cause::NotStored) | 500 | `idempotency-not-stored` |
/// | [`Overtaken`](Cause::Overtaken) | 500 | `lock-lost` |
/// | [`Misconfigured`](Cause::Misconfigured) | 500 | `idempotency-misconfigured` |
///
/// ```
/// use http::StatusCode;
/// use lock_idempotency::{Cause, Refusal};
///
/// let refusal = Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first.");
/// assert_eq!(refusal.cause(), Cause::ScopeRefused);
/// assert_eq!(
///     refusal.to_response().body(),
///     concat!(
///         r#"{"type":"about:blank","title":"Unauthorized","status":401,"#,
///         r#""detail":"Log in first.","code":"idempotency-scope-refused"}"#,
///     ),
/// );
/// ```
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    cause: Cause,
    status: StatusCode,
    detail: Cow<'static, str>,
}

/// The causes a client can distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The request has no key, and the layer [requires](crate::IdempotencyLayer::required) a key.
    KeyMissing,
    /// The header is not a valid key: empty, too long, not visible ASCII, or repeated.
    KeyInvalid,
    /// The key was used for another request.
    KeyReused,
    /// The scope function has refused the request.
    ScopeRefused,
    /// The body is larger than [`body_limit`](crate::IdempotencyLayer::body_limit).
    BodyTooLarge,
    /// The bodies of other requests fill the room of
    /// [`body_total`](crate::IdempotencyLayer::body_total).
    BodyRoomFull,
    /// The body did not arrive within [`body_within`](crate::IdempotencyLayer::body_within).
    BodyTimeout,
    /// The body has failed.
    BodyFailed,
    /// An earlier attempt began and left no response, and the layer
    /// [remembers](crate::IdempotencyLayer::remember_starts) it.
    OutcomeUnknown,
    /// The work was done, and the response is not stored.
    AnswerNotKept,
    /// The store is unavailable; the handler did not begin.
    StoreUnavailable,
    /// The stored record is malformed; the handler did not begin.
    RecordMalformed,
    /// The handler took longer than [`max_run`](crate::IdempotencyLayer::max_run): the effects are
    /// unknown.
    RunTooLong,
    /// The work was done, and the response could not be stored; only if the layer is
    /// [strict](crate::IdempotencyLayer::strict).
    NotStored,
    /// The lock was lost, and a later request has begun: the effects are unknown.
    Overtaken,
    /// The server is misconfigured: a scope has an empty part.
    Misconfigured,
}

impl Cause {
    /// Returns a machine-readable name, which never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency-key-missing",
            Self::KeyInvalid => "idempotency-key-invalid",
            Self::KeyReused => "idempotency-key-reused",
            Self::ScopeRefused => "idempotency-scope-refused",
            Self::BodyTooLarge => "idempotency-body-too-large",
            Self::BodyRoomFull => "idempotency-body-room-full",
            Self::BodyTimeout => "idempotency-body-timeout",
            Self::BodyFailed => "idempotency-body-failed",
            Self::OutcomeUnknown => "idempotency-outcome-unknown",
            Self::AnswerNotKept => "idempotency-answer-not-kept",
            Self::StoreUnavailable => "idempotency-store-unavailable",
            Self::RecordMalformed => "idempotency-record-malformed",
            Self::RunTooLong => "idempotency-run-too-long",
            Self::NotStored => "idempotency-not-stored",
            Self::Overtaken => lock_tower::Cause::Lost.code(),
            Self::Misconfigured => "idempotency-misconfigured",
        }
    }

    /// Returns the default status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyInvalid | Self::BodyFailed => StatusCode::BAD_REQUEST,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ScopeRefused => StatusCode::FORBIDDEN,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyRoomFull | Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::OutcomeUnknown | Self::AnswerNotKept => StatusCode::CONFLICT,
            // Gateways repeat a 503, even for a POST, and the handler would begin twice.
            Self::RecordMalformed
            | Self::RunTooLong
            | Self::NotStored
            | Self::Overtaken
            | Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns a human-readable sentence, without details about the key, the scope or the store.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::KeyMissing => "The request has no idempotency key.",
            Self::KeyInvalid => "The idempotency key of the request is not valid.",
            Self::KeyReused => "The idempotency key was used for another request.",
            Self::ScopeRefused => "The request is not allowed to use an idempotency key.",
            Self::BodyTooLarge => "The body of a request with an idempotency key is too large.",
            Self::BodyRoomFull => "Too many requests with large bodies are waiting. Try again.",
            Self::BodyTimeout => "The body of the request did not arrive in time.",
            Self::BodyFailed => "The body of the request could not be read.",
            Self::OutcomeUnknown => {
                "An earlier attempt with this idempotency key began, and the outcome is unknown."
            }
            Self::AnswerNotKept => {
                "The request with this idempotency key was served, but the response was not kept."
            }
            Self::StoreUnavailable => "The request cannot be served now. Try again later.",
            Self::RecordMalformed => "The record of this idempotency key is malformed.",
            Self::RunTooLong => "The request took too long: the effects, if any, are unknown.",
            Self::NotStored => "The request was served, but the response could not be stored.",
            Self::Overtaken => lock_tower::Cause::Lost.sentence(),
            Self::Misconfigured => "The server's idempotency keys are not set up correctly.",
        }
    }
}

impl Refusal {
    pub(crate) fn new(cause: Cause) -> Self {
        Self { cause, status: cause.status(), detail: cause.sentence().into() }
    }

    pub(crate) fn with_detail(cause: Cause, detail: &'static str) -> Self {
        Self { detail: detail.into(), ..Self::new(cause) }
    }

    /// Refuses a request in the scope function, with a status and a sentence for the client.
    pub fn scope(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { cause: Cause::ScopeRefused, status, detail: detail.into() }
    }

    /// Returns the cause.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the response status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the sentence for the client.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns how long to wait before a retry, as a hint; `None` if a retry is useless.
    pub fn retry_after(&self) -> Option<Duration> {
        let may_pass = matches!(self.cause, Cause::BodyRoomFull | Cause::StoreUnavailable);
        may_pass.then_some(Duration::from_secs(1))
    }

    /// Renders the refusal as a response, with the refusal in the extensions.
    pub fn to_response(&self) -> Response<Bytes> {
        let code = self.cause.code();
        let mut response = problem(self.status, code, &self.detail, self.retry_after());
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}
