//! `Idempotency`: the service made by the layer, which runs the inner service once for each key.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use lockcore::LockOptions;
use tower::{BoxError, Layer as _, Service, ServiceExt as _, service_fn};
use tracing::Instrument as _;

use crate::config::Config;
use crate::fingerprint::Fingerprint;
use crate::future::IdempotencyFuture;
use crate::key::IdempotencyKey;
use crate::observe;
use crate::queue::wait_in_queue;
use crate::record::key::RecordKey;
use crate::refusal::{Cause, Refusal};
use crate::request_body::ReadBody;
use crate::response_body::{AnswerBody, ResponseBody};
use crate::work::{Keyed, Work};

/// Options that replace a limit of the hold, set for the layer or as a default of the `Locks`. At
/// the end of such a hold, the next request with the key would run the handler beside this one.
const WHOLE_RUN: LockOptions = LockOptions::new().renewed().max_hold(Duration::MAX);

/// An HTTP service that runs the inner service once for each idempotency key; made by
/// [`IdempotencyLayer`](crate::IdempotencyLayer).
///
/// `poll_ready` always returns ready. For a request with a key, the inner service is polled for
/// readiness only after the lock is granted.
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Error: Into<BoxError>> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = IdempotencyFuture<S, B, R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.config.methods.contains(request.method()) {
            return IdempotencyFuture::passing(self.inner.clone(), request);
        }
        match IdempotencyKey::of(request.headers(), &self.config.header) {
            Ok(Some(key)) => {
                let (inner, config) = (self.inner.clone(), Arc::clone(&self.config));
                IdempotencyFuture::keyed(serve(inner, config, key, request))
            }
            Ok(None) if self.config.is_required => self.refuse(Refusal::new(Cause::KeyMissing)),
            Ok(None) => IdempotencyFuture::passing(self.inner.clone(), request),
            Err(reason) => self.refuse(Refusal::with_detail(Cause::KeyInvalid, reason)),
        }
    }
}

impl<S> Idempotency<S> {
    fn refuse<B, R>(&self, refusal: Refusal) -> IdempotencyFuture<S, B, R>
    where
        S: Service<Request<ReadBody<B>>, Response = Response<R>>,
        R: Body<Error: Into<BoxError>>,
    {
        IdempotencyFuture::refused(self.config.refuse(&refusal))
    }
}

/// Serves a request with a key in a scope of lock-tower: reads the body, waits in the queue for the
/// lock, and runs the handler or returns the stored response. Returns `Err` only if the inner
/// service fails.
async fn serve<S, B, R>(
    inner: S,
    config: Arc<Config>,
    key: IdempotencyKey,
    request: Request<B>,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Error: Into<BoxError>> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let (parts, body) = request.into_parts();
    let record = match record_key(&config, &parts, &key) {
        Ok(record) => record,
        Err(refusal) => return Ok(config.refuse(&refusal).map(ResponseBody::whole)),
    };
    let span = observe::span(&record);
    // The scope reads the deadline, the trace and the connection from the request head, and renders
    // refusals by the lock. It is outside the reading of the body, so that the deadline is counted
    // from the head, and does not get the body, which this layer reads itself.
    let locking = config.locking.clone().options(WHOLE_RUN);
    let mut unread = Some((inner, config, key, body));
    let line = locking.layer(service_fn(move |request: Request<_>| {
        let unread = unread.take().expect("a scope calls its service once for each call");
        async move {
            let (inner, config, key, body) = unread;
            let (parts, _) = request.into_parts();
            let body = match config.read.read(body).await {
                Ok(body) => body,
                Err(refusal) => return Ok(config.refuse(&refusal).map(AnswerBody::whole)),
            };
            let fingerprint = Fingerprint::new(&parts, &body.data);
            let keyed = Keyed { config, key: key.0.into(), record, fingerprint };
            wait_in_queue::<S, B, R>(Work { inner, body, keyed }, parts).await
        }
    }));
    let serving = line.oneshot(Request::from_parts(parts, String::new())).instrument(span);
    Ok(serving.await?.map(ResponseBody::keyed))
}

/// Returns the record name for a request with this key. Returns `Err` if the scope function refuses
/// the request, or returns a scope with an empty part.
fn record_key(config: &Config, parts: &Parts, key: &IdempotencyKey) -> Result<RecordKey, Refusal> {
    let scope = (config.scope)(parts)?;
    match scope.has_empty_part() {
        true => Err(Refusal::new(Cause::Misconfigured)),
        false => Ok(RecordKey::new(&scope, &key.0).in_namespace(config.namespace.as_deref())),
    }
}

impl Config {
    /// Returns the response for a refusal, and records the refusal in the span and the metrics.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Response<bytes::Bytes> {
        observe::refused(refusal);
        let mut response = (self.responds)(refusal);
        response.extensions_mut().insert(refusal.clone());
        response
    }

    /// Returns the response for a refusal with this cause, and records the refusal, as
    /// [`refuse`](Self::refuse) does. For requests whose body has been read, because their response
    /// has an [`AnswerBody`].
    pub(crate) fn refuse_keyed<R>(&self, cause: Cause) -> Response<AnswerBody<R>> {
        self.refuse(&Refusal::new(cause)).map(AnswerBody::whole)
    }
}

impl<S: fmt::Debug> fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish()
    }
}
