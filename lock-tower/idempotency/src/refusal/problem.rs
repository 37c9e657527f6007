//! A refusal as `application/problem+json` (RFC 9457), and its `Retry-After`.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};

use crate::refusal::Refusal;

pub(crate) fn response(refusal: &Refusal) -> Response<Bytes> {
    let status = refusal.status();
    let body = format!(
        r#"{{"type":"about:blank","title":"{}","status":{},"detail":"{}","code":"{}"}}"#,
        status.canonical_reason().unwrap_or("Refused"),
        status.as_u16(),
        escape(refusal.detail()),
        refusal.cause().code(),
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(hint) = refusal.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(jittered(hint.as_secs().max(1))));
    }
    response
}

/// Adds up to as much again, so that clients that were refused together do not return together.
fn jittered(seconds: u64) -> u64 {
    // Its keys are random, which is as much chance as this needs.
    seconds + RandomState::new().hash_one(seconds) % (seconds + 1)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            c if c.is_control() => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
