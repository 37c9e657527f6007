//! Refusals by the dashboard, as a page or as problem+json.

use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use lockcore::LockError;
use maud::html;
use serde_json::json;

use super::form::Form;
use super::page::{Page, Parts, frame, secured};

/// A refused request, with a code for programs and a sentence for people.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    sentence: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, sentence: impl Into<String>) -> Self {
        Self { status, code, sentence: sentence.into() }
    }

    /// Creates a refusal from a lock error, such as an invalid name, with the status and code that
    /// the lock layers use.
    pub(super) fn of_lock(error: LockError) -> Self {
        let sentence = error.to_string();
        let error = lock_tower::LockError::from(error);
        Self { status: error.status(), code: error.cause().code(), sentence }
    }

    /// Returns the refusal as a page or, for JSON and for event streams, as problem+json.
    pub(super) fn into_response(self, form: Form) -> Response {
        let Self { status, code, sentence } = self;
        if form == Form::Html {
            let notes = html! { p.trouble role="alert" { (sentence) } p.soft { (code) } };
            let parts = Parts { notes: Some(notes), ..Parts::default() };
            let page = frame(Page::Refusal, "Request refused", parts);
            return (status, page).into_response();
        }
        let body = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": sentence,
            "code": code,
        });
        let mut headers = secured("application/json", "no-store");
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        (status, headers, body.to_string()).into_response()
    }
}
