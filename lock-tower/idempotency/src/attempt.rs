//! The attempt to serve a request, for its handler.

use std::sync::Arc;

use lockcore::FencingToken;

use crate::record::key::RecordKey;

/// The attempt to serve a request with a key, in the request's extensions: for a handler that
/// passes the key on, or fences writes. An axum handler takes `Extension<Attempt>`, or
/// `Option<Extension<Attempt>>` if requests without a key pass.
///
/// ```
/// use http::Request;
/// use lock_idempotency::Attempt;
///
/// async fn pay<B>(request: Request<B>) {
///     if let Some(attempt) = request.extensions().get::<Attempt>() {
///         // charge(amount).idempotency_key(attempt.idempotency_key())
/// #       let _ = attempt.idempotency_key();
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Attempt {
    pub(crate) key: Arc<str>,
    pub(crate) record: RecordKey,
    pub(crate) token: FencingToken,
    pub(crate) is_again: bool,
}

impl Attempt {
    /// Returns the client's idempotency key, without quotes.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// Returns the record name.
    pub fn record_key(&self) -> &RecordKey {
        &self.record
    }

    /// Returns the hold's fencing token: higher than in every earlier attempt with this key; see
    /// [`LockGuard::fencing_token`](lockcore::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Whether an earlier attempt began and left no response: the work may have been done.
    pub fn is_again(&self) -> bool {
        self.is_again
    }
}
