//! A key from a request header.

use http::Request;
use http::header::HeaderName;

use crate::key::{ExtractKey, KeyError, Keys};

/// A header value, unchanged. Refuses (400) a value that is not visible ASCII, empty, or longer
/// than 512 bytes, and a repeated header: the handler might read the other value.
///
/// ```
/// use lock_tower::{ByHeader, ExtractKey};
///
/// let extractor = ByHeader::new("idempotency-key");
/// let request = http::Request::builder().header("idempotency-key", "8e03978e").body(()).unwrap();
/// assert!(extractor.extract_key(&request).unwrap().is_some());
///
/// let without = http::Request::new(());
/// assert!(extractor.extract_key(&without).is_err());
/// assert!(extractor.optional().extract_key(&without).unwrap().is_none());
/// ```
#[derive(Debug, Clone)]
pub struct ByHeader {
    name: HeaderName,
    is_optional: bool,
}

impl ByHeader {
    /// Reads the header with this name; a request without it is refused (400).
    ///
    /// # Panics
    /// Panics if `name` has an upper case letter or is not a valid header name.
    pub fn new(name: &'static str) -> Self {
        Self { name: HeaderName::from_static(name), is_optional: false }
    }

    /// Lets requests without the header pass without a lock. Then a client that omits the header is
    /// not serialized.
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }
}

impl<B> ExtractKey<Request<B>> for ByHeader {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        let mut values = request.headers().get_all(&self.name).iter();
        match (values.next(), values.next()) {
            (None, _) if self.is_optional => Ok(None),
            (None, _) => Err(KeyError::new(format!("the header {} is missing", self.name))),
            (Some(value), None) => match value.to_str() {
                Ok(value) => Ok(Some(Keys::one(value))),
                Err(_) => {
                    Err(KeyError::new(format!("the header {} is not visible ASCII", self.name)))
                }
            },
            _ => Err(KeyError::new(format!("the header {} occurs more than once", self.name))),
        }
    }
}
