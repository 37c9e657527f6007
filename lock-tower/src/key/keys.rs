//! The keys of a request, with the options for this request.

use lockcore::{Demand, LockKey, LockOptions, Locks};
use tokio::time::Instant;

use crate::key::KeyError;
use crate::options::Options;

/// The keys to lock for one request, and options for this request. They override the
/// layer's options.
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
/// another demand. These methods apply to the names added so far, so different names can have
/// different demands:
///
/// ```
/// # use lock_tower::Keys;
/// let priced = Keys::one("rates").read().join(Keys::one("account:1").write());
/// let sent = Keys::one("smtp").permits(1, 10).and("account:1"); // the account is locked
/// # let _ = (priced, sent);
/// ```
///
/// The type [`Demand`] describes which demands for the same name exclude each other.
///
/// Several names are acquired one after the other, in the sorted order of the names, whatever their
/// demands are and in whatever order they were added. So the names decide which locks a request
/// already holds while it waits for the next.
///
/// A name that the request has already locked is not locked again if the existing lock covers the
/// new demand: an exclusive lock covers an exclusive lock and a read, a read covers a read. Permits
/// for the same name in the same call are added up and acquired together. Other demands for a name
/// that is already locked are refused before anything is sent ([`Clash`](crate::Clash), 500 in
/// HTTP). Otherwise an exclusive lock on a name that the request reads would wait for itself, and
/// requests that each hold a permit and need another would wait for each other. Two demands for the
/// same name in the same call are refused unless one covers the other, which then remains.
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

/// A key with its demand: exclusive, read or permits. Before the keys are resolved, `K` is an
/// unchecked [`Name`], and `D` is an `Option`, which is `None` as long as no demand is set.
#[derive(Debug, Clone)]
pub(crate) struct KeyDemand<K = LockKey, D = Demand> {
    pub(crate) key: K,
    pub(crate) demand: D,
}

/// A name that has not been checked, with the demand set so far.
type NameDemand = KeyDemand<Name, Option<Demand>>;

/// A name that has not been checked, because a prefix may still be added.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Text(String),
    Static(&'static str),
    Key(LockKey),
    /// There is no name: the request is refused with this error.
    Refused(KeyError),
}

impl Keys {
    /// Creates keys with one name. If the name is not valid for a lock, the request is refused.
    pub fn one(name: impl Into<String>) -> Self {
        Self::of(Name::Text(name.into()))
    }

    /// Creates keys with a single [`LockKey`], whose name has already been checked. An extractor
    /// with a [prefix](crate::ExtractKeyExt::prefix) refuses the request, because a `LockKey` takes
    /// no prefix.
    pub fn key(key: LockKey) -> Self {
        Self::of(Name::Key(key))
    }

    /// Creates keys that lock nothing, and refuse the request with this error.
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

    /// Adds a name to lock. A name that is added twice is locked once.
    pub fn and(mut self, name: impl Into<String>) -> Self {
        self.rest.push(KeyDemand { key: Name::Text(name.into()), demand: None });
        self
    }

    /// Locks the names added so far for reading: other requests may read them at the same time. See
    /// [`Locks::read`](lockcore::Locks::read).
    ///
    /// If a name already has a different demand, the request is refused: a [`Clash`](crate::Clash).
    /// To give several names different demands, use [`join`](Self::join).
    pub fn read(self) -> Self {
        self.demand(Demand::READ)
    }

    /// Locks the names added so far exclusively, which is the default. For use beside names that
    /// are read. If a name already has a different demand, the request is refused, as for
    /// [`read`](Self::read).
    pub fn write(self) -> Self {
        self.demand(Demand::EXCLUSIVE)
    }

    /// Acquires `count` permits of each name added so far. At most `limit` permits of a name are in
    /// use at the same time. See [`LockRequest::permits`](lockcore::LockRequest::permits). If a
    /// name already has a different demand, the request is refused, as for [`read`](Self::read).
    ///
    /// A `count` of 0 or above `limit`, or a `limit` of 2^30 or more, refuses the request as
    /// [`Misconfigured`](crate::Cause::Misconfigured), and nothing is sent.
    pub fn permits(self, count: u32, limit: u32) -> Self {
        match Demand::permits(count, limit) {
            Ok(demand) => self.demand(demand),
            Err(error) => {
                let refused = KeyError::misuse(format!("{error}."));
                self.choose_each(|_| Err(refused.clone()))
            }
        }
    }

    /// Sets how the names added so far are locked. If a name already has a different demand, the
    /// request is refused, as for [`read`](Self::read).
    pub fn demand(self, demand: Demand) -> Self {
        self.choose_each(|present| match present {
            Some(present) if present != demand => Err(KeyError::clash(present, demand)),
            _ => Ok(demand),
        })
    }

    /// Sets the demand of each name added so far to the result of `choose`, which receives the
    /// present demand, or `None` if the demand is unset. An error refuses the request.
    fn choose_each(mut self, choose: impl Fn(Option<Demand>) -> Result<Demand, KeyError>) -> Self {
        self.wants_mut().for_each(|want| match choose(want.demand) {
            Ok(demand) => want.demand = Some(demand),
            Err(error) => want.key = Name::Refused(error),
        });
        self
    }

    fn wants_mut(&mut self) -> impl Iterator<Item = &mut NameDemand> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    lockcore::option_setters! { options:
        /// Sets how long this request waits for its locks, all together. Zero does not wait: the
        /// request is refused at once if a key is busy.
        wait,
        /// Lets this request wait without a time limit.
        wait_forever,
        /// Sets how long this request waits for a store that does not respond; see
        /// [`LockLayer::store_wait`](crate::LockLayer::store_wait).
        store_wait,
        /// Sets how long this request's locks stay held after this process has died; see
        /// [`LockOptions::lease`].
        lease,
        /// Sets a lease that is not renewed, so that the locks are lost when it ends; see
        /// [`LockOptions::fixed_lease`].
        fixed_lease,
        /// Sets how many requests may wait for each key, including this request. If more would
        /// wait, this request is refused at once.
        queue_limit,
        /// Sets how long this request may hold its locks; see
        /// [`LockLayer::max_hold`](crate::LockLayer::max_hold).
        max_hold,
        /// Sets what this request does if a key is busy: wait, be refused at once, or wait only
        /// until a newer request arrives; see
        /// [`LockLayer::when_busy`](crate::LockLayer::when_busy).
        when_busy,
    }

    /// Sets several options at once. Options that are unset in `options` keep their present values.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = Options(options).or(self.options);
        self
    }

    /// Sets the label under which operators see this request in
    /// [`inspect`](lockcore::Locks::inspect), instead of the layer's label. Only the first 64 bytes
    /// are kept. Labels that differ for each request have [a
    /// cost](lockcore::LockRequest::label).
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(label.as_ref().into());
        self
    }

    /// Sets this request's label if it has none.
    pub(crate) fn label_if_none(mut self, label: &str) -> Self {
        self.label.get_or_insert_with(|| label.into());
        self
    }

    /// Sets the class by which metrics group this request, instead of the layer's class; see
    /// [`LockRequest::class`](lockcore::LockRequest::class).
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.class = Some(class.as_ref().into());
        self
    }

    /// Sets whether this request is refused at once if it would hardly be served within the wait,
    /// instead of the layer's [`refuse_early`](crate::LockLayer::refuse_early). With several keys,
    /// the queue of each key is compared with the part of the wait that is left.
    pub fn refuse_early(mut self, refuses_early: bool) -> Self {
        self.refuses_early = Some(refuses_early);
        self
    }

    /// Ends this request's wait at `deadline`, unless the [wait](Self::wait) ends earlier. After
    /// the deadline, the request does not wait at all. Of several deadlines, the earliest applies.
    pub fn wait_until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        self
    }

    /// Adds the keys of `other`, each with its demand. All keys are acquired together. If both set
    /// an option, the value of `self` is kept.
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

    /// Checks the keys, sorts them and removes duplicates, by the names in the store of `locks`: a
    /// [foreign](LockKey::foreign) key may name the same lock as another key, and processes with
    /// different namespaces may share foreign keys.
    ///
    /// # Errors
    /// A [`KeyError`] if a name is not valid for a lock, or two demands for the same name cannot be
    /// combined. The request is refused before anything is sent to the store.
    pub(crate) fn resolve(self, locks: &Locks) -> Result<Resolved, KeyError> {
        let mut first = self.first.resolve()?;
        let mut rest =
            self.rest.into_iter().map(NameDemand::resolve).collect::<Result<Vec<_>, _>>()?;
        if !rest.is_empty() {
            rest.insert(0, first);
            rest = each_once(locks.in_order(rest, |want| &want.key))?;
            // So that the next key to acquire is popped off the end.
            rest.reverse();
            first = rest.pop().expect("the keys contain at least the first");
        }
        let keys = Sorted { next: Some(first), rest };
        let Self { options, label, class, refuses_early, deadline, .. } = self;
        Ok(Resolved { keys, options, label, class, refuses_early, deadline })
    }
}

/// The checked keys and the options of a request.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) keys: Sorted,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) refuses_early: Option<bool>,
    /// The latest time at which the wait for the keys ends, even if `options` allow a longer wait;
    /// `None` without a deadline.
    pub(crate) deadline: Option<Instant>,
}

/// The keys of a request. Iterating returns them in the order of acquisition, which is the same in
/// every process, so that requests do not deadlock.
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

/// Merges the entries for the same name in a sorted list, and joins their demands.
///
/// # Errors
/// A [`KeyError`] if two demands for the same name cannot be joined.
fn each_once<N: PartialEq>(sorted: Vec<(N, KeyDemand)>) -> Result<Vec<KeyDemand>, KeyError> {
    let mut each: Vec<KeyDemand> = Vec::with_capacity(sorted.len());
    let mut last_name = None;
    for (name, want) in sorted {
        match each.last_mut() {
            Some(last) if last_name.as_ref() == Some(&name) => {
                last.demand = join(last.demand, want.demand)?;
            }
            _ => each.push(want),
        }
        last_name = Some(name);
    }
    Ok(each)
}

/// Joins the demands for a name that is requested twice in the same call. Permits with the same
/// limit are added up. Of two demands of which one covers the other, as an exclusive lock covers a
/// read, the former remains.
///
/// # Errors
/// A [`KeyError`] for all other pairs of demands, and if the sum of the permits exceeds the limit.
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
        false if one.covers(other) => Ok(one),
        false if other.covers(one) => Ok(other),
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
            // Not a lock that all requests without a value share.
            Self::Text(text) if text.is_empty() => Err(lockcore::KeyError::Empty.into()),
            Self::Static("") => Err(lockcore::KeyError::Empty.into()),
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

/// Converts the value in `Ok`. An `Err` becomes keys that refuse the request.
impl<K: Into<Keys>, E: Into<KeyError>> From<Result<K, E>> for Keys {
    fn from(keys: Result<K, E>) -> Self {
        match keys {
            Ok(keys) => keys.into(),
            Err(error) => Self::refused(error.into()),
        }
    }
}
