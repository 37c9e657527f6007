//! Dashboard refusals, as a page or as problem+json.

use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use lockcore::LockError;
use maud::html;
use serde_json::json;

use super::form::Form;
use super::page::{Page, Parts, frame, secured};

/// A refusal, with a code for programs and a sentence for people.
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

    /// Converts a store error or an invalid name, with the status and code used by the lock layers.
    pub(super) fn of_lock(error: LockError) -> Self {
        let sentence = error.to_string();
        let error = lock_tower::LockError::from(error);
        Self { status: error.status(), code: error.cause().code(), sentence }
    }

    /// Returns the response in this format. An event stream is refused as well: its client retries
    /// later.
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
