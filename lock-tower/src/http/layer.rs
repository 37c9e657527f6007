//! The layer for HTTP services.

use std::fmt;
use std::sync::Arc;

use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, fail_open, options};
use crate::http::response_options::{
    ResponseOptions, enabled, hold_until_body_end, response_options,
};
use crate::http::service::HttpLock;
use crate::key::WithPermits;

/// Serves HTTP requests with the same key one at a time, in order of arrival across all processes.
///
/// Refused requests receive a response, made by [`Refusals`](crate::Refusals), so the error type of
/// the service is unchanged. The handler finds a [`LockHandle`](crate::LockHandle) in the request's
/// extensions. A second layer on the same key within a request shares the lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower::BoxError> {
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Method, Request, Response, StatusCode};
/// use http_body_util::Full;
/// use lock_tower::{ByPath, Cause, ExtractKeyExt, HttpLockLayer};
/// use lockcore::Locks;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
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
#[must_use = "a layer does nothing until it is added to a service"]
pub struct HttpLockLayer<K> {
    config: Config,
    key: Arc<K>,
    response_options: ResponseOptions,
}

impl<K> HttpLockLayer<K> {
    /// Creates a layer that locks, on `locks`, the keys that the extractor `key`
    /// ([`ExtractKey`](crate::ExtractKey)) reads from each request.
    pub fn new(locks: Locks, key: K) -> Self {
        Self {
            config: Config::new(locks),
            key: Arc::new(key),
            response_options: ResponseOptions::default(),
        }
    }

    enabled!();
    options!();
    fail_open!();

    hold_until_body_end!();
    response_options!();
}

impl<K, L> HttpLockLayer<WithPermits<K, L>> {
    /// Creates a layer that serves at most `limit` requests per key at a time, across all
    /// processes, in order of arrival: like tower's `ConcurrencyLimit`, but fair, distributed and
    /// per key. Shorthand for [`new`](Self::new) with
    /// [`key.permits(1, limit)`](crate::ExtractKeyExt::permits), and
    /// [`hold_until_body_end`](Self::hold_until_body_end): a streaming response keeps its permit
    /// until the server has taken the last frame.
    ///
    /// A request beyond the limit waits in the key's queue. It is refused with 429 and
    /// `Retry-After` when the [wait](Self::wait) ends, or at once if the [queue](Self::queue_limit)
    /// is full. The layer's service is always ready, because waiting requests take no capacity from
    /// other keys.
    ///
    /// The limit is a number, or a closure that reads it from the request
    /// ([`PermitLimit`](crate::PermitLimit)):
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower::BoxError> {
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use lock_tower::{ByExtension, HttpLockLayer};
    /// use lockcore::Locks;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// #[derive(Clone)]
    /// struct Tenant { id: u64, at_once: u32 } // set by outer authentication
    ///
    /// let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    /// let key = ByExtension::new(|tenant: &Tenant| format!("tenant:{}", tenant.id));
    /// let limit = |request: &Request<String>| request.extensions().get().map_or(1, |tenant: &Tenant| tenant.at_once);
    /// let layer = HttpLockLayer::permits(locks, key, limit)
    ///     .wait(Duration::from_secs(2))
    ///     .max_hold(Duration::from_secs(300));
    ///
    /// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<_>| {
    ///     Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from("generated"))))
    /// }));
    /// let mut request = Request::post("/generate").body(String::new()).unwrap();
    /// request.extensions_mut().insert(Tenant { id: 7, at_once: 20 });
    /// assert_eq!(service.oneshot(request).await?.status(), 200);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Set [`max_hold`](Self::max_hold)**: otherwise a client that stops reading keeps the
    /// permit.
    ///
    /// A permit does not prove that earlier holders have stopped: a process that was suspended for
    /// longer than the lease resumes beside the new permit holders. This is sufficient for a quota.
    /// Work that must never overlap needs a lock with a [fencing
    /// token](crate::LockHandle::fencing_token).
    pub fn permits(locks: Locks, key: K, limit: L) -> Self {
        Self::new(locks, WithPermits::new(1, limit, key)).hold_until_body_end(true)
    }
}

impl<S, K> Layer<S> for HttpLockLayer<K> {
    type Service = HttpLock<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let config = Arc::new(self.config.clone());
        HttpLock::new(inner, config, Arc::clone(&self.key), Arc::new(self.response_options.clone()))
    }
}

impl<K> Clone for HttpLockLayer<K> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            key: Arc::clone(&self.key),
            response_options: self.response_options.clone(),
        }
    }
}

impl<K> fmt::Debug for HttpLockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLockLayer")
            .field("config", &self.config)
            .field("response_options", &self.response_options)
            .finish_non_exhaustive()
    }
}
