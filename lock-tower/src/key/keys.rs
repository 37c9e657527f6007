//! The locks of one request, with options of its own.

use lockcore::{LockKey, LockOptions};

use crate::key::KeyError;
use crate::options::Options;

/// The locks that one request needs, and what it asks for beyond the layer's options.
///
/// ```
/// use std::time::Duration;
/// use lock_tower::Keys;
///
/// let key = Keys::one("order:42").wait(Duration::from_secs(2)).queue_limit(10);
/// let both = Keys::one("account:1").and("account:2"); // taken together, in sorted order
/// assert_eq!(both.names().collect::<Vec<_>>(), ["account:1", "account:2"]);
/// ```
#[derive(Debug, Clone)]
#[must_use = "return it from the extractor"]
pub struct Keys {
    first: Name,
    rest: Vec<Name>,
    options: Options,
    label: Option<Box<str>>,
}

/// A name is checked last, so that a prefix can still come before it.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Text(String),
    Static(&'static str),
    Key(LockKey),
    /// There is none.
    Refused(KeyError),
}

impl Keys {
    /// One lock. A bad name refuses the request.
    pub fn one(name: impl Into<String>) -> Self {
        Self::of(Name::Text(name.into()))
    }

    /// One lock, of a name that has been checked.
    pub fn key(key: LockKey) -> Self {
        Self::of(Name::Key(key))
    }

    /// No lock: refuses the request with this error.
    ///
    /// ```
    /// use lock_tower::{KeyError, Keys};
    ///
    /// fn account(id: Option<u64>) -> Keys {
    ///     match id {
    ///         Some(id) => format!("account:{id}").into(),
    ///         None => Keys::refused(KeyError::new("the account is missing")),
    ///     }
    /// }
    /// # assert_eq!(account(Some(7)).names().collect::<Vec<_>>(), ["account:7"]);
    /// # assert_eq!(account(None).names().count(), 0);
    /// ```
    pub fn refused(error: KeyError) -> Self {
        Self::of(Name::Refused(error))
    }

    pub(crate) fn of(first: Name) -> Self {
        Self { first, rest: Vec::new(), options: Options::default(), label: None }
    }

    /// One more lock. The same name twice is one lock.
    pub fn and(mut self, name: impl Into<String>) -> Self {
        self.rest.push(Name::Text(name.into()));
        self
    }

    lockcore::option_setters! { options:
        /// How long this request waits at most, for all its locks together. Zero does not wait.
        wait,
        /// Waits without a limit.
        wait_forever,
        /// The lease of this request's hold; see [`LockOptions::lease`].
        lease,
        /// A lease that is never renewed; see [`LockOptions::fixed_lease`].
        fixed_lease,
        /// How many requests may wait for this key at most, this one included.
        queue_limit,
        /// The longest hold of this request; see
        /// [`LockLayer::max_hold`](crate::LockLayer::max_hold).
        max_hold,
    }

    /// Sets several options at once. What they leave open stays as it is.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = Options(options).or(self.options);
        self
    }

    /// Names this request for people who look at the queue, in place of the layer's label. At most
    /// 64 bytes; the rest is cut.
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The locks of both, taken together. Where both set an option, that of `self` counts.
    pub fn join(mut self, other: Self) -> Self {
        self.rest.push(other.first);
        self.rest.extend(other.rest);
        self.options = self.options.or(other.options);
        self.label = self.label.or(other.label);
        self
    }

    /// The names, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.first).chain(&self.rest).filter_map(|name| match name {
            Name::Text(text) => Some(text.as_str()),
            Name::Static(text) => Some(*text),
            Name::Key(key) => Some(key.as_str()),
            Name::Refused(_) => None,
        })
    }

    pub(crate) fn prefixed(self, prefix: &str) -> Result<Self, KeyError> {
        let rest =
            self.rest.into_iter().map(|name| name.prefixed(prefix)).collect::<Result<_, _>>();
        Ok(Self { first: self.first.prefixed(prefix)?, rest: rest?, ..self })
    }

    /// The checked keys, sorted and each once.
    pub(crate) fn resolve(self) -> Result<Resolved, KeyError> {
        let mut first = self.first.resolve()?;
        let mut rest = self.rest.into_iter().map(Name::resolve).collect::<Result<Vec<_>, _>>()?;
        if !rest.is_empty() {
            rest.push(first);
            // Descending, so that the next to be taken is popped off the end.
            rest.sort_unstable_by(|one, other| other.cmp(one));
            rest.dedup();
            first = rest.pop().expect("it has at least the first");
        }
        let keys = Sorted { next: Some(first), rest };
        Ok(Resolved { keys, options: self.options, label: self.label })
    }
}

/// What one request asks for, checked.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) keys: Sorted,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
}

/// Keys in the order in which every process takes them.
#[derive(Debug)]
pub(crate) struct Sorted {
    next: Option<LockKey>,
    rest: Vec<LockKey>,
}

impl Iterator for Sorted {
    type Item = LockKey;

    fn next(&mut self) -> Option<LockKey> {
        self.next.take().or_else(|| self.rest.pop())
    }
}

impl Name {
    fn prefixed(self, prefix: &str) -> Result<Self, KeyError> {
        match self {
            Self::Text(text) => Ok(Self::Text(format!("{prefix}:{text}"))),
            Self::Static(text) => Ok(Self::Text(format!("{prefix}:{text}"))),
            Self::Refused(error) => Err(error),
            Self::Key(_) => Err(KeyError::misuse(
                "A finished LockKey takes no prefix: put it into its name, or give the extractor none.",
            )),
        }
    }

    fn resolve(self) -> Result<LockKey, KeyError> {
        match self {
            Self::Text(text) => Ok(LockKey::new(text)?),
            Self::Static(text) => Ok(LockKey::new(text)?),
            Self::Key(key) => Ok(key),
            Self::Refused(error) => Err(error),
        }
    }
}

impl From<String> for Keys {
    fn from(name: String) -> Self {
        Self::one(name)
    }
}

impl From<&str> for Keys {
    fn from(name: &str) -> Self {
        Self::one(name)
    }
}

impl From<LockKey> for Keys {
    fn from(key: LockKey) -> Self {
        Self::key(key)
    }
}

impl From<KeyError> for Keys {
    fn from(error: KeyError) -> Self {
        Self::refused(error)
    }
}

/// An error refuses the request.
impl<K: Into<Keys>, E: Into<KeyError>> From<Result<K, E>> for Keys {
    fn from(keys: Result<K, E>) -> Self {
        match keys {
            Ok(keys) => keys.into(),
            Err(error) => Self::refused(error.into()),
        }
    }
}
