//! Lock keys for an `HttpLockLayer`, from request data that only axum provides.

use axum::extract::{MatchedPath, OriginalUri};
use http::Request;
use lock_tower::{ByPath, ExtractKey, KeyError, Keys};

/// Returns a [`ByPath`], which makes the request path the lock key. It uses the whole path sent by
/// the client, so an [`HttpLockLayer`](crate::HttpLockLayer) may be anywhere in a router.
///
/// Without this, a layer in a nested router would see only the rest of the path: both `/orders/42`
/// and `/users/42` would be `/42`.
///
/// Not for routes with a wildcard, such as `/files/{*path}`, where `/a/b` and `/a%2Fb` are the same
/// parameter but two keys. Use [`lock_by`](crate::lock_by) with the parameter there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use axum::{Router, routing::post};
/// use lock_axum::{HttpLockLayer, Locks, by_path};
///
/// let orders = Router::new()
///     .route("/{id}/pay", post(async || "paid"))
///     .layer(HttpLockLayer::new(Locks::in_memory(), by_path()));
/// let app: Router = Router::new().nest("/orders", orders); // the key is "/orders/42/pay"
/// # }
/// ```
pub fn by_path() -> ByPath {
    ByPath::new().original(|extensions| extensions.get::<OriginalUri>().map(|uri| &uri.0))
}

/// A key extractor for one lock per route: all requests that match the route share the lock,
/// whatever their path parameters. For an [`HttpLockLayer`](crate::HttpLockLayer) on
/// [`Router::route_layer`](axum::Router::route_layer). The key is `:route:` followed by the route
/// path, and cannot equal a request path.
///
/// A request without a matched route is refused, so put the layer after routing, not around the
/// router.
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ByMatchedPath {
    _private: (),
}

impl ByMatchedPath {
    /// Creates a key extractor that returns the matched route as the key.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<B> ExtractKey<Request<B>> for ByMatchedPath {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        match request.extensions().get::<MatchedPath>() {
            Some(path) => Ok(Some(by_route(path))),
            None => Err(KeyError::new("no route has matched")),
        }
    }
}

/// Returns the lock key of a route. No path and no [prefix](crate::ExtractKeyExt::prefix) starts
/// with a colon, so a client cannot choose a path whose key equals a route's key.
pub(crate) fn by_route(path: &MatchedPath) -> Keys {
    Keys::one(format!(":route:{}", path.as_str()))
}
