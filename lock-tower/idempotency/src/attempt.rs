//! `Attempt`: what a handler learns about the request's idempotency key.

use std::sync::Arc;

use lockcore::FencingToken;

use crate::record::key::RecordKey;

/// A run of the handler for a request with an idempotency key. The layer inserts it into the
/// request's extensions, for handlers that name the payment to a provider or protect their writes
/// with a fencing token. An axum handler takes `Extension<Attempt>`, or
/// `Option<Extension<Attempt>>` if requests without a key pass.
///
/// ```
/// use http::Request;
/// use lock_idempotency::Attempt;
///
/// async fn pay<B>(request: Request<B>) {
///     if let Some(attempt) = request.extensions().get::<Attempt>() {
///         // charge(amount).idempotency_key(attempt.record_key().to_string())
/// #       let _ = attempt.record_key().to_string();
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
    /// Returns the idempotency key sent by the client, without quotes. It is unique only within the
    /// [`Scope`](crate::Scope): to a service without scopes, such as a payment provider, pass
    /// [`record_key`](Self::record_key).
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// Returns the record name under which the store keeps the response. It is the same in all
    /// attempts with this key and scope, and differs for each scope, so it can name the charge to a
    /// payment provider. As text it has 64 hexadecimal digits.
    pub fn record_key(&self) -> &RecordKey {
        &self.record
    }

    /// Returns the fencing token of the lock under which the handler runs. It is higher than the
    /// tokens of all earlier attempts with this key; see
    /// [`LockGuard::fencing_token`](lockcore::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns true if an earlier attempt with this key began and left no response. Its work may
    /// have been done. This stays true for later attempts, until a response is stored or the record
    /// expires: an attempt that [did nothing](crate::Meaning::NothingDone) does not change it.
    pub fn is_again(&self) -> bool {
        self.is_again
    }
}
