//! The office's own refusals, in the same format as lock refusals: `application/problem+json`.

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use lock_axum::LockError;
use serde_json::{Value, json};

use crate::database::DatabaseError;
use crate::say;

/// The maximum size of a response body for [`body_of`], in bytes: more than any refusal or ticket.
const MAX_BODY: usize = 64 << 10;

/// A refused request, with a code for programs and a sentence for people.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    pub(crate) fn no_such_seat() -> Self {
        Self::new(StatusCode::NOT_FOUND, "seat-unknown", "The seat does not exist.")
    }

    pub(crate) fn bad_order(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "order-invalid", detail)
    }
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        say::trouble(format_args!("database error: {error}"));
        let detail = "The database is unavailable now. Try again.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "database-unavailable", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        let mut response = (self.status, body.to_string()).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

/// Returns the response for a lock error. It is the same as from the lock layer.
pub(crate) fn of_locks(error: impl Into<LockError>) -> Response {
    error.into().into_response()
}

/// Returns the body of a response as JSON, for an event that stands for the response. An event has
/// no headers, so `Retry-After` becomes the field `retry_after`, in seconds.
pub(crate) async fn body_of(response: Response) -> Value {
    let after = response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok());
    let after: Option<u64> = after.and_then(|seconds| seconds.parse().ok());
    let body = to_bytes(response.into_body(), MAX_BODY).await.unwrap_or_default();
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let (Some(after), Some(body)) = (after, body.as_object_mut()) {
        body.insert("retry_after".into(), after.into());
    }
    body
}
