//! The service of `LockScopeLayer`.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use crate::config::Config;
use crate::hold::section::Section;
use crate::http::body::LockBody;
use crate::http::read_ahead::Beyond;
use crate::http::request_body::{PollAhead, RequestBody};
use crate::http::request_locks::Scope;
use crate::http::respond::outlives;
use crate::http::response_options::ResponseOptions;
use crate::inner::inner;
use crate::scope::future::LockScopeFuture;

/// An HTTP service whose extractors and handlers may acquire locks; made by
/// [`LockScopeLayer`](crate::LockScopeLayer).
#[derive(Debug, Clone)]
pub struct LockScope<S> {
    inner: S,
    config: Arc<Config>,
    response_options: Arc<ResponseOptions>,
}

impl<S> LockScope<S> {
    pub(crate) fn new(
        inner: S,
        config: Arc<Config>,
        response_options: Arc<ResponseOptions>,
    ) -> Self {
        Self { inner, config, response_options }
    }

    inner!();
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
        let response_options = self.response_options.of_request(request.headers());
        let version = request.version();
        let outlives = outlives(&response_options, request.method(), version);
        let (mut parts, body) = request.into_parts();
        let (body, ahead) = match body.is_end_stream() {
            true => (RequestBody::open(body), None),
            false => {
                let beyond = Beyond::of(parts.version);
                let bounds = &response_options.read_ahead;
                let (body, shared) = RequestBody::shared(body, bounds, beyond);
                (body, Some(shared as Arc<dyn PollAhead>))
            }
        };
        let options = Arc::clone(&response_options);
        let layer_holds = Scope::enter(&self.config, options, ahead.as_ref(), &mut parts);
        let future = self.inner.call(Request::from_parts(parts, body));
        let section = Section::new(future, layer_holds, outlives);
        LockScopeFuture::new(section, ahead, response_options, version)
    }
}
