//! Refusals, and their causes.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use lock_tower::refusal::problem;

/// The reason why the layer does not serve a request or send the handler's response, and the
/// response sent instead.
///
/// The response sent instead is `application/problem+json` ([RFC 9457]) with a stable member
/// `code`, like the refusals of [`lock_tower`]. It has the `Refusal` in its extensions, so that
/// outer layers can distinguish it from a handler's response.
///
/// Refusals by the lock are not of this type, because lock-tower sends them: 423 `lock-busy` if the
/// earlier request runs longer than the wait, or if its process died and the lease has not expired;
/// 429 if too many requests wait. See [`lock_tower::Refusals`].
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
/// | [`NotReady`](Cause::NotReady) | 503, `Retry-After` | `idempotency-not-ready` |
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

/// The cause of a [`Refusal`], which a client recognizes by the [`code`](Self::code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The request has no key, and the layer [requires](crate::IdempotencyLayer::required) a key.
    KeyMissing,
    /// The request header is not a valid key: empty, too long, not visible ASCII, or repeated.
    KeyInvalid,
    /// The key was used for another request, with a different method, path, content type or body.
    KeyReused,
    /// The scope function has refused the request.
    ScopeRefused,
    /// The request body is larger than [`body_limit`](crate::IdempotencyLayer::body_limit).
    BodyTooLarge,
    /// The bodies of other requests occupy the memory of
    /// [`body_total`](crate::IdempotencyLayer::body_total).
    BodyRoomFull,
    /// The request body did not arrive within
    /// [`body_within`](crate::IdempotencyLayer::body_within).
    BodyTimeout,
    /// The request body failed before its end, for example because the client disconnected.
    BodyFailed,
    /// An earlier attempt with the key began and left no response, and the layer refuses such
    /// requests: see [`remember_starts`](crate::IdempotencyLayer::remember_starts). Or the function
    /// set by [`when_unanswered`](crate::IdempotencyLayer::when_unanswered) has refused this
    /// request, or has not decided in time.
    OutcomeUnknown,
    /// An earlier request with the key did the work, but its response was too large, a stream or
    /// compressed, and so was not stored.
    AnswerNotKept,
    /// The store is unavailable, so the handler did not begin.
    StoreUnavailable,
    /// The inner service did not become ready within
    /// [`max_run`](crate::IdempotencyLayer::max_run), so the handler did not begin.
    NotReady,
    /// The stored record is malformed, so the handler did not begin.
    RecordMalformed,
    /// The handler took longer than [`max_run`](crate::IdempotencyLayer::max_run) and was dropped.
    /// It is unknown what it has done.
    RunTooLong,
    /// The work was done, but the response could not be stored. Only if the layer is
    /// [strict](crate::IdempotencyLayer::strict), because otherwise the response is sent.
    NotStored,
    /// The lock was lost, and a later request with the key has begun. It is unknown what this
    /// request has done.
    Overtaken,
    /// The server is misconfigured, because the request's scope has an empty part.
    Misconfigured,
}

impl Cause {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 17] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyReused,
        Self::ScopeRefused,
        Self::BodyTooLarge,
        Self::BodyRoomFull,
        Self::BodyTimeout,
        Self::BodyFailed,
        Self::OutcomeUnknown,
        Self::AnswerNotKept,
        Self::StoreUnavailable,
        Self::NotReady,
        Self::RecordMalformed,
        Self::RunTooLong,
        Self::NotStored,
        Self::Overtaken,
        Self::Misconfigured,
    ];

    /// Returns the cause's machine-readable name, which is the member `code` in the response. It
    /// never changes.
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
            Self::NotReady => "idempotency-not-ready",
            Self::RecordMalformed => "idempotency-record-malformed",
            Self::RunTooLong => "idempotency-run-too-long",
            Self::NotStored => "idempotency-not-stored",
            Self::Overtaken => lock_tower::Cause::Lost.code(),
            Self::Misconfigured => "idempotency-misconfigured",
        }
    }

    /// Returns the HTTP status of a refusal with this cause, unless the scope function sets
    /// another.
    pub fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyInvalid | Self::BodyFailed => StatusCode::BAD_REQUEST,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ScopeRefused => StatusCode::FORBIDDEN,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyRoomFull | Self::StoreUnavailable | Self::NotReady => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::OutcomeUnknown | Self::AnswerNotKept => StatusCode::CONFLICT,
            // Not 503, because gateways repeat the request after a 503, even a POST, and the
            // handler would begin twice.
            Self::RecordMalformed
            | Self::RunTooLong
            | Self::NotStored
            | Self::Overtaken
            | Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the sentence that explains the cause to the client, without details about the key,
    /// the scope or the store.
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
            Self::StoreUnavailable | Self::NotReady => {
                "The request cannot be served now. Try again later."
            }
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

    /// Creates a refusal for the scope function to return, with a status and a sentence for the
    /// client.
    pub fn scope(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { cause: Cause::ScopeRefused, status, detail: detail.into() }
    }

    /// Returns the cause of the refusal.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the response status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the sentence that explains the refusal to the client.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns how long the client should wait before a retry: 1 s if the store is unavailable, the
    /// inner service is not ready, or the memory for bodies is full. `None` for all other causes.
    /// It is the response's `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        let may_pass =
            matches!(self.cause, Cause::BodyRoomFull | Cause::StoreUnavailable | Cause::NotReady);
        may_pass.then_some(Duration::from_secs(1))
    }

    /// Creates the `application/problem+json` response for the refusal, with the refusal in the
    /// response's extensions.
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
