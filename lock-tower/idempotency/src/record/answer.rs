//! `Answer`: a stored response, sent again to later requests.

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

/// The response header `idempotency-replayed`. The value `true` marks a stored response that is
/// sent again.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The response headers that are stored. Others are not, because `content-length` is computed
/// again, and `set-cookie`, `date` and the connection headers belong to a single response.
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

/// A response as it is stored: status, some headers, and body.
///
/// The stored headers are `content-type`, `content-language`, `content-disposition`,
/// `content-location`, `location`, `etag`, `last-modified`, `link`, `vary`, `cache-control` and
/// `retry-after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Creates the stored form from a response's head and complete body. Headers that are not
    /// stored are left out.
    pub fn new(parts: &Parts, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        for name in &KEPT {
            for value in parts.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        Self { status: parts.status, headers, body }
    }

    /// Returns the response status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the stored headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the response body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Creates the response to a later request, with the additional header `Idempotency-Replayed:
    /// true`.
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}
