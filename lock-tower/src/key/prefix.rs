//! A prefix before every name.

use crate::key::{ExtractKey, KeyError, Keys};

/// Puts `prefix:` before every name of another extractor; made by [`prefix`](crate::ExtractKeyExt::prefix).
#[derive(Debug, Clone)]
pub struct Prefixed<E> {
    prefix: String,
    extractor: E,
}

impl<E> Prefixed<E> {
    /// `prefix:` before what `extractor` says.
    pub fn new(prefix: impl Into<String>, extractor: E) -> Self {
        Self { prefix: prefix.into(), extractor }
    }
}

impl<Req, E: ExtractKey<Req>> ExtractKey<Req> for Prefixed<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        self.extractor.extract_key(request)?.map(|keys| keys.prefixed(&self.prefix)).transpose()
    }
}
