//! Keys for layers, from request data that only axum provides.

use axum::extract::{MatchedPath, OriginalUri};
use http::Request;
use lock_tower::{ByPath, ExtractKey, KeyError, Keys};

/// Returns a [`ByPath`] over the path sent by the client, for an
/// [`HttpLockLayer`](crate::HttpLockLayer) anywhere in a router.
///
/// A nested router sees only the rest of the path: both `/orders/42` and `/users/42` would be
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

/// One lock for a whole route, with any parameters. For an [`HttpLockLayer`](crate::HttpLockLayer)
/// on [`Router::route_layer`](axum::Router::route_layer). The key is `:route:` followed by the
/// route path, which cannot be a request path.
///
/// A request without a matched route is refused. Put the layer after routing, not around the
/// router.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByMatchedPath {
    _private: (),
}

impl ByMatchedPath {
    /// Creates the extractor.
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

/// The key of a route. No path and no [prefix](crate::ExtractKeyExt::prefix) starts with a colon,
/// so a client cannot choose a name equal to a route key.
pub(crate) fn by_route(path: &MatchedPath) -> Keys {
    Keys::one(format!(":route:{}", path.as_str()))
}
