//! An extractor that takes read locks for requests with selected HTTP methods.

use http::{Method, Request};
use lockcore::Demand;

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor that takes read locks for requests with selected HTTP methods, and exclusive locks
/// for all others; made by [`read_on`](crate::ExtractKeyExt::read_on).
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ReadOn<E> {
    methods: Vec<Method>,
    extractor: E,
}

impl<E> ReadOn<E> {
    pub(crate) fn new(methods: impl IntoIterator<Item = Method>, extractor: E) -> Self {
        Self { methods: methods.into_iter().collect(), extractor }
    }
}

impl<B, E: ExtractKey<Request<B>>> ExtractKey<Request<B>> for ReadOn<E> {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        let demand = match self.methods.contains(request.method()) {
            true => Demand::READ,
            false => Demand::EXCLUSIVE,
        };
        Ok(self.extractor.extract_key(request)?.map(|keys| keys.demand(demand)))
    }
}
