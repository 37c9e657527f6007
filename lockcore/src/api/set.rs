//! Several locks at once: sorted, one after the other.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select_all};
use proto::{ConfigError, LockErrorKind};
use tokio::time::Instant;

use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::api::request::LockRequest;
use crate::option_setters;
use crate::types::error::LockError;
use crate::types::key::{IntoKey, LockKey};
use crate::types::options::LockOptions;

/// Most locks of one set.
const MAX_KEYS: usize = 32;

impl Locks {
    /// Acquires all of these locks, and holds them together.
    ///
    /// They are acquired one after the other, in the sorted order of their names, in whichever
    /// order they are given. So two sets never wait for each other, and neither do a set and the
    /// layers of `lock-tower`. The first ones are held while the later ones are waited for. A task
    /// that already holds a lock can still block itself and others by asking for more: release it
    /// first.
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
    /// Those of [`lock`](Self::lock), and then none is held.
    /// [`InvalidOption`](LockErrorKind::InvalidOption) for no key, more than 32 keys, or two that
    /// name one lock; nothing is sent then. [`Lost`](LockErrorKind::Lost) if one was lost while the
    /// later ones were waited for.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue and releases the locks acquired so far.
    pub fn lock_all(&self, keys: impl IntoIterator<Item: IntoKey>) -> AcquireAll {
        let keys = keys.into_iter().map(|key| Ok(key.into_key()?)).collect();
        let request = LockRequest::without_lock(&self.node, self.quorum.as_ref());
        AcquireAll(Course::New {
            locks: self.clone(),
            keys: Some(keys),
            request: Box::new(request),
        })
    }

    /// The keys with their places in the call, sorted.
    fn sorted(&self, keys: Vec<LockKey>) -> Result<Vec<(LockKey, usize)>, LockError> {
        let namespace = self.node.settings.namespace.as_deref();
        let mut names: Vec<_> = keys.iter().map(|key| key.clone().resolve(namespace)).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        if keys.is_empty() || keys.len() > MAX_KEYS || twice.is_some() {
            let value = match twice {
                Some(pair) => {
                    format!("{} keys, {:?} twice among them", keys.len(), pair[0].as_str())
                }
                None => format!("{} keys", keys.len()),
            };
            return Err(ConfigError::new("keys", value, "1 to 32 keys of different locks").into());
        }
        // By the keys and not by the names, as lock-tower sorts them.
        let mut sorted: Vec<_> = keys.into_iter().zip(0..).collect();
        sorted.sort_unstable();
        Ok(sorted)
    }
}

async fn acquire(
    locks: Locks,
    keys: Result<Vec<LockKey>, LockError>,
    request: LockRequest,
) -> Result<LockSet, LockError> {
    let keys = locks.sorted(keys?)?;
    let began = Instant::now();
    let mut guards: Vec<LockGuard> = Vec::with_capacity(keys.len());
    let mut places = Vec::with_capacity(keys.len());
    for (key, place) in keys {
        let request = request.for_lock(locks.name(key)).less_wait(began.elapsed());
        let guard = tokio::select! {
            // The acquisition first: one that is dropped unpolled is warned of.
            biased;
            guard = request.lock() => guard?,
            () = any_lost(&guards) => return Err(LockError::new(LockErrorKind::Lost)),
        };
        guards.push(guard);
        places.push(place);
    }
    let mut placed: Vec<_> = places.into_iter().zip(guards).collect();
    placed.sort_unstable_by_key(|(place, _)| *place);
    Ok(LockSet { guards: placed.into_iter().map(|(_, guard)| guard).collect() })
}

/// Completes when one of them is lost.
async fn any_lost(guards: &[LockGuard]) {
    if guards.is_empty() {
        return pending().await;
    }
    select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
}

/// Waits for several locks; made by [`Locks::lock_all`], which has its errors, panics and cancel
/// safety. Options are those of a [`LockRequest`], and do nothing once it has been polled.
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
    /// Not polled yet.
    New {
        locks: Locks,
        /// Taken by the first poll.
        keys: Option<Result<Vec<LockKey>, LockError>>,
        /// The options of each request.
        request: Box<LockRequest>,
    },
    Running(Pin<Box<dyn Future<Output = Result<LockSet, LockError>> + Send>>),
}

impl AcquireAll {
    option_setters! { options:
        /// Sets the [lease](LockOptions::lease) of each, which the watchdog renews.
        lease,
        /// Sets a lease of each that is [never renewed](LockOptions::fixed_lease). That of the
        /// first lock is a part over when the last one is acquired.
        fixed_lease,
        /// Sets the longest [wait](LockOptions::wait) for all of them together. Zero tries once.
        wait,
        /// Waits [without a limit](LockOptions::wait_forever).
        wait_forever,
        /// Sets the longest [wait for the store](LockOptions::store_wait), for each of them.
        store_wait,
        /// Sets the most waiters that each [queue](LockOptions::queue_limit) may have.
        queue_limit,
        /// Sets the longest [hold](LockOptions::max_hold) of each.
        max_hold,
        /// Sets the course of each request whose lock is [busy](LockOptions::when_busy).
        when_busy,
    }

    /// Sets several options at once. An option that they leave open stays as it is.
    pub fn options(self, options: LockOptions) -> Self {
        self.with(|request| request.options(options))
    }

    /// Names each waiter or holder, as [`LockRequest::label`] does.
    pub fn label(self, label: impl AsRef<str>) -> Self {
        self.with(|request| request.label(label))
    }

    /// Sets the class of each request, as [`LockRequest::class`] does.
    pub fn class(self, class: impl AsRef<str>) -> Self {
        self.with(|request| request.class(class))
    }

    /// Records the holders that each request waits for, as [`LockRequest::record_holders`] does.
    pub fn record_holders(self, records_holders: bool) -> Self {
        self.with(|request| request.record_holders(records_holders))
    }

    /// Refuses the set as soon as one of its queues is too long for the wait that is left, as
    /// [`LockRequest::refuse_early`] does.
    pub fn refuse_early(self, refuses_early: bool) -> Self {
        self.with(|request| request.refuse_early(refuses_early))
    }

    /// Leaves a queue once the store has been away for too long, as
    /// [`LockRequest::leave_in_outage`] does.
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
            Course::New { .. } => unreachable!("it has its keys until the first poll"),
        }
    }
}

impl fmt::Debug for AcquireAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireAll").finish_non_exhaustive()
    }
}

/// Several held locks; acquired by [`Locks::lock_all`]. Dropping it releases them in the
/// background.
#[must_use = "locks whose guards are dropped are released at once: write `let set = …`, since `_` drops it, too"]
#[derive(Debug)]
pub struct LockSet {
    guards: Vec<LockGuard>,
}

impl LockSet {
    /// The guards, in the order in which their keys were given.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The guards themselves: each is released when it is dropped.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Whether one of them [is lost](LockGuard::is_lost).
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(LockGuard::is_lost)
    }

    /// Completes when the first of them is lost.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        any_lost(&self.guards).await;
    }

    /// Releases all of them, and reports whether all were held until then.
    ///
    /// # Errors
    /// As [`LockGuard::release`]: [`Lost`](LockErrorKind::Lost) if one of them was lost, else the
    /// first other error. The others are released all the same.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, all of them are released even if the future is dropped.
    pub async fn release(self) -> Result<(), LockError> {
        let releases = join_all(self.guards.into_iter().map(LockGuard::release)).await;
        let mut errors: Vec<_> = releases.into_iter().filter_map(Result::err).collect();
        match errors.iter().position(|error| error.kind() == LockErrorKind::Lost) {
            Some(lost) => Err(errors.swap_remove(lost)),
            None => errors.into_iter().next().map_or(Ok(()), Err),
        }
    }
}
