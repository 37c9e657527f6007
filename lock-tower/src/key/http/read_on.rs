//! Reads for some HTTP methods, writes for all others.

use http::{Method, Request};

use crate::key::mode::{Form, Mode};
use crate::key::{ExtractKey, KeyError, Keys};

/// Reads for some methods and writes for all others; made by
/// [`read_on`](crate::ExtractKeyExt::read_on).
#[derive(Debug, Clone)]
pub struct ReadOn<E> {
    methods: Vec<Method>,
    read: Mode,
    write: Mode,
    extractor: E,
}

impl<E> ReadOn<E> {
    #[track_caller]
    pub(crate) fn new(methods: impl IntoIterator<Item = Method>, extractor: E) -> Self {
        let (read, write) = (Mode::here(Form::Read), Mode::here(Form::Write));
        Self { methods: methods.into_iter().collect(), read, write, extractor }
    }
}

impl<B, E: ExtractKey<Request<B>>> ExtractKey<Request<B>> for ReadOn<E> {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        let mode = match self.methods.contains(request.method()) {
            true => self.read,
            false => self.write,
        };
        Ok(self.extractor.extract_key(request)?.map(|keys| keys.in_mode(mode)))
    }
}
