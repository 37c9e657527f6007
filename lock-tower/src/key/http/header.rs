//! An extractor for a key from a request header.

use http::Request;
use http::header::HeaderName;

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor whose key is the unchanged value of a request header. A request is refused (400) if
/// the value is empty, longer than 512 bytes with its prefixes, or not visible ASCII. It is also
/// refused if the header is repeated, because the handler might read the other value.
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
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ByHeader {
    name: HeaderName,
    is_optional: bool,
}

impl ByHeader {
    /// Creates an extractor for the header with this name, in upper or lower case. A request
    /// without the header is refused (400).
    ///
    /// # Panics
    /// Panics if `name` is not a valid header name.
    #[track_caller]
    pub fn new(name: &'static str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a valid header name");
        Self { name, is_optional: false }
    }

    /// Lets requests without the header pass without a lock, instead of refusing them. A client
    /// that omits the header is then not serialized.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_header_has_no_case() {
        let request = Request::builder().header("x-order-id", "7").body(()).expect("valid");
        for name in ["x-order-id", "X-Order-Id", "X-ORDER-ID"] {
            assert!(ByHeader::new(name).extract_key(&request).is_ok_and(|keys| keys.is_some()));
        }
    }
}
