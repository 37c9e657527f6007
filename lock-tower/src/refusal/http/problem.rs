//! A refusal as `application/problem+json` (RFC 9457), and `Retry-After`.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::refusal::LockError;

pub(crate) fn response(status: StatusCode, error: &LockError) -> Response<Bytes> {
    problem(status, error.cause().code(), &detail(error), error.retry_after())
}

/// Makes a response in the format of this crate's refusals, `application/problem+json` ([RFC
/// 9457](https://www.rfc-editor.org/rfc/rfc9457)). `detail` is a sentence for the client. `code` is
/// an identifier for programs, and is not escaped. `hint` is how long to wait before a retry.
///
/// `Retry-After` is the hint in whole seconds, at least one, plus up to the same amount at random,
/// so that clients refused together do not retry together. Without a hint the header is omitted.
/// For layers that refuse in the same format as this crate.
///
/// ```
/// use std::time::Duration;
/// use http::StatusCode;
///
/// let hint = Some(Duration::from_secs(2));
/// let response =
///     lock_tower::refusal::problem(StatusCode::CONFLICT, "seat-taken", "The seat is taken.", hint);
/// let after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
/// assert!((2..=4).contains(&after));
/// assert!(response.body().ends_with(br#""code":"seat-taken"}"#));
/// ```
pub fn problem(
    status: StatusCode,
    code: &str,
    detail: &str,
    hint: Option<Duration>,
) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{},"detail":"{}","code":"{code}"}}"#,
        status.as_u16(),
        escape(detail),
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(hint) = hint {
        headers.insert(RETRY_AFTER, HeaderValue::from(retry_after(hint)));
    }
    response
}

/// Returns the text for the client, without the key, the store error, or mistakes that only the
/// developer can fix.
pub(crate) fn detail(error: &LockError) -> Cow<'static, str> {
    match error.key_error() {
        Some(key) => key.to_string().into(),
        None => error.cause().sentence().into(),
    }
}

/// Returns the value of `Retry-After`: the hint in seconds, rounded up and at least one, plus a
/// random part. The hint is limited, so that the sum does not overflow.
fn retry_after(hint: Duration) -> u64 {
    jittered(hint.as_millis().div_ceil(1000).clamp(1, u32::MAX.into()) as u64)
}

/// Returns `wait` plus up to the same amount at random, so that clients refused together do not
/// retry together.
pub(crate) fn jittered(wait: u64) -> u64 {
    // `RandomState` has random keys, which is random enough here.
    wait + RandomState::new().hash_one(wait) % (wait + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_rounds_up_is_at_least_one_and_varies() {
        let after = |ms| retry_after(Duration::from_millis(ms));
        let seen: std::collections::BTreeSet<_> = (0..200).map(|_| after(2_500)).collect();
        assert_eq!(seen, [3, 4, 5, 6].into());
        assert!((0..50).all(|_| (1..=2).contains(&after(0))));
        assert!((0..50).all(|_| (1..=2).contains(&after(1))));
    }

    #[test]
    fn a_huge_hint_is_no_overflow() {
        for hint in [Duration::from_secs(u64::MAX), Duration::MAX] {
            assert!(retry_after(hint) >= u64::from(u32::MAX), "{hint:?}");
        }
    }

    #[test]
    fn a_detail_cannot_break_out_of_its_string() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\u000ad");
    }
}
