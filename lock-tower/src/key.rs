//! The keys of requests: the trait that extracts them, and its errors.

mod clash;
mod demand;
#[cfg(feature = "http")]
pub(crate) mod http;
mod into_keys;
mod keys;
mod prefix;
mod tuple;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use lockcore::Demand;

pub use clash::Clash;
pub use demand::{PermitLimit, WithDemand, WithPermits};
#[cfg(feature = "http")]
pub use http::{ByExtension, ByHeader, ByPath, ForMethods, ReadOn, canonical_path};
pub use into_keys::IntoKeys;
pub use keys::Keys;
pub(crate) use keys::{KeyDemand, Resolved, Sorted};
pub use prefix::Prefixed;

/// Extracts the lock keys needed by a request.
///
/// `Ok(None)` lets the request pass without a lock; an error refuses the request (400 in HTTP).
///
/// Implemented for closures `Fn(&Request) -> K` where `K` is a `String`, a `&'static str`, a
/// [`LockKey`](lockcore::LockKey), [`Keys`], or an `Option` or `Result` of these; and for tuples of
/// up to four extractors, whose locks are acquired together, in an order that cannot deadlock.
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
/// # Keys that a client chooses
/// A key read from the request is chosen by the client, and decides which requests wait for it: a
/// client that can name another client's key can hold that key for as long as your handler runs. So
/// put the lock behind authentication, put the client's identity into the key (`user:7/cart`), give
/// each use a [prefix](ExtractKeyExt::prefix) so that names of different routes cannot collide, and
/// keep the queue limit. If a client must *not* be able to choose a different key for the same
/// resource, the key needs one canonical spelling: see [`ByPath`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot extract a lock key from a request",
    label = "not an `ExtractKey`",
    note = "use an extractor such as `ByPath::new()`, or a closure that returns the name: \
        `|request: &Request<_>| format!(..)`",
    note = "such a closure returns a `String`, `&'static str`, `LockKey` or `Keys`, or an `Option` or `Result` of these",
    note = "a limit of permits is a `u32`, or a closure that reads it: `|request: &Request<_>| -> u32 {{ .. }}`"
)]
pub trait ExtractKey<Req> {
    /// Returns the locks needed by `request`.
    ///
    /// # Errors
    /// [`KeyError`] refuses the request. Nothing is locked and nothing waits.
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError>;
}

#[diagnostic::do_not_recommend]
impl<Req, F, K> ExtractKey<Req> for F
where
    F: Fn(&Req) -> K,
    K: IntoKeys,
{
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        self(request).into_keys()
    }
}

/// Extracts keys with the shared extractor.
impl<Req, E: ExtractKey<Req> + ?Sized> ExtractKey<Req> for Arc<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// Extracts keys with the inner extractor: for an extractor chosen at run time.
impl<Req> ExtractKey<Req> for Box<dyn ExtractKey<Req> + Send + Sync> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// Adapters for every extractor.
pub trait ExtractKeyExt: Sized {
    /// Puts `prefix:` before every name, which separates the keys of different uses.
    ///
    /// `"order"` and `"order:"` are equal. A prefix must not be empty or contain another colon, so
    /// that the names of two prefixes are distinct. Otherwise every request is refused as
    /// [`Misconfigured`](crate::Cause::Misconfigured), and the log states why. For two parts, use
    /// two prefixes.
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

    /// Locks only requests with these methods; all others pass.
    #[cfg(feature = "http")]
    fn methods(self, methods: impl IntoIterator<Item = ::http::Method>) -> http::ForMethods<Self> {
        http::ForMethods::new(methods, self)
    }

    /// Requests with these methods read, all others lock: reads run together, an exclusive lock
    /// alone, all in order of arrival. See [`Keys::read`] and [`Keys::write`].
    ///
    /// ```
    /// use http::Method;
    /// use lock_tower::{ByPath, ExtractKeyExt, HttpLockLayer};
    ///
    /// # fn layer(locks: lockcore::Locks) {
    /// let layer = HttpLockLayer::new(locks, ByPath::new().read_on([Method::GET, Method::HEAD]));
    /// # let _ = layer;
    /// # }
    /// ```
    #[cfg(feature = "http")]
    fn read_on(self, methods: impl IntoIterator<Item = ::http::Method>) -> http::ReadOn<Self> {
        http::ReadOn::new(methods, self)
    }

    /// Acquires the names for reading instead of exclusively; see [`Keys::read`].
    fn reads(self) -> WithDemand<Self> {
        WithDemand::new(Demand::READ, self)
    }

    /// Acquires the names exclusively, which is the default; see [`Keys::write`].
    fn writes(self) -> WithDemand<Self> {
        WithDemand::new(Demand::EXCLUSIVE, self)
    }

    /// Acquires `count` of `limit` permits of each name; see [`Keys::permits`]. The limit is a
    /// number, or a closure that reads it from the request.
    ///
    /// ```
    /// use lock_tower::{ExtractKeyExt, LockLayer};
    ///
    /// struct Mail { tenant: u64 }
    ///
    /// # fn layer(locks: lockcore::Locks) {
    /// let by_tenant = |mail: &Mail| format!("tenant:{}", mail.tenant); let layer =
    /// LockLayer::new(locks, by_tenant.permits(1, 10)); // ten at a time per tenant
    /// # let _ = layer;
    /// # }
    /// ```
    fn permits<L>(self, count: u32, limit: L) -> WithPermits<Self, L> {
        WithPermits::new(count, limit, self)
    }
}

impl<E> ExtractKeyExt for E {}

/// Why a request key is refused: it is missing, or cannot name a lock.
///
/// In HTTP the text reaches the client, in the refusal's `detail`. Describe the mistake without
/// repeating the key.
#[derive(Debug, Clone)]
pub struct KeyError {
    reason: Cow<'static, str>,
    source: Option<lockcore::KeyError>,
    clash: Option<Clash>,
    fault: Fault,
}

/// Categories for refused keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The request has no key, or a key that cannot name a lock.
    Request,
    /// The key is a name in non-canonical spelling.
    Spelling,
    /// The service is misconfigured. The client cannot fix this, so the refusal omits the reason.
    Misuse,
}

impl KeyError {
    /// Refuses the request for `reason`.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), source: None, clash: None, fault: Fault::Request }
    }

    /// Refuses a name in non-canonical spelling. The refusal has a separate code,
    /// [`KeySpelling`](crate::Cause::KeySpelling).
    pub fn spelling(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Spelling, ..Self::new(reason) }
    }

    /// Refuses the request as [`Misconfigured`](crate::Cause::Misconfigured) (500 in HTTP), because
    /// the extractor is misconfigured, as described by `sentence`. Only the log contains the
    /// sentence.
    pub fn misuse(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Misuse, ..Self::new(sentence) }
    }

    /// Refuses conflicting demands for the same name in a request.
    pub(crate) fn clash(first: Demand, second: Demand) -> Self {
        let clash = Clash { first, second };
        Self { clash: Some(clash), ..Self::misuse(clash.to_string()) }
    }

    pub(crate) fn as_clash(&self) -> Option<&Clash> {
        self.clash.as_ref()
    }

    pub(crate) fn is_misuse(&self) -> bool {
        self.fault == Fault::Misuse
    }

    pub(crate) fn is_spelling(&self) -> bool {
        self.fault == Fault::Spelling
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for KeyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source),
            None => self.as_clash().map(|clash| clash as _),
        }
    }
}

impl From<lockcore::KeyError> for KeyError {
    fn from(error: lockcore::KeyError) -> Self {
        Self {
            reason: error.to_string().into(),
            source: Some(error),
            clash: None,
            fault: Fault::Request,
        }
    }
}

impl From<std::convert::Infallible> for KeyError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
