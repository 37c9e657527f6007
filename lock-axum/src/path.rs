//! Keys for layers, from parts of a request that axum alone can read.

use axum::extract::{MatchedPath, OriginalUri};
use http::Request;
use lock_tower::{ByPath, ExtractKey, KeyError, Keys};

/// Makes a [`ByPath`] of the path that the client sent, for an
/// [`HttpLockLayer`](crate::HttpLockLayer) anywhere in a router.
///
/// A nested router sees only the rest of the path, where `/orders/42` and `/users/42` would both be
/// `/42`.
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

/// One lock for all requests of a route, with any parameters. For an
/// [`HttpLockLayer`](crate::HttpLockLayer) on [`Router::route_layer`](axum::Router::route_layer).
/// The key is `:route:` and the path of the route, which no request's path can be.
///
/// A request that no route has matched is refused. Put the layer where routing is done, not around
/// the router.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByMatchedPath {
    _private: (),
}

impl ByMatchedPath {
    /// Makes the extractor.
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

/// The key of a route. No path begins like this, and no [prefix](crate::ExtractKeyExt::prefix) has
/// colons, so no name that a client chooses is the key of a route.
pub(crate) fn by_route(path: &MatchedPath) -> Keys {
    Keys::one(format!(":route:{}", path.as_str()))
}
