//! The locks of one request, with the request's own options.

use lockcore::{Demand, LockKey, LockOptions};
use tokio::time::Instant;

use crate::key::KeyError;
use crate::options::Options;

/// The locks that one request needs, and its own options, which count before the layer's.
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
/// A name is locked unless [`read`](Self::read) or [`permits`](Self::permits) sets another demand.
/// They set it for the names so far, so several names can have a demand each:
///
/// ```
/// # use lock_tower::Keys;
/// let priced = Keys::one("rates").read().join(Keys::one("account:1").write());
/// let sent = Keys::one("smtp").permits(1, 10).and("account:1"); // the account is locked
/// # let _ = (priced, sent);
/// ```
///
/// [`Demand`] says which demands of one name exclude each other.
///
/// In one request, a name that is asked for again is shared if the existing hold covers the new
/// demand: a lock for a lock, a read for a read, a lock for a read. Permits of one name that are
/// asked for at once are acquired at once. Any other demand of a name that the request has is
/// refused before anything is sent ([`Clash`](crate::Clash), 500 in HTTP): a lock of a name that it
/// reads would wait for itself, and requests that have a permit each and ask for one more would
/// wait for each other. Two different demands of one name at once are refused, too.
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

/// A key and its demand; `None` as long as no demand is set.
#[derive(Debug, Clone)]
pub(crate) struct KeyDemand<K = LockKey, D = Demand> {
    pub(crate) key: K,
    pub(crate) demand: D,
}

/// A name and its demand, before the name is checked.
type NameDemand = KeyDemand<Name, Option<Demand>>;

/// A name that is checked last, so that a prefix can still be put before it.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Text(String),
    Static(&'static str),
    Key(LockKey),
    /// No name: the request is refused.
    Refused(KeyError),
}

impl Keys {
    /// One lock. A name that no lock can have refuses the request.
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
        let first = KeyDemand { key: first, demand: None };
        let (options, label, class, deadline) = (Options::default(), None, None, None);
        Self { first, rest: Vec::new(), options, label, class, refuses_early: None, deadline }
    }

    /// Adds a lock. The same name twice is one lock.
    pub fn and(mut self, name: impl Into<String>) -> Self {
        self.rest.push(KeyDemand { key: Name::Text(name.into()), demand: None });
        self
    }

    /// Reads the names so far: others may read them at the same time. See
    /// [`Locks::read`](lockcore::Locks::read).
    ///
    /// A name that already has another demand refuses the request: a [`Clash`](crate::Clash). For
    /// several names with a demand each see [`join`](Self::join).
    pub fn read(self) -> Self {
        self.demand(Demand::READ)
    }

    /// Locks the names so far, which is the default: for names that are read, too. See
    /// [`read`](Self::read) for a name that already has another demand.
    pub fn write(self) -> Self {
        self.demand(Demand::EXCLUSIVE)
    }

    /// Takes `count` of `limit` permits of each name so far. See
    /// [`LockRequest::permits`](lockcore::LockRequest::permits), and [`read`](Self::read) for a
    /// name that already has another demand.
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

    /// Sets the demand of the names so far; see [`read`](Self::read) for a name that already has
    /// another demand.
    pub fn demand(self, demand: Demand) -> Self {
        self.say_each(|said| match said {
            Some(said) if said != demand => Err(KeyError::clash(said, demand)),
            _ => Ok(demand),
        })
    }

    /// Sets the demand of each name so far, or refuses the request.
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
        /// The longest wait of this request, for all its locks together. Zero does not wait.
        wait,
        /// Waits without a limit.
        wait_forever,
        /// The longest wait for the store; see
        /// [`LockLayer::store_wait`](crate::LockLayer::store_wait).
        store_wait,
        /// The lease of this request's hold; see [`LockOptions::lease`].
        lease,
        /// A lease that is never renewed; see [`LockOptions::fixed_lease`].
        fixed_lease,
        /// The most requests that may wait for this key, this one included.
        queue_limit,
        /// The longest hold of this request; see
        /// [`LockLayer::max_hold`](crate::LockLayer::max_hold).
        max_hold,
        /// The course of this request if its key is busy; see
        /// [`LockLayer::when_busy`](crate::LockLayer::when_busy).
        when_busy,
    }

    /// Sets several options at once. An option that they leave open stays as it is.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = Options(options).or(self.options);
        self
    }

    /// Sets the label of this request in [`inspect`](lockcore::Locks::inspect), for operators, in
    /// place of the layer's. At most 64 bytes; the rest is cut.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(label.as_ref().into());
        self
    }

    /// Sets the label, unless there is one.
    pub(crate) fn label_if_none(mut self, label: &str) -> Self {
        self.label.get_or_insert_with(|| label.into());
        self
    }

    /// Sets the class of this request, in place of the layer's; see
    /// [`LockRequest::class`](lockcore::LockRequest::class).
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.class = Some(class.as_ref().into());
        self
    }

    /// Whether this request is refused at once where it would hardly be served within its wait, in
    /// place of the layer's [`refuse_early`](crate::LockLayer::refuse_early). Of several keys, each
    /// is judged by its own queue, with the rest of the wait.
    pub fn refuse_early(mut self, refuses_early: bool) -> Self {
        self.refuses_early = Some(refuses_early);
        self
    }

    /// Ends the wait of this request at this time, if its [wait](Self::wait) does not end before.
    /// One whose time has passed does not wait. Of several deadlines, the earliest counts.
    pub fn wait_until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        self
    }

    /// Joins the locks of both, each with its demand; they are acquired together. Where both set an
    /// option, that of `self` counts.
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

    /// The names, in the order in which they were given.
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

    /// Checks the keys, sorts them and removes repetitions.
    ///
    /// # Errors
    /// The mistake for which the request is refused before anything is sent for it.
    pub(crate) fn resolve(self) -> Result<Resolved, KeyError> {
        let mut first = self.first.resolve()?;
        let mut rest =
            self.rest.into_iter().map(NameDemand::resolve).collect::<Result<Vec<_>, _>>()?;
        if !rest.is_empty() {
            rest.insert(0, first);
            // Descending, so that the next key to acquire is popped off the end.
            rest.sort_by(|one, other| other.key.cmp(&one.key));
            rest = each_once(rest)?;
            first = rest.pop().expect("it has at least the first");
        }
        let keys = Sorted { next: Some(first), rest };
        let Self { options, label, class, refuses_early, deadline, .. } = self;
        Ok(Resolved { keys, options, label, class, refuses_early, deadline })
    }
}

/// The checked keys and options of one request.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) keys: Sorted,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) refuses_early: Option<bool>,
    /// The end of the wait, whatever the options say.
    pub(crate) deadline: Option<Instant>,
}

/// Keys in the order in which every process acquires them.
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

/// Sorted keys without repetitions.
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

/// Joins two demands of a name that is asked for twice at once.
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

/// Keys of a result. An error refuses the request.
impl<K: Into<Keys>, E: Into<KeyError>> From<Result<K, E>> for Keys {
    fn from(keys: Result<K, E>) -> Self {
        match keys {
            Ok(keys) => keys.into(),
            Err(error) => Self::refused(error.into()),
        }
    }
}
