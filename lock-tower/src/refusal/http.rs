//! The HTTP responses for refusals: a status and a body in a standard format, or a custom response.

#[cfg(feature = "axum")]
mod axum;
mod grpc;
pub(crate) mod problem;

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use lockcore::LockErrorKind;

use crate::refusal::http::grpc::Dialect;
use crate::refusal::{Cause, LockError};

/// Makes HTTP responses for refused requests: in problem+json, in gRPC format, or with a closure.
/// [`HttpLockLayer`](crate::HttpLockLayer) has setters with the same names.
///
/// | cause | status | `Retry-After` | gRPC |
/// |---|---|---|---|
/// | [`Busy`](Cause::Busy) | 423 Locked | yes | UNAVAILABLE |
/// | [`LimitReached`](Cause::LimitReached) | 429 Too Many Requests | yes | RESOURCE_EXHAUSTED |
/// | [`QueueFull`](Cause::QueueFull) | 429 Too Many Requests | yes | RESOURCE_EXHAUSTED |
/// | [`WaitTooLong`](Cause::WaitTooLong) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`Superseded`](Cause::Superseded) | 409 Conflict | no: the newer request is served | ABORTED |
/// | [`BodyLimit`](Cause::BodyLimit) | 413 Content Too Large | yes | RESOURCE_EXHAUSTED |
/// | [`ReadAheadFull`](Cause::ReadAheadFull) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`BodyFailed`](Cause::BodyFailed) | 400 Bad Request | no: usually the client is gone | CANCELLED |
/// | [`ConnectionFull`](Cause::ConnectionFull) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`Unavailable`](Cause::Unavailable) | 503 Service Unavailable | if the cause may be temporary | UNAVAILABLE |
/// | [`Lost`](Cause::Lost), once the handler may have begun | 500 Internal Server Error | no: the effects are unknown | ABORTED |
/// | [`Lost`](Cause::Lost), before the handler has begun | 503 Service Unavailable | no | ABORTED |
/// | [`BadKey`](Cause::BadKey) | 400 Bad Request | no | INVALID_ARGUMENT |
/// | [`KeySpelling`](Cause::KeySpelling) | 400 Bad Request | no | INVALID_ARGUMENT |
/// | [`Misconfigured`](Cause::Misconfigured) | 500 Internal Server Error | no | INTERNAL |
///
/// The body is `application/problem+json` ([RFC 9457]) with a stable member `code`, and without the
/// key:
///
/// ```
/// use lock_tower::{KeyError, LockError, Refusals};
///
/// let response = Refusals::new().respond(&LockError::from(KeyError::new("the header x-order is missing")));
/// assert_eq!(response.status(), 400);
/// assert_eq!(
///     response.body(),
///     concat!(
///         r#"{"type":"about:blank","title":"Bad Request","status":400,"#,
///         r#""detail":"the header x-order is missing","code":"lock-key-invalid"}"#,
///     ),
/// );
/// ```
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
#[derive(Clone, Default)]
#[must_use = "refusals apply once they are given to a layer"]
pub struct Refusals {
    format: Format,
    /// The statuses that replace the defaults in the table; a list, because there are few.
    statuses: Vec<(Cause, StatusCode)>,
}

/// The format of refusals: problem+json, gRPC, or the responses of a custom closure.
#[derive(Clone, Default)]
enum Format {
    #[default]
    Problem,
    Grpc(Dialect),
    Closure(Closure),
}

type Closure = Arc<dyn Fn(&LockError) -> Response<Bytes> + Send + Sync>;

impl Refusals {
    /// Creates refusals with the statuses of the table, as problem+json.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the status of refusals with this cause, instead of the default in the table. Has no
    /// effect on refusals in [gRPC format](Self::grpc), where the status is 200, or with
    /// [`respond_with`](Self::respond_with).
    pub fn status(mut self, cause: Cause, status: StatusCode) -> Self {
        self.statuses.retain(|(other, _)| *other != cause);
        self.statuses.push((cause, status));
        self
    }

    /// Sets the format of refusals to gRPC: status 200, with
    /// [`grpc_trailers`](LockError::grpc_trailers) in the headers, or at the end of a body whose
    /// lock is lost.
    ///
    /// A layer selects the format by the request's `content-type`: a gRPC-Web request is refused in
    /// gRPC-Web format, with the trailers in the body, and a request that is not gRPC as
    /// problem+json, because its client would take the status 200 for a success.
    pub fn grpc(mut self) -> Self {
        self.format = Format::Grpc(Dialect::Grpc);
        self
    }

    /// Returns the last frame of a response body that ends early because its lock was lost. With
    /// gRPC the frame contains `error` as trailers. Returns `None` for other formats, which have no
    /// such frame, so that the body must fail.
    pub(crate) fn last_frame<D: From<Bytes>>(&self, error: &LockError) -> Option<Frame<D>> {
        match &self.format {
            Format::Grpc(dialect) => Some(dialect.last_frame(error)),
            Format::Problem | Format::Closure(_) => None,
        }
    }

    /// Returns the refusals for a request with these headers, if they differ from `self`: if `self`
    /// is set to gRPC, in gRPC-Web format for a gRPC-Web request, and as problem+json for a request
    /// that is not gRPC. Otherwise returns `None`.
    pub(crate) fn of_request(&self, headers: &HeaderMap) -> Option<Self> {
        let Format::Grpc(_) = self.format else { return None };
        let format = match Dialect::of(headers) {
            Some(Dialect::Grpc) => return None,
            Some(web) => Format::Grpc(web),
            None => Format::Problem,
        };
        Some(Self { format, statuses: self.statuses.clone() })
    }

    /// Sets the closure that makes the responses for refusals, instead of problem+json.
    pub fn respond_with<F>(mut self, respond: F) -> Self
    where
        F: Fn(&LockError) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.format = Format::Closure(Arc::new(respond));
        self
    }

    /// Returns the status of refusals with this cause; for [`Cause::Lost`], the status after the
    /// handler has begun.
    pub fn status_of(&self, cause: Cause) -> StatusCode {
        self.changed(cause).unwrap_or_else(|| default_status(cause, true))
    }

    /// Returns the status that [`status`](Self::status) has set for this cause, instead of the
    /// default; `None` if none is set.
    fn changed(&self, cause: Cause) -> Option<StatusCode> {
        self.statuses.iter().find(|(other, _)| *other == cause).map(|(_, status)| *status)
    }

    /// Returns the status of the response for this error: the status set for its cause, or the
    /// default.
    fn status_for(&self, error: &LockError) -> StatusCode {
        let cause = error.cause();
        self.changed(cause).unwrap_or_else(|| default_status(cause, error.has_begun()))
    }

    /// Makes the response for an error, and stores the error in the response's extensions. A
    /// [`Misconfigured`](Cause::Misconfigured) error is logged at `error`, because the response
    /// hides the mistake; a [`Clash`](crate::Clash) at most once a minute. If the key belongs to
    /// another program, it is logged at `warn`, at most once a minute.
    pub fn respond(&self, error: &LockError) -> Response<Bytes> {
        log(error);
        self.render(error)
    }

    /// Returns this layer's response for the error in a [`Provisional`] response, made by the
    /// handler without a layer's options. Headers that were added to the response are kept. Returns
    /// `None` for all other responses, and if the handler has set another status.
    pub(crate) fn rendered<B>(&self, response: &Response<B>) -> Option<Response<Bytes>> {
        let Provisional(status) = response.extensions().get()?;
        let error = response.extensions().get().filter(|_| response.status() == *status)?;
        let mut rendered = self.render(error);
        let is_added = |name| ![CONTENT_TYPE, CONTENT_LENGTH, RETRY_AFTER].contains(name);
        for (name, value) in response.headers().iter().filter(|(name, _)| is_added(name)) {
            rendered.headers_mut().append(name, value.clone());
        }
        Some(rendered)
    }

    fn render(&self, error: &LockError) -> Response<Bytes> {
        let mut response = match &self.format {
            Format::Problem => problem::response(self.status_for(error), error),
            Format::Grpc(dialect) => dialect.response(error),
            Format::Closure(respond) => respond(error),
        };
        response.extensions_mut().insert(error.clone());
        response
    }
}

/// A marker in the extensions of a refusal made without the options of a layer, with the status of
/// the refusal. The next outer layer replaces the response with its own refusal for the same error,
/// unless the handler has changed the status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provisional(StatusCode);

impl LockError {
    /// Returns the HTTP status of the refusal: the status set in the layer for this cause, or the
    /// status of [`Refusals::new`] if the layer is unknown. The actual response differs with
    /// [gRPC](Refusals::grpc), where the status is 200, and with [custom
    /// responses](Refusals::respond_with).
    pub fn status(&self) -> StatusCode {
        match &self.response_options {
            Some(response_options) => response_options.refusals.status_for(self),
            None => default_status(self.cause(), self.has_begun()),
        }
    }

    /// Makes a response, for handlers that return this error. Errors of
    /// [`RequestLocks`](crate::RequestLocks) are rendered by the refusals of their layer. Other
    /// errors are rendered by the next outer layer, a [`LockScopeLayer`], or an [`HttpLockLayer`]
    /// that has locked the request; without a layer as problem+json. Headers added to the response
    /// are kept, and so is a status that replaces the status of the refusal. A
    /// [`Misconfigured`](Cause::Misconfigured) error is logged at `error`.
    ///
    /// [`HttpLockLayer`]: crate::HttpLockLayer
    /// [`LockScopeLayer`]: crate::LockScopeLayer
    pub fn to_response(&self) -> Response<Bytes> {
        if let Some(response_options) = &self.response_options {
            return response_options.refusals.respond(self);
        }
        let mut response = Refusals::new().respond(self);
        let status = response.status();
        response.extensions_mut().insert(Provisional(status));
        response
    }
}

/// Logs the reason of a misconfiguration, because the response hides it. Does nothing for other
/// errors.
fn log(error: &LockError) {
    static FOREIGN: Mutex<Option<Instant>> = Mutex::new(None);
    static CLASHES: Mutex<Option<Instant>> = Mutex::new(None);
    if error.cause() != Cause::Misconfigured {
        return;
    }
    if error.kind() == LockErrorKind::WrongType {
        if !is_due(&FOREIGN) {
            return;
        }
        tracing::warn!(
            %error,
            "a request names a key of another program: the request is refused, and the key is \
             unchanged (logged once a minute). If clients choose the name, give the lock keys a \
             separate prefix"
        );
    } else if error.as_clash().is_none() || is_due(&CLASHES) {
        tracing::error!(%error, "the locks are not set up correctly");
    }
    // The response hides the reason: without a subscriber it would be lost.
    if !tracing::dispatcher::has_been_set() && is_new_reason(error) {
        // The service continues without stderr.
        let _ = writeln!(
            std::io::stderr(),
            "lock-tower: the locks are not set up correctly: {error} (printed once; a `tracing` \
             subscriber shows each refusal)"
        );
    }
}

/// Returns true the first time that this process calls it for an error with this text, for at most
/// 16 different texts, because some contain a name that a client chooses.
fn is_new_reason(error: &LockError) -> bool {
    const MAX_REASONS: usize = 16;
    static REASONS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    reasons.len() < MAX_REASONS && reasons.insert(error.to_string())
}

/// Returns true if a minute has passed since the `last` event about another program's key, or about
/// a clash. Without this limit, a client that chooses the names could fill the log.
fn is_due(last: &Mutex<Option<Instant>>) -> bool {
    const EVERY: Duration = Duration::from_secs(60);
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|last| last.elapsed() >= EVERY);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// Returns the default status of refusals with this cause. `has_begun` is true if the handler may
/// have done something, which matters only for [`Cause::Lost`].
fn default_status(cause: Cause, has_begun: bool) -> StatusCode {
    match cause {
        // Gateways repeat a 503, even for a POST, and the handler would begin twice.
        Cause::Lost if has_begun => StatusCode::INTERNAL_SERVER_ERROR,
        Cause::Busy => StatusCode::LOCKED,
        Cause::LimitReached | Cause::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        // Not a lack of room: a retry would displace the newer request.
        Cause::Superseded => StatusCode::CONFLICT,
        Cause::BodyLimit => StatusCode::PAYLOAD_TOO_LARGE,
        Cause::WaitTooLong
        | Cause::ReadAheadFull
        | Cause::ConnectionFull
        | Cause::Unavailable
        | Cause::Lost => StatusCode::SERVICE_UNAVAILABLE,
        Cause::BodyFailed | Cause::BadKey | Cause::KeySpelling => StatusCode::BAD_REQUEST,
        Cause::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.format {
            Format::Problem => "problem+json",
            Format::Grpc(_) => "grpc",
            Format::Closure(_) => "..",
        };
        f.debug_struct("Refusals")
            .field("format", &format)
            .field("statuses", &self.statuses)
            .finish()
    }
}
