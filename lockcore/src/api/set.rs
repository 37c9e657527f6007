//! Acquiring several locks together: one after the other, sorted by the name in the store, so that
//! two sets never wait for each other.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select_all};
use proto::{ConfigError, LockErrorKind, LockName};
use tokio::time::Instant;

use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::api::request::LockRequest;
use crate::option_setters;
use crate::types::error::LockError;
use crate::types::key::{IntoKey, LockKey};
use crate::types::options::LockOptions;

/// The maximum number of locks in a set.
const MAX_KEYS: usize = 32;

impl Locks {
    /// Acquires all of these locks, and holds them together.
    ///
    /// The locks are acquired one after the other, sorted by their [names in the
    /// store](Self::name_of), in whatever order the keys are given. So two sets never wait for each
    /// other, and neither do a set and the layers of `lock-tower`. The first locks are held while
    /// waiting for the later locks. A task that already holds another lock can still deadlock with
    /// a set: release that lock first.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let both = locks.lock_all(["account:1", "account:2"]).await?;
    /// let [from, to] = both.guards() else { unreachable!("as many as were asked for") };
    /// println!("{} under {}, {} under {}", from.key(), from.fencing_token(), to.key(), to.fencing_token());
    /// both.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`Acquire`](crate::Acquire); no lock of the set stays held then.
    /// [`InvalidOption`](LockErrorKind::InvalidOption) for no keys, more than 32 keys, or two keys
    /// of the same lock; nothing is sent then, nor for a key that this `Locks` refuses.
    /// [`Lost`](LockErrorKind::Lost) if a lock was lost while waiting for the later locks.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue and releases the locks acquired so far.
    pub fn lock_all(&self, keys: impl IntoIterator<Item: IntoKey>) -> AcquireAll {
        let keys = keys.into_iter().map(|key| Ok(key.into_key()?)).collect();
        let request = LockRequest::without_lock(&self.backend);
        AcquireAll(Course::New {
            locks: self.clone(),
            keys: Some(keys),
            request: Box::new(request),
        })
    }

    /// Returns the names in the order in which to acquire the locks, each with its index in `keys`.
    /// Fails if there are no keys, more than 32 keys, two keys for the same lock, or a key that
    /// this `Locks` refuses.
    fn sorted(&self, keys: Vec<LockKey>) -> Result<Vec<(LockName, usize)>, LockError> {
        let count = keys.len();
        let sorted = self.in_order(keys.into_iter().zip(0..), |(key, _)| key);
        let twice = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0);
        if !(1..=MAX_KEYS).contains(&count) || twice.is_some() {
            let value = match twice {
                Some([(name, (key, _)), _]) => {
                    let name = name.as_deref().unwrap_or(key.as_str());
                    format!("{count} keys with {name:?} twice")
                }
                _ => format!("{count} keys"),
            };
            return Err(ConfigError::new("keys", value, "1 to 32 keys of different locks").into());
        }
        sorted.into_iter().map(|(_, (key, place))| Ok((self.name(key)?, place))).collect()
    }
}

async fn acquire(
    locks: Locks,
    keys: Result<Vec<LockKey>, LockError>,
    request: LockRequest,
) -> Result<LockSet, LockError> {
    let names = locks.sorted(keys?)?;
    let began = Instant::now();
    let mut guards: Vec<LockGuard> = Vec::with_capacity(names.len());
    let mut places = Vec::with_capacity(names.len());
    for (name, place) in names {
        let request = request.for_lock(name).less_wait(began.elapsed());
        let guard = tokio::select! {
            // Poll the acquisition first, because dropping an unpolled acquisition logs a warning.
            biased;
            guard = request.lock() => guard?,
            () = any_lost(&guards) => return Err(LockError::new(LockErrorKind::Lost)),
        };
        // In the poll that returns this grant, nobody has polled the losses of the others.
        if guards.iter().any(LockGuard::is_lost) {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        guards.push(guard);
        places.push(place);
    }
    let mut placed: Vec<_> = places.into_iter().zip(guards).collect();
    placed.sort_unstable_by_key(|(place, _)| *place);
    Ok(LockSet { guards: placed.into_iter().map(|(_, guard)| guard).collect() })
}

/// Completes when any of these guards is lost; never for an empty list.
async fn any_lost(guards: &[LockGuard]) {
    if guards.is_empty() {
        return pending().await;
    }
    select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
}

/// The future that acquires several locks and returns them as a [`LockSet`]. Made by
/// [`Locks::lock_all`], which documents errors, panics and cancel safety. Set options before the
/// first poll; each is as for [`LockRequest`].
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// # use std::time::Duration;
/// # let locks = lockcore::Locks::in_memory();
/// let accounts = locks.lock_all([1, 2].map(|id| format!("account:{id}")));
/// let both = accounts.wait(Duration::from_secs(5)).class("transfers").await?;
/// # drop(both);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the set"]
pub struct AcquireAll(Course);

enum Course {
    /// The future has not been polled yet.
    New {
        locks: Locks,
        /// The keys of the locks, or the error of the first invalid key, which the future returns.
        /// The first poll takes them out.
        keys: Option<Result<Vec<LockKey>, LockError>>,
        /// The template for the request of each lock: it has the options of the set, but no lock.
        request: Box<LockRequest>,
    },
    Running(Pin<Box<dyn Future<Output = Result<LockSet, LockError>> + Send>>),
}

impl AcquireAll {
    option_setters! { options:
        /// Sets the [lease](LockOptions::lease) of each lock: how long the lock stays held after
        /// this process dies. The lease is renewed while the guard lives.
        lease,
        /// Sets a lease for each lock that is [never renewed](LockOptions::fixed_lease), so the
        /// hold ends after this time. Part of the first lock's lease has passed when the last lock
        /// is acquired.
        fixed_lease,
        /// Sets the longest [wait](LockOptions::wait) for all locks together. Zero tries each lock
        /// once.
        wait,
        /// Waits for the locks [without a time limit](LockOptions::wait_forever).
        wait_forever,
        /// Sets how long each lock's request [waits for a store](LockOptions::store_wait) that does
        /// not respond.
        store_wait,
        /// Sets the maximum length of each lock's [queue](LockOptions::queue_limit), beyond which
        /// the set is refused.
        queue_limit,
        /// Sets the longest [hold](LockOptions::max_hold) of each lock; after this time its guard
        /// is lost.
        max_hold,
        /// Sets [what to do](LockOptions::when_busy) when a lock is busy: wait, fail, or wait only
        /// until a newer request is queued.
        when_busy,
    }

    /// Sets several options at once. Options that are unset in `options` stay as they are.
    pub fn options(self, options: LockOptions) -> Self {
        self.with(|request| request.options(options))
    }

    /// Sets the text that names each waiter and holder in an inspection, as with
    /// [`LockRequest::label`].
    pub fn label(self, label: impl AsRef<str>) -> Self {
        self.with(|request| request.label(label))
    }

    /// Sets the class, the name under which metrics group the requests of this set, as with
    /// [`LockRequest::class`].
    pub fn class(self, class: impl AsRef<str>) -> Self {
        self.with(|request| request.class(class))
    }

    /// If `true`, records the labels of the holders that each request waits for in the request's
    /// span, as with [`LockRequest::record_holders`].
    pub fn record_holders(self, records_holders: bool) -> Self {
        self.with(|request| request.record_holders(records_holders))
    }

    /// If `true`, refuses the set as soon as a queue is too long for the remaining wait, as with
    /// [`LockRequest::refuse_early`].
    pub fn refuse_early(self, refuses_early: bool) -> Self {
        self.with(|request| request.refuse_early(refuses_early))
    }

    /// If `true`, a request of the set fails once the store has been away for the `store_wait`,
    /// even if it is already queued, as with [`LockRequest::leave_in_outage`].
    pub fn leave_in_outage(self, leaves: bool) -> Self {
        self.with(|request| request.leave_in_outage(leaves))
    }

    fn with(mut self, change: impl FnOnce(LockRequest) -> LockRequest) -> Self {
        if let Course::New { request, .. } = &mut self.0 {
            **request = change(LockRequest::clone(request));
        }
        self
    }
}

impl Future for AcquireAll {
    type Output = Result<LockSet, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Course::New { locks, keys, request } = &mut self.0
            && let Some(keys) = keys.take()
        {
            let (locks, request) = (locks.clone(), LockRequest::clone(request));
            self.0 = Course::Running(Box::pin(acquire(locks, keys, request)));
        }
        match &mut self.0 {
            Course::Running(running) => running.as_mut().poll(cx),
            Course::New { .. } => unreachable!("the keys are present until the first poll"),
        }
    }
}

impl fmt::Debug for AcquireAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireAll").finish_non_exhaustive()
    }
}

/// Several locks held together; acquired by [`Locks::lock_all`]. Dropping the set releases them in
/// the background.
#[must_use = "dropping a set releases the locks: bind it with `let set = …`, because `_` drops it at once"]
#[derive(Debug)]
pub struct LockSet {
    guards: Vec<LockGuard>,
}

impl LockSet {
    /// Returns the guards, in the order in which the keys were given.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Takes the set apart into its guards, in the order in which the keys were given. Dropping a
    /// guard then releases its lock.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Returns true if any guard [is lost](LockGuard::is_lost).
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(LockGuard::is_lost)
    }

    /// Completes when the first guard is lost.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        any_lost(&self.guards).await;
    }

    /// Releases all locks. Returns `Ok` if all were held until then.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost) if any lock was lost before its release; else the first other
    /// error of [`LockGuard::release`]. The other locks are still released.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, all locks are released even if the future is dropped.
    pub async fn release(self) -> Result<(), LockError> {
        let releases = join_all(self.guards.into_iter().map(LockGuard::release)).await;
        let mut errors: Vec<_> = releases.into_iter().filter_map(Result::err).collect();
        match errors.iter().position(|error| error.kind() == LockErrorKind::Lost) {
            Some(lost) => Err(errors.swap_remove(lost)),
            None => errors.into_iter().next().map_or(Ok(()), Err),
        }
    }
}
