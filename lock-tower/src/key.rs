//! The keys of requests: extractors that read the keys, and the errors that refuse a request.

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

/// Extracts from a request the keys that are locked while the request is served.
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
/// keep the [queue limit](crate::LockLayer::queue_limit). If a client must *not* be able to choose
/// a different key for the same resource, the key needs one canonical spelling: see [`ByPath`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot extract a lock key from a request",
    label = "not an `ExtractKey`",
    note = "use an extractor such as `ByPath::new()`, or a closure that returns the name: \
        `|request: &Request<_>| format!(..)`",
    note = "such a closure returns a `String`, `&'static str`, `LockKey` or `Keys`, or an `Option` or `Result` of these",
    note = "a limit of permits is a `u32`, or a closure that reads it: `|request: &Request<_>| -> u32 {{ .. }}`"
)]
pub trait ExtractKey<Req> {
    /// Returns the keys to lock for `request`, or `None` for a request that passes without a lock.
    ///
    /// # Errors
    /// A [`KeyError`] refuses the request before anything is locked or queued.
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

/// Extracts keys with the extractor inside the `Arc`.
impl<Req, E: ExtractKey<Req> + ?Sized> ExtractKey<Req> for Arc<E> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// Extracts keys with the extractor inside the box, for example one chosen at run time.
impl<Req> ExtractKey<Req> for Box<dyn ExtractKey<Req> + Send + Sync> {
    fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
        (**self).extract_key(request)
    }
}

/// Methods for every extractor that change the keys, or how the keys are locked.
pub trait ExtractKeyExt: Sized {
    /// Puts `prefix:` before every key, so that the keys of different uses cannot be equal.
    ///
    /// A colon at the end of `prefix` is ignored. The prefix must not be empty or contain another
    /// colon, because then the keys of two prefixes could be equal. With such a prefix every
    /// request is refused as [`Misconfigured`](crate::Cause::Misconfigured), and the log states
    /// why. For a prefix of two parts, use another character: `shop/order`. A second call puts a
    /// second prefix and colon before the first. Then no other use may have the second prefix
    /// alone: a client who chooses the name `order:7` there would have the key of order 7.
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

    /// Locks only requests with these HTTP methods. All other requests pass without a lock.
    #[cfg(feature = "http")]
    fn methods(self, methods: impl IntoIterator<Item = ::http::Method>) -> http::ForMethods<Self> {
        http::ForMethods::new(methods, self)
    }

    /// Takes a read lock for requests with these HTTP methods, and an exclusive lock for all other
    /// requests. Requests with read locks run together, a request with an exclusive lock runs
    /// alone, and all wait in one queue in order of arrival. See [`Keys::read`] and
    /// [`Keys::write`].
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

    /// Locks the keys for reading instead of exclusively, so that requests with the same key run
    /// together; see [`Keys::read`].
    fn reads(self) -> WithDemand<Self> {
        WithDemand::new(Demand::READ, self)
    }

    /// Locks the keys exclusively, which is the default; see [`Keys::write`].
    fn writes(self) -> WithDemand<Self> {
        WithDemand::new(Demand::EXCLUSIVE, self)
    }

    /// Acquires `count` permits of each key. At most `limit` permits of a key are in use at the
    /// same time; see [`Keys::permits`]. `limit` is a number, or a closure that reads it from the
    /// request.
    ///
    /// ```
    /// use lock_tower::{ExtractKeyExt, LockLayer};
    ///
    /// struct Mail { tenant: u64 }
    ///
    /// # fn layer(locks: lockcore::Locks) {
    /// let by_tenant = |mail: &Mail| format!("tenant:{}", mail.tenant);
    /// let layer = LockLayer::new(locks, by_tenant.permits(1, 10)); // ten at a time per tenant
    /// # let _ = layer;
    /// # }
    /// ```
    fn permits<L>(self, count: u32, limit: L) -> WithPermits<Self, L> {
        WithPermits::new(count, limit, self)
    }
}

impl<E> ExtractKeyExt for E {}

/// Why the key of a request is refused: it is missing, or cannot name a lock.
///
/// In HTTP the client sees the text, in the `detail` of the refusal. Describe the mistake without
/// repeating the key.
#[derive(Debug, Clone)]
pub struct KeyError {
    reason: Cow<'static, str>,
    clash: Option<Clash>,
    fault: Fault,
}

/// The kind of mistake for which a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The request has no key, or a key that cannot name a lock.
    Request,
    /// The key names a resource in a non-canonical spelling, such as `07` for 7.
    Spelling,
    /// The service is misconfigured. The client cannot fix this, so the response omits the reason.
    Misuse,
}

impl KeyError {
    /// Creates an error for a missing or invalid key (400 in HTTP). `reason` is shown to the
    /// client.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), clash: None, fault: Fault::Request }
    }

    /// Creates an error for a key in a non-canonical spelling (400 in HTTP). `reason` is shown to
    /// the client. The refusal has a separate code, [`KeySpelling`](crate::Cause::KeySpelling).
    pub fn spelling(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Spelling, ..Self::new(reason) }
    }

    /// Creates an error for a misconfigured extractor, as described by `sentence`. The request is
    /// refused as [`Misconfigured`](crate::Cause::Misconfigured) (500 in HTTP). Only the log
    /// contains the sentence.
    pub fn misuse(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Misuse, ..Self::new(sentence) }
    }

    /// Creates the error for a request that demands the same name twice, in ways that cannot be
    /// combined, such as for reading and exclusively.
    pub(crate) fn clash(first: Demand, second: Demand) -> Self {
        let clash = Clash { first, second };
        Self { clash: Some(clash), ..Self::misuse(clash.to_string()) }
    }

    /// Returns the demands that cannot be combined; `None` if the error has another reason.
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

// Without a source, because the text contains the reason, and an error chain would repeat it.
impl Error for KeyError {}

impl From<lockcore::KeyError> for KeyError {
    /// Converts the error to a text for the client, who does not know of locks.
    fn from(error: lockcore::KeyError) -> Self {
        Self::new(match error {
            lockcore::KeyError::Empty => "the name of the resource is empty",
            lockcore::KeyError::TooLong { .. } => "the name of the resource is too long",
            lockcore::KeyError::ControlCharacter { .. } => {
                "the name of the resource has a control character"
            }
            _ => "the name of the resource is invalid",
        })
    }
}

impl From<std::convert::Infallible> for KeyError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
