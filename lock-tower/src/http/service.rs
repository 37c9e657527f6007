//! The service of `HttpLockLayer`.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use crate::config::Config;
use crate::http::body::LockBody;
use crate::http::extensions::InExtensions;
use crate::http::future::HttpLockFuture;
use crate::http::request_body::RequestBody;
use crate::http::respond::outlives;
use crate::http::response_options::ResponseOptions;
use crate::inner::inner;
use crate::key::ExtractKey;
use crate::lock::locking::Locking;

/// An HTTP service behind a lock; made by [`HttpLockLayer`](crate::HttpLockLayer).
///
/// This service is always ready. The inner service is made ready *after* the lock is acquired, so
/// that requests waiting for a key take no capacity from the inner service.
pub struct HttpLock<S, K> {
    inner: S,
    config: Arc<Config>,
    key: Arc<K>,
    response_options: Arc<ResponseOptions>,
}

impl<S, K> HttpLock<S, K> {
    pub(crate) fn new(
        inner: S,
        config: Arc<Config>,
        key: Arc<K>,
        response_options: Arc<ResponseOptions>,
    ) -> Self {
        Self { inner, config, key, response_options }
    }

    inner!();
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
        let keys = match self.response_options.passes_all {
            true => Ok(None),
            false => self.key.extract_key(&request),
        };
        let (mut parts, body) = request.into_parts();
        let keys =
            keys.map(|keys| keys.map(|keys| self.response_options.caller(&mut parts).apply(keys)));
        let response_options = match keys {
            Ok(None) => None,
            _ => Some(self.response_options.of_request(&parts.headers)),
        };
        let place = match response_options {
            Some(_) => self.response_options.place(parts.version, &parts.extensions),
            None => None,
        };
        let inner = &mut self.inner;
        let config = &self.config;
        let version = parts.version;
        let outlives = outlives(&self.response_options, &parts.method, version);
        let request = Request::from_parts(parts, RequestBody::open(body));
        let locking = Locking::new(inner, request, keys, config, InExtensions, place, outlives);
        HttpLockFuture::new(locking, response_options, version)
    }
}

impl<S: Clone, K> Clone for HttpLock<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            key: Arc::clone(&self.key),
            response_options: Arc::clone(&self.response_options),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for HttpLock<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLock")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .field("response_options", &self.response_options)
            .finish_non_exhaustive()
    }
}
