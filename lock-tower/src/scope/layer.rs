//! The layer that keeps the locks acquired by extractors and handlers.

use std::sync::Arc;

use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, options};
use crate::http::response_options::{ResponseOptions, hold_until_body_end, response_options};
use crate::scope::service::LockScope;

/// Keeps the locks that extractors and handlers acquire for a request, until the response or the
/// end of its body.
///
/// An [`HttpLockLayer`](crate::HttpLockLayer) reads the key from the request before any inner
/// service. If the key is known only further inside (path parameters, a session, the body), put
/// this layer outside, and acquire the lock inside with [`RequestLocks`](crate::RequestLocks). The
/// lock is held until the handler has responded, even if the handler drops its arguments. Renewals,
/// lost locks, the release before the response, and refusals work as in an `HttpLockLayer`.
///
/// A request that acquires no lock passes as if there were no layer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// use std::convert::Infallible;
/// use std::fmt::Debug;
///
/// use http::{Request, Response};
/// use http_body::Body;
/// use http_body_util::{BodyExt, Full};
/// use lock_tower::{Keys, LockScopeLayer, RequestLocks};
/// use lockcore::Locks;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// async fn pay<B: Body<Error: Debug>>(request: Request<B>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
///     let locks = RequestLocks::of(request.extensions()).expect("the layer is there");
///     let order = request.into_body().collect().await.expect("it comes").to_bytes(); // the key is in the body
///     let order = String::from_utf8_lossy(&order);
///     let response = match locks.lock(Keys::one(format!("order:{order}"))).await {
///         Ok(_) => Response::new("paid".into()), // held until the response has been sent
///         Err(error) => locks.refusals().respond(&error),
///     };
///     Ok(response.map(Full::from))
/// }
///
/// let service = ServiceBuilder::new()
///     .layer(LockScopeLayer::new(Locks::in_memory()))
///     .service(service_fn(pay));
/// let response = service.oneshot(Request::post("/pay").body("42".to_owned()).unwrap()).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct LockScopeLayer {
    config: Config,
    response_options: ResponseOptions,
}

impl LockScopeLayer {
    /// Creates a layer for requests that acquire their locks on `locks`.
    pub fn new(locks: Locks) -> Self {
        Self { config: Config::new(locks), response_options: ResponseOptions::default() }
    }

    options!();
    hold_until_body_end!();
    response_options!();
}

impl<S> Layer<S> for LockScopeLayer {
    type Service = LockScope<S>;

    fn layer(&self, inner: S) -> LockScope<S> {
        LockScope::new(
            inner,
            Arc::new(self.config.clone()),
            Arc::new(self.response_options.clone()),
        )
    }
}
