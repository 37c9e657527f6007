//! The service that the layer for HTTP makes.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use crate::answers::Answers;
use crate::body::LockBody;
use crate::carry::InExtensions;
use crate::config::Config;
use crate::http_future::HttpLockFuture;
use crate::key::ExtractKey;
use crate::reject::Provisional;
use crate::request_body::RequestBody;
use crate::section::Section;

/// An HTTP service behind a lock; made by [`HttpLockLayer`](crate::HttpLockLayer).
///
/// It is always ready: the inner service is made ready *after* the lock is had, so that those who wait for one key
/// occupy none of its capacity.
pub struct HttpLock<S, K> {
    inner: S,
    config: Arc<Config>,
    key: Arc<K>,
    answers: Arc<Answers>,
}

impl<S, K> HttpLock<S, K> {
    pub(crate) fn new(inner: S, config: Arc<Config>, key: Arc<K>, answers: Arc<Answers>) -> Self {
        Self { inner, config, key, answers }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, B, R> Service<Request<B>> for HttpLock<S, K>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    K: ExtractKey<Request<B>>,
    B: Body,
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<LockBody<R>>;
    type Error = S::Error;
    type Future = HttpLockFuture<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let keys = match self.answers.passes_all {
            true => Ok(None),
            false => self.key.extract_key(&request),
        };
        let outlives: fn(&Response<R>) -> bool = match self.answers.hold_until_body_end {
            true => |response| {
                !response.body().is_end_stream()
                    && response.extensions().get::<Provisional>().is_none()
            },
            false => |_| false,
        };
        let answers = match keys {
            Ok(None) => None,
            _ => Some(self.answers.of_request(request.headers())),
        };
        let request = request.map(RequestBody::open);
        let section =
            Section::begin(&mut self.inner, request, keys, &self.config, InExtensions, outlives);
        HttpLockFuture::new(section, answers)
    }
}

impl<S: Clone, K> Clone for HttpLock<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            key: Arc::clone(&self.key),
            answers: Arc::clone(&self.answers),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for HttpLock<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLock")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
