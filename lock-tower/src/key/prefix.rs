//! An extractor that puts a prefix before every key.

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor that puts `prefix:` before every key of another extractor; made by
/// [`prefix`](crate::ExtractKeyExt::prefix).
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct Prefixed<E> {
    prefix: String,
    extractor: E,
}

impl<E> Prefixed<E> {
    /// Creates an extractor that puts `prefix:` before every key of `extractor`. See
    /// [`prefix`](crate::ExtractKeyExt::prefix) for the rules.
    pub fn new(prefix: impl Into<String>, extractor: E) -> Self {
        let mut prefix = prefix.into();
        if prefix.ends_with(':') {
            prefix.pop();
        }
        Self { prefix, extractor }
    }
}

impl<Req, E: ExtractKey<Req>> ExtractKey<Req> for Prefixed<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        // Prefix `a` with name `b:c` would equal prefix `a:b` with name `c`.
        if self.prefix.is_empty() || self.prefix.contains(':') {
            return Err(KeyError::misuse(format!(
                "The prefix {:?} is empty or has a colon, so its keys could collide with the keys \
                 of another prefix: use a prefix without colons, such as `shop/order`.",
                self.prefix
            )));
        }
        self.extractor.extract_key(request)?.map(|keys| keys.prefixed(&self.prefix)).transpose()
    }
}
