//! The responses of refusals in HTTP: a status and a body, or a closure's response.

#[cfg(feature = "axum")]
mod axum;
mod grpc;
pub(crate) mod problem;

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use lockcore::LockErrorKind;

use crate::refusal::http::grpc::Dialect;
use crate::refusal::{Cause, LockError};

/// The rendering of refusals as responses. [`HttpLockLayer`](crate::HttpLockLayer) has the same
/// methods.
///
/// | cause | status | `Retry-After` | gRPC |
/// |---|---|---|---|
/// | [`Busy`](Cause::Busy) | 423 Locked | yes | UNAVAILABLE |
/// | [`LimitReached`](Cause::LimitReached) | 429 Too Many Requests | yes | RESOURCE_EXHAUSTED |
/// | [`QueueFull`](Cause::QueueFull) | 429 Too Many Requests | yes | RESOURCE_EXHAUSTED |
/// | [`WaitTooLong`](Cause::WaitTooLong) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`Superseded`](Cause::Superseded) | 409 Conflict | no: the newer one is served | ABORTED |
/// | [`BodyLimit`](Cause::BodyLimit) | 413 Content Too Large | yes | RESOURCE_EXHAUSTED |
/// | [`ReadAheadFull`](Cause::ReadAheadFull) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`BodyFailed`](Cause::BodyFailed) | 400 Bad Request | no: the client is gone, mostly | CANCELLED |
/// | [`ConnectionFull`](Cause::ConnectionFull) | 503 Service Unavailable | yes | UNAVAILABLE |
/// | [`Unavailable`](Cause::Unavailable) | 503 Service Unavailable | where it may pass by itself | UNAVAILABLE |
/// | [`Lost`](Cause::Lost), once the handler has begun | 500 Internal Server Error | no: the effects are unknown | ABORTED |
/// | [`Lost`](Cause::Lost), before it | 503 Service Unavailable | no | ABORTED |
/// | [`BadKey`](Cause::BadKey) | 400 Bad Request | no | INVALID_ARGUMENT |
/// | [`KeySpelling`](Cause::KeySpelling) | 400 Bad Request | no | INVALID_ARGUMENT |
/// | [`Misconfigured`](Cause::Misconfigured) | 500 Internal Server Error | no | INTERNAL |
///
/// The body is `application/problem+json` ([RFC 9457]) with a member `code` that never changes, and
/// without the key:
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
pub struct Refusals {
    format: Format,
    /// A list, since there are few.
    statuses: Vec<(Cause, StatusCode)>,
}

#[derive(Clone, Default)]
enum Format {
    #[default]
    Problem,
    Grpc(Dialect),
    Closure(Closure),
}

type Closure = Arc<dyn Fn(&LockError) -> Response<Bytes> + Send + Sync>;

impl Refusals {
    /// Refusals as in the table, as problem+json.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets another status for one cause. It has no effect with [`grpc`](Self::grpc), where the
    /// status is 200, or with [`respond_with`](Self::respond_with).
    pub fn status(mut self, cause: Cause, status: StatusCode) -> Self {
        self.statuses.retain(|(other, _)| *other != cause);
        self.statuses.push((cause, status));
        self
    }

    /// Refuses in gRPC's format: status 200, and [`grpc_trailers`](LockError::grpc_trailers) in the
    /// headers, or at the end of a body whose hold is lost while it is sent. A layer that sees a
    /// request of gRPC-Web refuses it in that request's format, with the trailers in the body.
    pub fn grpc(mut self) -> Self {
        self.format = Format::Grpc(Dialect::Grpc);
        self
    }

    /// The last frame of a body that ends early, if the format can name the error.
    pub(crate) fn last_frame<D: From<Bytes>>(&self, error: &LockError) -> Option<Frame<D>> {
        match &self.format {
            Format::Grpc(dialect) => Some(dialect.last_frame(error)),
            Format::Problem | Format::Closure(_) => None,
        }
    }

    /// The refusals for a request with these headers, if they differ from those of other requests.
    pub(crate) fn of_request(&self, headers: &HeaderMap) -> Option<Self> {
        let Format::Grpc(_) = self.format else { return None };
        let format = Format::Grpc(Dialect::web(headers)?);
        Some(Self { format, statuses: self.statuses.clone() })
    }

    /// Refuses with responses of your own.
    pub fn respond_with<F>(mut self, respond: F) -> Self
    where
        F: Fn(&LockError) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.format = Format::Closure(Arc::new(respond));
        self
    }

    /// The status for a cause; for [`Cause::Lost`], that of a hold that is lost once the handler
    /// has begun.
    pub fn status_of(&self, cause: Cause) -> StatusCode {
        self.changed(cause).unwrap_or_else(|| default_status(cause, true))
    }

    fn changed(&self, cause: Cause) -> Option<StatusCode> {
        self.statuses.iter().find(|(other, _)| *other == cause).map(|(_, status)| *status)
    }

    fn status_for(&self, error: &LockError) -> StatusCode {
        let cause = error.cause();
        self.changed(cause).unwrap_or_else(|| default_status(cause, error.has_begun()))
    }

    /// The response for an error, with the error in its extensions. An
    /// [`Misconfigured`](Cause::Misconfigured) error is logged at `error`, since its response hides
    /// the mistake; at `warn` and once a minute if the name is that of another program's key.
    pub fn respond(&self, error: &LockError) -> Response<Bytes> {
        log(error);
        self.render(error)
    }

    /// The response of a refusal that an inner service left to the layers outside to render.
    pub(crate) fn rendered<B>(&self, response: &Response<B>) -> Option<Response<Bytes>> {
        response.extensions().get::<Provisional>()?;
        response.extensions().get().map(|error| self.render(error))
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

/// Marks a response that the next layer outside renders by its own refusals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provisional;

impl LockError {
    /// The status that the layer has for the cause. Where the layer is not known, that of
    /// [`Refusals::new`]. The response has another one if the layer refuses in [gRPC's
    /// format](Refusals::grpc), where the status is 200, or with [responses of its
    /// own](Refusals::respond_with).
    pub fn status(&self) -> StatusCode {
        match &self.response_options {
            Some(response_options) => response_options.refusals.status_for(self),
            None => default_status(self.cause(), self.has_begun()),
        }
    }

    /// A response for handlers. The error of [`RequestLocks`](crate::RequestLocks) is rendered by
    /// its layer's refusals. Any other is rendered by the layer outside ([`HttpLockLayer`] or
    /// [`LockScopeLayer`]); without a layer it is problem+json. An
    /// [`Misconfigured`](Cause::Misconfigured) error is logged at `error`.
    ///
    /// [`HttpLockLayer`]: crate::HttpLockLayer
    /// [`LockScopeLayer`]: crate::LockScopeLayer
    pub fn to_response(&self) -> Response<Bytes> {
        if let Some(response_options) = &self.response_options {
            return response_options.refusals.respond(self);
        }
        let mut response = Refusals::new().respond(self);
        response.extensions_mut().insert(Provisional);
        response
    }
}

fn log(error: &LockError) {
    if error.cause() != Cause::Misconfigured {
        return;
    }
    if error.kind() == LockErrorKind::WrongType {
        if !is_warning_due() {
            return;
        }
        tracing::warn!(
            %error,
            "a request names a key of another program: it is refused, and the key is \
             unchanged (said once a minute). If clients choose the name, give the keys a prefix of \
             their own"
        );
    } else {
        tracing::error!(%error, "the locks are not set up correctly");
    }
    // The response hides the reason: without a subscriber it would be nowhere.
    static SAID: Once = Once::new();
    if !tracing::dispatcher::has_been_set() {
        SAID.call_once(|| {
            // The service goes on if there is no stderr.
            let _ = writeln!(
                std::io::stderr(),
                "lock-tower: the locks are not set up correctly: {error} (said once; a `tracing` \
                 subscriber shows each refusal)"
            );
        });
    }
}

/// Whether a minute has passed since the last warning of another program's key: a client that may
/// choose names could fill the log with them.
fn is_warning_due() -> bool {
    const EVERY: Duration = Duration::from_secs(60);
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|last| last.elapsed() >= EVERY);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// The status by default; `has_begun`: the handler may have done something.
fn default_status(cause: Cause, has_begun: bool) -> StatusCode {
    match cause {
        // Gateways repeat a 503, also of a POST, and the handler would begin twice.
        Cause::Lost if has_begun => StatusCode::INTERNAL_SERVER_ERROR,
        Cause::Busy => StatusCode::LOCKED,
        Cause::LimitReached | Cause::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        // Not a refusal for want of room: the same request again would drop the newer one.
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
