//! The service that the scope layer makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use crate::answers::Answers;
use crate::body::LockBody;
use crate::config::Config;
use crate::read_ahead::is_needed;
use crate::request_body::{PollAhead, RequestBody};
use crate::scope::{RequestLocks, Scope};
use crate::scope_future::LockScopeFuture;

/// An HTTP service whose requests may take locks; made by [`LockScopeLayer`](crate::LockScopeLayer).
#[derive(Debug, Clone)]
pub struct LockScope<S> {
    inner: S,
    config: Arc<Config>,
    answers: Arc<Answers>,
}

impl<S> LockScope<S> {
    pub(crate) fn new(inner: S, config: Arc<Config>, answers: Arc<Answers>) -> Self {
        Self { inner, config, answers }
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

impl<S, B, R> Service<Request<B>> for LockScope<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<LockBody<R>>;
    type Error = S::Error;
    type Future = LockScopeFuture<S::Future, Response<R>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answers = self.answers.of_request(request.headers());
        let (parts, body) = request.into_parts();
        let (body, ahead) = match is_needed(parts.version, &body) {
            true => {
                let (body, shared) = RequestBody::shared(body, &answers.read_ahead);
                (body, Some(shared as Arc<dyn PollAhead>))
            }
            false => (RequestBody::open(body), None),
        };
        let scope = Scope::new(&self.config, answers, ahead);
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(RequestLocks::new(Arc::clone(&scope)));
        LockScopeFuture::new(self.inner.call(request), scope)
    }
}
