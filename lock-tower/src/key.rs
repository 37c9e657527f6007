//! Which lock a request needs: the trait, and its errors.

mod convert;
#[cfg(feature = "http")]
pub(crate) mod http;
mod keys;
mod prefix;
mod tuple;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

pub use convert::IntoKeys;
pub use keys::Keys;
pub(crate) use keys::{Resolved, Sorted};
pub use prefix::Prefixed;

/// Says which lock a request needs.
///
/// `Ok(None)` lets the request pass without a lock; an error refuses it (400 in HTTP).
///
/// It is implemented for closures `Fn(&Request) -> K` where `K` is a `String`, a `&'static str`, a
/// [`LockKey`](lockcore::LockKey), [`Keys`], or an `Option` or `Result` of these; and for tuples of
/// up to four extractors, whose locks are taken together, in an order that cannot deadlock.
///
/// ```
/// use lock_tower::{ExtractKey, KeyError};
///
/// struct Job { account: Option<u64> }
///
/// fn names<Req>(extractor: impl ExtractKey<Req>, request: &Req) -> Vec<String> {
///     let keys = extractor.extract_key(request).unwrap();
///     keys.iter().flat_map(|keys| keys.names()).map(str::to_owned).collect()
/// }
///
/// let by_account = |job: &Job| job.account.map(|id| format!("account:{id}"));
/// assert_eq!(names(by_account, &Job { account: Some(7) }), ["account:7"]);
/// assert!(names(by_account, &Job { account: None }).is_empty());
/// ```
///
/// # Who chooses the key
/// A client that chooses the key chooses which requests wait for it. A key that is read from the
/// request is chosen by the client: one that can name another client's key can hold it for as long
/// as your handler runs. So put the lock behind authentication, put what the client may touch into
/// the key (`user:7/cart`), give each use its [prefix](ExtractKeyExt::prefix) so that one route's
/// names cannot meet another's, and keep the queue limit. A client that must *not* be able to
/// choose a different key for the same resource needs a key with one spelling: see
/// [`ByPath`](crate::ByPath).
pub trait ExtractKey<Req> {
    /// The locks that `request` needs.
    ///
    /// # Errors
    /// [`KeyError`] refuses the request. Nothing is locked and nothing waits.
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError>;
}

impl<Req, F, K> ExtractKey<Req> for F
where
    F: Fn(&Req) -> K,
    K: IntoKeys,
{
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        self(request).into_keys()
    }
}

/// As the extractor that is shared.
impl<Req, E: ExtractKey<Req> + ?Sized> ExtractKey<Req> for Arc<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// As the extractor inside: for one that is chosen while the program runs.
impl<Req> ExtractKey<Req> for Box<dyn ExtractKey<Req> + Send + Sync> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// Adapters for every extractor.
pub trait ExtractKeyExt: Sized {
    /// Puts `prefix:` before every name. That keeps the keys of two uses apart.
    ///
    /// A prefix is not empty and has no colon, so that the names of two prefixes are distinct.
    /// Otherwise every request is refused as [`Internal`](crate::Cause::Internal), and the log says
    /// why. Where there are two parts, use two prefixes.
    ///
    /// ```
    /// use lock_tower::{ExtractKey, ExtractKeyExt};
    ///
    /// let extractor = (|id: &u64| id.to_string()).prefix("order");
    /// assert_eq!(extractor.extract_key(&42).unwrap().unwrap().names().collect::<Vec<_>>(), ["order:42"]);
    /// ```
    fn prefix(self, prefix: impl Into<String>) -> Prefixed<Self> {
        Prefixed::new(prefix, self)
    }

    /// Locks only requests of these methods; all others pass.
    #[cfg(feature = "http")]
    fn methods(self, methods: impl IntoIterator<Item = ::http::Method>) -> http::ForMethods<Self> {
        http::ForMethods::new(methods, self)
    }
}

impl<E> ExtractKeyExt for E {}

/// The request has no key where one is needed, or one that cannot name a lock.
///
/// In HTTP its text reaches the client, in the `detail` of the refusal. Say what is wrong, not what
/// the key is.
#[derive(Debug, Clone)]
pub struct KeyError {
    reason: Cow<'static, str>,
    source: Option<lockcore::KeyError>,
    /// The client can do nothing about it, so its refusal does not say it.
    is_misuse: bool,
}

impl KeyError {
    /// Refuses the request for `reason`.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), source: None, is_misuse: false }
    }

    /// The extractor is set up wrongly, as `sentence` says. The request is refused as
    /// [`Internal`](crate::Cause::Internal) (500 in HTTP), and only the log has the sentence.
    pub fn misuse(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self { is_misuse: true, ..Self::new(sentence) }
    }

    pub(crate) fn is_misuse(&self) -> bool {
        self.is_misuse
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for KeyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<lockcore::KeyError> for KeyError {
    fn from(error: lockcore::KeyError) -> Self {
        Self { reason: error.to_string().into(), source: Some(error), is_misuse: false }
    }
}

impl From<std::convert::Infallible> for KeyError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
