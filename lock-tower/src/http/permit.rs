//! At most so many requests of one key at a time.

use std::fmt;
use std::sync::Arc;

use lockcore::Locks;
use tower::Layer;

use crate::config::{Config, fail_open, options};
use crate::http::answers::{Answers, answers, enabled};
use crate::http::service::HttpLock;
use crate::key::WithPermits;

/// Serves at most so many requests of one key at a time, among all processes, in order of arrival:
/// tower's `ConcurrencyLimit`, but fair, distributed and per key.
///
/// The permit is held until the body of the response has ended, so an answer that streams counts
/// until the server has taken its last frame. A request beyond the limit waits in the queue of its
/// key, and is refused with 429 and `Retry-After` when its [wait](Self::wait) ends, or at once if
/// the [queue](Self::queue_limit) is full. The service is always ready: requests for one key take
/// no room from those for others.
///
/// The limit is a number, or a closure that reads it from the request ([`PermitLimit`]):
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use lock_tower::{ByExtension, PermitLayer};
/// use lockcore::Locks;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// #[derive(Clone)]
/// struct Tenant { id: u64, at_once: u32 } // authentication, outside, has put it there
///
/// let locks = Locks::builder().namespace("shop").in_memory(); // or .connect("redis://127.0.0.1/").await?
/// let key = ByExtension::new(|tenant: &Tenant| format!("tenant:{}", tenant.id));
/// let limit = |request: &Request<String>| request.extensions().get().map_or(1, |tenant: &Tenant| tenant.at_once);
/// let layer = PermitLayer::new(locks, key, limit)
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
/// **Set [`max_hold`](Self::max_hold)**: otherwise a client that stops reading keeps its permit.
///
/// A permit is no proof that others have stopped: a process that sleeps past its lease works on
/// beside those that have its permits by then. For a limit that protects a quota that is enough.
/// What must never overlap takes a lock and its [fencing token](crate::LockHandle::fencing_token).
///
/// It is a name for what people look for:
/// [`HttpLockLayer`](crate::HttpLockLayer) with
/// [`key.permits(1, limit)`](crate::ExtractKeyExt::permits) and
/// [`hold_until_body_end`](crate::HttpLockLayer::hold_until_body_end) does the same, also with more
/// than one permit a request.
///
/// [`PermitLimit`]: crate::PermitLimit
#[must_use = "a layer does nothing until it is put on a service"]
pub struct PermitLayer<K, L = u32> {
    config: Config,
    key: Arc<WithPermits<K, L>>,
    answers: Answers,
}

impl<K, L> PermitLayer<K, L> {
    /// One permit of `limit` of what `key` says ([`ExtractKey`](crate::ExtractKey)), on `locks`.
    #[track_caller]
    pub fn new(locks: Locks, key: K, limit: L) -> Self {
        Self {
            config: Config::new(locks),
            key: Arc::new(WithPermits::new(1, limit, key)),
            answers: Answers { hold_until_body_end: true, ..Answers::default() },
        }
    }

    /// Holds the permit until the response is there, instead of until the end of its body.
    pub fn hold_until_response(mut self) -> Self {
        self.answers.hold_until_body_end = false;
        self
    }

    enabled!();
    options!();
    fail_open!();

    answers!();
}

impl<S, K, L> Layer<S> for PermitLayer<K, L> {
    type Service = HttpLock<S, WithPermits<K, L>>;

    fn layer(&self, inner: S) -> Self::Service {
        let config = Arc::new(self.config.clone());
        HttpLock::new(inner, config, Arc::clone(&self.key), Arc::new(self.answers.clone()))
    }
}

impl<K, L> Clone for PermitLayer<K, L> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            key: Arc::clone(&self.key),
            answers: self.answers.clone(),
        }
    }
}

impl<K, L> fmt::Debug for PermitLayer<K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitLayer")
            .field("config", &self.config)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
