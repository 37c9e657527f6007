//! The layer for HTTP services.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, options};
use crate::error::{Cause, LockError};
use crate::http_service::HttpLock;
use crate::reject::Refusals;

/// Serves HTTP requests of one key one at a time, in order of arrival among all processes.
///
/// The error of the service stays as it is: refusals are responses, as [`Refusals`] has them. The handler finds
/// a [`LockHandle`](crate::LockHandle) in the request's extensions. A second layer on the same key within one
/// request shares the hold.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Method, Request, Response, StatusCode};
/// use http_body_util::Full;
/// use lock_tower::{ByPath, Cause, ExtractKeyExt, HttpLockLayer};
/// use lockcore::Locks;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let locks = Locks::in_memory(); // or Locks::connect("redis://127.0.0.1/").await?
/// let layer = HttpLockLayer::new(locks, ByPath::new().prefix("order").methods([Method::POST, Method::PUT]))
///     .wait(Duration::from_secs(5))
///     .queue_limit(20)
///     .status(Cause::Busy, StatusCode::CONFLICT);
///
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<String>| {
///     Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from("paid"))))
/// }));
/// let response = service.oneshot(Request::post("/orders/42/pay").body(String::new()).unwrap()).await?;
/// assert_eq!(response.status(), StatusCode::OK);
/// # Ok(())
/// # }
/// ```
#[must_use = "a layer does nothing until it is put on a service"]
pub struct HttpLockLayer<K> {
    config: Config,
    key: Arc<K>,
    answers: Answers,
}

/// What the layer does with responses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    pub(crate) refusals: Refusals,
    pub(crate) hold_until_body_end: bool,
    pub(crate) server_timing: bool,
}

impl<K> HttpLockLayer<K> {
    /// Locks what `key` says ([`ExtractKey`](crate::ExtractKey)), on `locks`.
    pub fn new(locks: Locks, key: K) -> Self {
        Self { config: Config::new(locks), key: Arc::new(key), answers: Answers::default() }
    }

    options!();

    /// Holds the lock until the server has taken the last frame of the response's body, instead of until the
    /// response is there: for bodies that are produced under the lock. Also a body that fails or is dropped
    /// gives the lock back.
    ///
    /// The last frame is held back until the lock is given back (at most 500 ms, and not with
    /// [`release_in_background`](Self::release_in_background)). That the server has a frame does not mean
    /// that the client has it.
    ///
    /// **Set [`max_hold`](Self::max_hold) with it**: a client that stops reading keeps the lock otherwise.
    pub fn hold_until_body_end(mut self) -> Self {
        self.answers.hold_until_body_end = true;
        self
    }

    /// Tells the client how long its request waited: `Server-Timing: lock;dur=12.3` (milliseconds). Off by
    /// default, since it tells strangers how contended a key is.
    pub fn server_timing(mut self) -> Self {
        self.answers.server_timing = true;
        self
    }

    /// Another status for one cause of refusal.
    pub fn status(mut self, cause: Cause, status: StatusCode) -> Self {
        self.answers.refusals = self.answers.refusals.status(cause, status);
        self
    }

    /// Refuses as gRPC does. For a whole tonic server or one of its services.
    pub fn grpc(mut self) -> Self {
        self.answers.refusals = self.answers.refusals.grpc();
        self
    }

    /// Refuses with responses of your own.
    pub fn respond_with<F>(mut self, respond: F) -> Self
    where
        F: Fn(&LockError) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.answers.refusals = self.answers.refusals.respond_with(respond);
        self
    }

    /// Refuses as `refusals` says: for several layers that shall answer alike.
    pub fn refusals(mut self, refusals: Refusals) -> Self {
        self.answers.refusals = refusals;
        self
    }
}

impl<S, K> Layer<S> for HttpLockLayer<K> {
    type Service = HttpLock<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let config = Arc::new(self.config.clone());
        HttpLock::new(inner, config, Arc::clone(&self.key), Arc::new(self.answers.clone()))
    }
}

impl<K> Clone for HttpLockLayer<K> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            key: Arc::clone(&self.key),
            answers: self.answers.clone(),
        }
    }
}

impl<K> fmt::Debug for HttpLockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLockLayer")
            .field("config", &self.config)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
