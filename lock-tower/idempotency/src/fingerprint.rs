//! The fingerprint of a request, which detects the reuse of a key for another request.

use std::fmt;

use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::digest::{FieldDigest, write_hex};

/// The SHA-256 of a request's method, path with query, `Content-Type` and body. The layer compares
/// it with the stored fingerprint, to detect a key that is reused for another request. Nobody can
/// make two different requests with the same fingerprint.
///
/// Bodies are compared byte by byte: the same JSON with different whitespace is another request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint from the request head and body.
    pub fn new(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = FieldDigest::new("lock-idempotency request 1");
        digest.field(parts.method.as_str().as_bytes());
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        digest.field(path.as_bytes());
        let types = parts.headers.get_all(CONTENT_TYPE);
        digest.number(types.iter().count());
        types.iter().for_each(|value| digest.field(value.as_bytes()));
        digest.field(body);
        Self(digest.finish())
    }

    /// Creates a fingerprint from stored bytes, which [`as_bytes`](Self::as_bytes) has returned.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the hash, to be stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
