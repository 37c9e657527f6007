//! The layer for HTTP services.

use std::fmt;
use std::sync::Arc;

use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, fail_open, options};
use crate::http::answers::{Answers, answers, enabled, hold_until_body_end};
use crate::http::service::HttpLock;

/// Serves HTTP requests of one key one at a time, in order of arrival among all processes.
///
/// The error of the service stays as it is: refusals are responses, as
/// [`Refusals`](crate::Refusals) makes them. The handler finds a [`LockHandle`](crate::LockHandle)
/// in the request's extensions. A second layer on the same key within one request shares the hold.
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
/// let locks = Locks::builder().namespace("shop").in_memory(); // or .connect("redis://127.0.0.1/").await?
/// let layer = HttpLockLayer::new(locks, ByPath::new().prefix("order").methods([Method::POST, Method::PUT]))
///     .wait(Duration::from_secs(5))
///     .queue_limit(20)
///     .status(Cause::Busy, StatusCode::CONFLICT);
///
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<_>| {
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

impl<K> HttpLockLayer<K> {
    /// Locks what `key` says ([`ExtractKey`](crate::ExtractKey)), on `locks`.
    pub fn new(locks: Locks, key: K) -> Self {
        Self { config: Config::new(locks), key: Arc::new(key), answers: Answers::default() }
    }

    enabled!();
    options!();
    fail_open!();

    hold_until_body_end!();
    answers!();
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
