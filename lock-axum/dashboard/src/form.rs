//! The response format, taken from the `Accept` header.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::header::ACCEPT;
use http::request::Parts;

/// The format of a response: the first supported format in the request's `Accept` header, HTML by
/// default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Html,
    Json,
    /// Server-sent events (`text/event-stream`), which update an open page.
    Events,
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let accepted = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds = accepted.flat_map(|value| value.split(','));
        let form = kinds.find_map(|kind| match kind.split(';').next().unwrap_or_default().trim() {
            "text/html" => Some(Self::Html),
            "application/json" => Some(Self::Json),
            "text/event-stream" => Some(Self::Events),
            _ => None,
        });
        Ok(form.unwrap_or(Self::Html))
    }
}
