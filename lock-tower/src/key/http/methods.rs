//! An extractor for requests with selected HTTP methods.

use http::{Method, Request};

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor that locks only requests with selected HTTP methods; made by
/// [`methods`](crate::ExtractKeyExt::methods).
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ForMethods<E> {
    methods: Vec<Method>,
    extractor: E,
}

impl<E> ForMethods<E> {
    /// Creates an extractor that returns the keys of `extractor` for requests with these `methods`,
    /// and no key for all others.
    pub fn new(methods: impl IntoIterator<Item = Method>, extractor: E) -> Self {
        Self { methods: methods.into_iter().collect(), extractor }
    }
}

impl<B, E: ExtractKey<Request<B>>> ExtractKey<Request<B>> for ForMethods<E> {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        if !self.methods.contains(request.method()) {
            return Ok(None);
        }
        self.extractor.extract_key(request)
    }
}
