//! An answer that is kept, and sent again.

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

/// The header that tells a client that an answer was sent before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The headers of an answer that are kept. `content-length` is made anew; `set-cookie`, `date` and
/// the headers of a connection belong to one response.
const KEPT: [HeaderName; 11] = [
    header::CONTENT_TYPE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LOCATION,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::VARY,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
];

/// The answer of a handler, as it is kept: its status, some of its headers, and its body.
///
/// Kept are `content-type`, `content-language`, `content-disposition`, `content-location`,
/// `location`, `etag`, `last-modified`, `link`, `vary`, `cache-control` and `retry-after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The part of a response that is kept.
    pub fn new(parts: &Parts, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        for name in &KEPT {
            for value in parts.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        Self { status: parts.status, headers, body }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The kept headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The response for a later request, with `Idempotency-Replayed: true`.
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}
