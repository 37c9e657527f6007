//! A request's locks, with the options set by the request.

use lockcore::{Demand, LockKey, LockOptions};
use tokio::time::Instant;

use crate::key::KeyError;
use crate::options::Options;

/// The locks needed by one request, and its own options, which take precedence over the layer's
/// options.
///
/// ```
/// use std::time::Duration;
/// use lock_tower::Keys;
///
/// let key = Keys::one("order:42").wait(Duration::from_secs(2)).queue_limit(10);
/// let both = Keys::one("account:1").and("account:2"); // acquired together, in sorted order
/// assert_eq!(both.names().collect::<Vec<_>>(), ["account:1", "account:2"]);
/// ```
///
/// # Locks, reads, permits
/// A name is locked exclusively unless [`read`](Self::read) or [`permits`](Self::permits) sets
/// another demand. They apply to the names added so far, so different names can have different
/// demands:
///
/// ```
/// # use lock_tower::Keys;
/// let priced = Keys::one("rates").read().join(Keys::one("account:1").write());
/// let sent = Keys::one("smtp").permits(1, 10).and("account:1"); // the account is locked
/// # let _ = (priced, sent);
/// ```
///
/// [`Demand`] describes which demands for the same name exclude each other.
///
/// Within a request, a repeated name shares the existing hold if the hold covers the new demand:
/// exclusive covers exclusive and read, read covers read. Permits for the same name in the same
/// call are acquired together. Other demands for a name already held are refused before anything is
/// sent ([`Clash`](crate::Clash), 500 in HTTP): an exclusive lock on a name that the request reads
/// would wait for itself, and requests that hold a permit each and need another would wait for each
/// other. Different demands for the same name in the same call are also refused.
#[derive(Debug, Clone)]
#[must_use = "return it from the extractor"]
pub struct Keys {
    first: NameDemand,
    rest: Vec<NameDemand>,
    options: Options,
    label: Option<Box<str>>,
    class: Option<Box<str>>,
    refuses_early: Option<bool>,
    deadline: Option<Instant>,
}

/// A key with a demand; `None` until a demand is set.
#[derive(Debug, Clone)]
pub(crate) struct KeyDemand<K = LockKey, D = Demand> {
    pub(crate) key: K,
    pub(crate) demand: D,
}

/// An unchecked name with a demand.
type NameDemand = KeyDemand<Name, Option<Demand>>;

/// An unchecked name, so that a prefix can still be added.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Text(String),
    Static(&'static str),
    Key(LockKey),
    /// No name: the request is refused.
    Refused(KeyError),
}

impl Keys {
    /// Creates a single lock. An invalid lock name refuses the request.
    pub fn one(name: impl Into<String>) -> Self {
        Self::of(Name::Text(name.into()))
    }

    /// Creates a single lock, for an already checked name.
    pub fn key(key: LockKey) -> Self {
        Self::of(Name::Key(key))
    }

    /// Creates no lock, and refuses the request with this error.
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
        let first = KeyDemand { key: first, demand: None };
        let (options, label, class, deadline) = (Options::default(), None, None, None);
        Self { first, rest: Vec::new(), options, label, class, refuses_early: None, deadline }
    }

    /// Adds a lock. The same name twice is one lock.
    pub fn and(mut self, name: impl Into<String>) -> Self {
        self.rest.push(KeyDemand { key: Name::Text(name.into()), demand: None });
        self
    }

    /// Sets the names added so far to read: other requests may read them at the same time. See
    /// [`Locks::read`](lockcore::Locks::read).
    ///
    /// A name that already has a different demand refuses the request: a [`Clash`](crate::Clash).
    /// For several names with different demands see [`join`](Self::join).
    pub fn read(self) -> Self {
        self.demand(Demand::READ)
    }

    /// Locks the names added so far exclusively, which is the default: for names that are also
    /// read. See [`read`](Self::read) for a name that already has a different demand.
    pub fn write(self) -> Self {
        self.demand(Demand::EXCLUSIVE)
    }

    /// Acquires `count` of `limit` permits of each name added so far. See
    /// [`LockRequest::permits`](lockcore::LockRequest::permits), and [`read`](Self::read) for a
    /// name that already has a different demand.
    ///
    /// A `count` of 0 or above `limit`, or a `limit` of 2^30 or more, refuses the request as
    /// [`Misconfigured`](crate::Cause::Misconfigured), and nothing is sent.
    pub fn permits(self, count: u32, limit: u32) -> Self {
        match Demand::permits(count, limit) {
            Ok(demand) => self.demand(demand),
            Err(error) => {
                let refused = KeyError::misuse(format!("{error}."));
                self.say_each(|_| Err(refused.clone()))
            }
        }
    }

    /// Sets the demand of the names added so far; see [`read`](Self::read) for a name that already
    /// has a different demand.
    pub fn demand(self, demand: Demand) -> Self {
        self.say_each(|said| match said {
            Some(said) if said != demand => Err(KeyError::clash(said, demand)),
            _ => Ok(demand),
        })
    }

    /// Sets the demand of each name added so far, or refuses the request.
    fn say_each(mut self, say: impl Fn(Option<Demand>) -> Result<Demand, KeyError>) -> Self {
        self.wants_mut().for_each(|want| match say(want.demand) {
            Ok(demand) => want.demand = Some(demand),
            Err(error) => want.key = Name::Refused(error),
        });
        self
    }

    fn wants_mut(&mut self) -> impl Iterator<Item = &mut NameDemand> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    lockcore::option_setters! { options:
        /// The request's maximum wait, for all locks together. Zero does not wait.
        wait,
        /// Waits without a limit.
        wait_forever,
        /// The maximum time to wait for the store; see
        /// [`LockLayer::store_wait`](crate::LockLayer::store_wait).
        store_wait,
        /// The lease of this request's hold; see [`LockOptions::lease`].
        lease,
        /// A lease without renewal; see [`LockOptions::fixed_lease`].
        fixed_lease,
        /// The maximum number of waiters for this key, this request included.
        queue_limit,
        /// The maximum duration of this request's hold; see
        /// [`LockLayer::max_hold`](crate::LockLayer::max_hold).
        max_hold,
        /// What to do if the key is busy; see
        /// [`LockLayer::when_busy`](crate::LockLayer::when_busy).
        when_busy,
    }

    /// Sets several options at once. Unset options keep their present values.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = Options(options).or(self.options);
        self
    }

    /// Sets this request's label in [`inspect`](lockcore::Locks::inspect), for operators, instead
    /// of the layer's label. At most 64 bytes; the rest is cut off.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(label.as_ref().into());
        self
    }

    /// Sets the label if none is set.
    pub(crate) fn label_if_none(mut self, label: &str) -> Self {
        self.label.get_or_insert_with(|| label.into());
        self
    }

    /// Sets this request's class, instead of the layer's class; see
    /// [`LockRequest::class`](lockcore::LockRequest::class).
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.class = Some(class.as_ref().into());
        self
    }

    /// Sets whether this request is refused at once if it is unlikely to be served within the wait,
    /// instead of the layer's [`refuse_early`](crate::LockLayer::refuse_early). For several keys,
    /// each is judged by its own queue, with the rest of the wait.
    pub fn refuse_early(mut self, refuses_early: bool) -> Self {
        self.refuses_early = Some(refuses_early);
        self
    }

    /// Ends this request's wait at this time, unless the [wait](Self::wait) ends earlier. A request
    /// past the deadline does not wait. Of several deadlines, the earliest counts.
    pub fn wait_until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        self
    }

    /// Joins the locks of both, each with its demand; they are acquired together. If both set an
    /// option, `self` takes precedence.
    pub fn join(mut self, other: Self) -> Self {
        self.rest.push(other.first);
        self.rest.extend(other.rest);
        self.options = self.options.or(other.options);
        self.label = self.label.or(other.label);
        self.class = self.class.or(other.class);
        self.refuses_early = self.refuses_early.or(other.refuses_early);
        match other.deadline {
            Some(deadline) => self.wait_until(deadline),
            None => self,
        }
    }

    /// Returns the names, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.first).chain(&self.rest).filter_map(|want| match &want.key {
            Name::Text(text) => Some(text.as_str()),
            Name::Static(text) => Some(*text),
            Name::Key(key) => Some(key.as_str()),
            Name::Refused(_) => None,
        })
    }

    pub(crate) fn prefixed(self, prefix: &str) -> Result<Self, KeyError> {
        let rest =
            self.rest.into_iter().map(|want| want.prefixed(prefix)).collect::<Result<_, _>>();
        Ok(Self { first: self.first.prefixed(prefix)?, rest: rest?, ..self })
    }

    /// Checks the keys, sorts them and removes duplicates.
    ///
    /// # Errors
    /// The mistake for which the request is refused before anything is sent for it.
    pub(crate) fn resolve(self) -> Result<Resolved, KeyError> {
        let mut first = self.first.resolve()?;
        let mut rest =
            self.rest.into_iter().map(NameDemand::resolve).collect::<Result<Vec<_>, _>>()?;
        if !rest.is_empty() {
            rest.insert(0, first);
            // In descending order, so that the next key to acquire is popped off the end.
            rest.sort_by(|one, other| other.key.cmp(&one.key));
            rest = each_once(rest)?;
            first = rest.pop().expect("the keys contain at least the first");
        }
        let keys = Sorted { next: Some(first), rest };
        let Self { options, label, class, refuses_early, deadline, .. } = self;
        Ok(Resolved { keys, options, label, class, refuses_early, deadline })
    }
}

/// A request's checked keys and options.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) keys: Sorted,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) refuses_early: Option<bool>,
    /// When the wait ends, regardless of the options.
    pub(crate) deadline: Option<Instant>,
}

/// Keys in the order of acquisition, which is the same in every process.
#[derive(Debug)]
pub(crate) struct Sorted {
    next: Option<KeyDemand>,
    rest: Vec<KeyDemand>,
}

impl Iterator for Sorted {
    type Item = KeyDemand;

    fn next(&mut self) -> Option<KeyDemand> {
        self.next.take().or_else(|| self.rest.pop())
    }
}

/// Removes duplicates from sorted keys.
fn each_once(sorted: Vec<KeyDemand>) -> Result<Vec<KeyDemand>, KeyError> {
    let mut each: Vec<KeyDemand> = Vec::with_capacity(sorted.len());
    for want in sorted {
        match each.last_mut() {
            Some(last) if last.key == want.key => last.demand = join(last.demand, want.demand)?,
            _ => each.push(want),
        }
    }
    Ok(each)
}

/// Joins demands for a name requested twice in the same call.
fn join(one: Demand, other: Demand) -> Result<Demand, KeyError> {
    let clash = || KeyError::clash(one, other);
    match one.is_permits() && one.limit() == other.limit() {
        true => {
            let sum = one.weight() + other.weight();
            let count = u32::try_from(sum);
            let limit = u32::try_from(one.limit());
            let joined = count.ok().zip(limit.ok());
            joined.and_then(|(count, limit)| Demand::permits(count, limit).ok()).ok_or_else(clash)
        }
        false if one == other => Ok(one),
        false => Err(clash()),
    }
}

impl NameDemand {
    fn prefixed(self, prefix: &str) -> Result<Self, KeyError> {
        Ok(Self { key: self.key.prefixed(prefix)?, ..self })
    }

    fn resolve(self) -> Result<KeyDemand, KeyError> {
        Ok(KeyDemand { key: self.key.resolve()?, demand: self.demand.unwrap_or(Demand::EXCLUSIVE) })
    }
}

impl Name {
    fn prefixed(self, prefix: &str) -> Result<Self, KeyError> {
        match self {
            Self::Text(text) => Ok(Self::Text(format!("{prefix}:{text}"))),
            Self::Static(text) => Ok(Self::Text(format!("{prefix}:{text}"))),
            Self::Refused(error) => Err(error),
            Self::Key(_) => Err(KeyError::misuse(
                "A LockKey takes no prefix: put the prefix into the name, or remove it from the \
                 extractor.",
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

/// Converts a result. An error refuses the request.
impl<K: Into<Keys>, E: Into<KeyError>> From<Result<K, E>> for Keys {
    fn from(keys: Result<K, E>) -> Self {
        match keys {
            Ok(keys) => keys.into(),
            Err(error) => Self::refused(error.into()),
        }
    }
}
