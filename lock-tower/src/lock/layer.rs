//! The layer for services with any request type.

use std::fmt;
use std::sync::Arc;

use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, fail_open, options};
use crate::lock::service::Lock;

/// Serves requests with the same key one at a time, in order of arrival across all processes; for
/// services with any request type.
///
/// The response is unchanged. The lock is held until the response is ready. A refused request fails
/// with a service error, so the error type must convert from a [`LockError`](crate::LockError), as
/// `tower::BoxError` does. For HTTP there is [`HttpLockLayer`](crate::HttpLockLayer), which refuses
/// with a response instead.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower::BoxError> {
/// use lock_tower::{LockLayer, LockHandle};
/// use lockcore::Locks;
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
///
/// struct Transfer { account: u64, lock: Option<LockHandle> }
///
/// let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
/// let layer = LockLayer::new(locks, |transfer: &Transfer| format!("account:{}", transfer.account))
///     .carry(|transfer: &mut Transfer, lock| transfer.lock = Some(lock));
///
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(async |transfer: Transfer| {
///     let token = transfer.lock.expect("every transfer has a lock").fencing_token();
///     Ok::<_, BoxError>(format!("done under token {token}"))
/// }));
/// println!("{}", service.oneshot(Transfer { account: 7, lock: None }).await?);
/// # Ok(())
/// # }
/// ```
///
/// To switch this layer on and off, put it into `tower`'s `option_layer`.
/// [`HttpLockLayer`](crate::HttpLockLayer) has the method
/// [`enabled`](crate::HttpLockLayer::enabled) for this.
///
/// A service that cannot fail cannot refuse a request, so it does not compile under this layer:
///
/// ```compile_fail,E0277
/// # async fn wrong(locks: lockcore::Locks) {
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(lock_tower::LockLayer::new(locks, |_: &String| "all"))
///     .service(service_fn(async |request: String| Ok::<_, Infallible>(request)));
/// service.oneshot(String::new()).await; // `Infallible: From<LockError>` is not satisfied
/// # }
/// ```
#[must_use = "a layer does nothing until it is added to a service"]
pub struct LockLayer<K, C = ()> {
    config: Config,
    key: Arc<K>,
    carry: C,
}

impl<K> LockLayer<K> {
    /// Creates a layer that locks, on `locks`, the keys that the extractor `key`
    /// ([`ExtractKey`](crate::ExtractKey)) reads from each request.
    pub fn new(locks: Locks, key: K) -> Self {
        Self { config: Config::new(locks), key: Arc::new(key), carry: () }
    }
}

impl<K, C> LockLayer<K, C> {
    options!();
    fail_open!();

    /// Sets how the [`LockHandle`](crate::LockHandle) is stored in the request for the inner
    /// service: `carry` is a closure `Fn(&mut Request, LockHandle)`, or
    /// [`InExtensions`](crate::http::InExtensions) for HTTP requests. By default the handle is not
    /// stored.
    ///
    /// With a closure, or without this option, a second layer with the same key does not find the
    /// handle. The second layer then waits for this layer's lock until the wait times out. And
    /// under [`fail_open`](Self::fail_open), a handle that an outer layer has stored in the request
    /// remains there: compare its [`key`](crate::LockHandle::key).
    pub fn carry<D>(self, carry: D) -> LockLayer<K, D> {
        LockLayer { config: self.config, key: self.key, carry }
    }
}

impl<S, K, C: Clone> Layer<S> for LockLayer<K, C> {
    type Service = Lock<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        let config = Arc::new(self.config.clone());
        Lock::new(inner, config, Arc::clone(&self.key), self.carry.clone())
    }
}

impl<K, C: Clone> Clone for LockLayer<K, C> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), key: Arc::clone(&self.key), carry: self.carry.clone() }
    }
}

impl<K, C> fmt::Debug for LockLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("config", &self.config).finish_non_exhaustive()
    }
}
