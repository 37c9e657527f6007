//! Extractors and fallback handlers that refuse a request in the format that it accepts.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::form::Form;
use super::refusal::Refusal;

/// An extractor for query parameters as a `T`. Refuses invalid parameters in the format that the
/// request accepts: as a page or as problem+json.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        let Ok(form) = Form::from_request_parts(parts, &()).await;
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(options)) => Ok(Self(options)),
            Err(refused) => Err(unreadable(refused.status(), refused.body_text(), form)),
        }
    }
}

/// An extractor for the fields in a submitted form as a `T`. Refuses invalid fields in the format
/// that the request accepts: as a page or as problem+json.
#[derive(Debug)]
pub(super) struct Fields<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Fields<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(form) = Form::from_request_parts(&mut parts, &()).await;
        match axum::Form::from_request(Request::from_parts(parts, body), state).await {
            Ok(axum::Form(fields)) => Ok(Self(fields)),
            Err(refused) => Err(unreadable(refused.status(), refused.body_text(), form)),
        }
    }
}

/// Returns the refusal of a request whose query parameters or form fields cannot be parsed.
/// `sentence` says why.
fn unreadable(status: StatusCode, sentence: String, form: Form) -> Response {
    Refusal::new(status, "request-unreadable", sentence).into_response(form)
}

/// Handles a request for a path without a page, with 404.
pub(super) async fn no_page(form: Form) -> Response {
    let sentence = "The dashboard has no page at this path.";
    Refusal::new(StatusCode::NOT_FOUND, "page-unknown", sentence).into_response(form)
}

/// Handles a request with a method that the page does not support, with 405.
pub(super) async fn no_method(form: Form) -> Response {
    let sentence = "The page does not support this method.";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method-unknown", sentence).into_response(form)
}
