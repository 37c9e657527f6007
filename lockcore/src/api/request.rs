//! [`LockRequest`], a builder for an acquisition with custom options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proto::layout::Ability;
use proto::node::Request;
use proto::{ConfigError, Demand, Label, LockErrorKind, LockName, Mode, WhenBusy};

use crate::api::acquire::{Acquire, TryAcquire};
use crate::api::guard::LockGuard;
use crate::backend::{Acquisition, Backend};
use crate::node::class::Class;
use crate::node::{LocalOptions, begin_class};
use crate::option_setters;
use crate::types::error::LockError;
use crate::types::options::{LockOptions, Wait};

/// A builder for a single acquisition with custom options; made by
/// [`Locks::key`](crate::Locks::key). Set options, and then acquire by a method such as
/// [`lock`](Self::lock) or [`try_read`](Self::try_read). An option not set here has the
/// [default](crate::LocksBuilder::defaults) of the `Locks`.
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// # use std::time::Duration;
/// # let locks = lockcore::Locks::in_memory();
/// let guard = locks
///     .key("order:42")
///     .lease(Duration::from_secs(10))
///     .wait(Duration::from_secs(5))
///     .queue_limit(100)
///     .label("checkout")
///     .lock()
///     .await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "call lock(), read(), permits() or another that acquires"]
pub struct LockRequest {
    backend: Backend,
    lock: Result<LockName, LockError>,
    options: LockOptions,
    label: Label,
    class: Arc<Class>,
    local: LocalOptions,
}

impl LockRequest {
    pub(crate) fn new(backend: &Backend, lock: Result<LockName, LockError>) -> Self {
        let node = backend.node();
        let options = node.settings.defaults;
        let label = node.settings.label.clone();
        let class = node.classes.unnamed();
        let records_holders = node.settings.trace_links.is_some();
        let local = LocalOptions { is_labelled: false, records_holders, ..LocalOptions::LABELLED };
        Self { backend: backend.clone(), lock, options, label, class, local }
    }

    /// Creates a request that carries the options for a set of locks, but no lock.
    /// [`for_lock`](Self::for_lock) adds the lock: otherwise acquiring fails with `InvalidKey`.
    pub(crate) fn without_lock(backend: &Backend) -> Self {
        Self::new(backend, Err(LockError::new(LockErrorKind::InvalidKey)))
    }

    /// Returns a copy of this request for another lock.
    pub(crate) fn for_lock(&self, lock: LockName) -> Self {
        Self { lock: Ok(lock), ..self.clone() }
    }

    /// Shortens the longest wait of this request by `spent`, the time already spent on other locks
    /// of the set. A wait without a limit stays unlimited.
    pub(crate) fn less_wait(mut self, spent: Duration) -> Self {
        if let Some(Wait::AtMost(wait)) = self.options.get_wait() {
            self.options = self.options.wait(wait.saturating_sub(spent));
        }
        self
    }

    /// Returns the longest wait of this request, or `None` if neither the request nor the `Locks`
    /// sets a wait. For lock-tower.
    #[doc(hidden)]
    pub fn get_wait(&self) -> Option<Wait> {
        self.options.get_wait()
    }

    option_setters! { options:
        /// Sets the [lease](LockOptions::lease): how long the lock stays held after this process
        /// dies. The lease is renewed while the guard lives.
        lease,
        /// Sets a lease that is [never renewed](LockOptions::fixed_lease), so the hold ends after
        /// this time, even if the guard still lives.
        fixed_lease,
        /// Sets the longest [wait](LockOptions::wait) for the lock. Zero tries once.
        wait,
        /// Waits for the lock [without a time limit](LockOptions::wait_forever).
        wait_forever,
        /// Sets how long to [wait for a store](LockOptions::store_wait) that does not respond.
        store_wait,
        /// Sets the maximum length of the lock's [queue](LockOptions::queue_limit), beyond which
        /// the request is refused.
        queue_limit,
        /// Sets the longest [hold](LockOptions::max_hold); after this time the guard is lost.
        max_hold,
        /// Sets [what to do](LockOptions::when_busy) when the lock is busy: wait, fail, or wait
        /// only until a newer request is queued.
        when_busy,
    }

    /// Sets several options at once. Options that are unset in `options` stay as they are.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Sets the label: a text that names this waiter or holder in
    /// [`inspect`](crate::Locks::inspect); cut to 64 bytes. A [`TraceParent`](crate::TraceParent)
    /// fits. The default is the label of the [`Locks`](crate::LocksBuilder::label). Waiters with
    /// different labels share no [batch](crate::LocksBuilder::batch_limit), so after each of them
    /// the lock is handed off by the server.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Label::new(label.as_ref());
        self.local.is_labelled = true;
        self
    }

    /// Sets the class of this request in [metrics](crate::guide::observability),
    /// [`status_by_class`](crate::Locks::status_by_class) and [`activity`](crate::Locks::activity).
    /// The default is the class of the [`Locks`](crate::LocksBuilder::class), or else `default`.
    ///
    /// A class names a use of locks, such as a route or "wallet". Do not use lock names: a metrics
    /// recorder keeps each class for good. Cut to 64 bytes. After 1 000 classes of a `Locks`,
    /// further classes share the name `other`.
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.class = self.backend.node().classes.get(class.as_ref());
        begin_class(&self.class);
        self
    }

    /// If `true`, records which holders this request waits for. When the request is queued, the
    /// labels of the holders are added to the field `holder` of the span `acquire`; if there are
    /// more than eight holders, the labels of the eight whose leases end first. If labels are trace
    /// contexts, this shows which request holds the lock: see
    /// [`guide::observability`](crate::guide::observability#the-request-that-holds-the-lock).
    ///
    /// Off by default, except with [`trace_links`](crate::LocksBuilder::trace_links), because each
    /// queued request costs an [inspection](crate::Locks::inspect_part) of the holders. The cost
    /// does not grow with the queue. Has no effect unless a subscriber accepts spans at `debug`.
    pub fn record_holders(mut self, records_holders: bool) -> Self {
        self.local.records_holders = records_holders;
        self
    }

    /// If `true`, refuses the request at once, with [`WaitTooLong`](LockErrorKind::WaitTooLong), if
    /// the lock would hardly be granted within the [wait](Self::wait): the waiters ahead would take
    /// longer even if all their holds were short. A hold counts as short if about nine of ten past
    /// holds lasted longer. The error's [`retry_after`](LockError::retry_after) is how long the
    /// queue is expected to take.
    ///
    /// The hold times are estimated for each [class](Self::class) and `Locks`, from the first
    /// request that refuses early. Until 100 holds are known, and without a wait limit, nothing is
    /// refused. [`guide::overload`](crate::guide::overload) describes how far estimates can be
    /// trusted.
    pub fn refuse_early(mut self, refuses_early: bool) -> Self {
        self.local.refuses_early = refuses_early;
        self
    }

    /// If `true`, the request fails with the store's error once the store has been away for the
    /// [`store_wait`](Self::store_wait), even if it is already queued. Off by default: a queued
    /// request keeps its position as long as the server does, and may be served when the store is
    /// back.
    ///
    /// For callers that continue without the lock during an outage, as with `fail_open` of
    /// lock-tower's layers. With [`require_fsync`](crate::LocksBuilder::require_fsync), `true` is
    /// an [`InvalidOption`](LockErrorKind::InvalidOption).
    pub fn leave_in_outage(mut self, leaves: bool) -> Self {
        self.local.leaves_in_outage = leaves;
        self
    }

    /// Acquires `demand`, which is a lock, a read or a number of permits, waiting for at most the
    /// [wait](Self::wait). While the request waits for enough permits, the free permits are kept
    /// for it: later requests for fewer permits do not overtake. Errors, panics and cancel safety:
    /// see [`Acquire`].
    pub fn acquire(self, demand: Demand) -> Acquire {
        self.start(Ok(demand))
    }

    /// Tries to acquire `demand` once; returns `Ok(None)` instead of waiting if the lock is busy.
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_acquire(self, demand: Demand) -> TryAcquire {
        self.try_once(Ok(demand))
    }

    /// Acquires the lock, which excludes all other holds of the name: [`acquire`](Self::acquire)
    /// with [`Demand::EXCLUSIVE`].
    pub fn lock(self) -> Acquire {
        self.acquire(Demand::EXCLUSIVE)
    }

    /// Acquires the lock with the options of this request, runs `section` under it, stops it if the
    /// hold is lost, and releases the lock afterwards.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let request = locks.key("wallet:7").wait(Duration::from_secs(5));
    /// let sum = request.with(async |_hold| 1 + 1).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// Errors, panics and cancel safety: see [`Locks::with`](crate::Locks::with).
    pub async fn with<F, T>(self, section: F) -> Result<T, LockError>
    where
        F: AsyncFnOnce(&LockGuard) -> T,
    {
        let guard = self.lock().await?;
        let value = tokio::select! {
            value = section(&guard) => value,
            () = guard.lost() => return Err(LockError::new(LockErrorKind::Lost)),
        };
        // Before the release, which reports another error if the runtime of the `Locks` has ended.
        if guard.is_lost() {
            return Err(LockError::new(LockErrorKind::Lost));
        }
        match guard.release().await {
            Err(error) if error.kind() == LockErrorKind::Lost => Err(error),
            // Unavailable: the lease had not expired, and the release continues in the background.
            _ => Ok(value),
        }
    }

    /// Tries to acquire the lock once: [`try_acquire`](Self::try_acquire) with
    /// [`Demand::EXCLUSIVE`].
    pub fn try_lock(self) -> TryAcquire {
        self.try_acquire(Demand::EXCLUSIVE)
    }

    /// Acquires a read, which excludes locks of the name but not other reads:
    /// [`acquire`](Self::acquire) with [`Demand::READ`].
    pub fn read(self) -> Acquire {
        self.acquire(Demand::READ)
    }

    /// Tries to acquire a read once: [`try_acquire`](Self::try_acquire) with [`Demand::READ`].
    pub fn try_read(self) -> TryAcquire {
        self.try_acquire(Demand::READ)
    }

    /// An alias of [`lock`](Self::lock), for names that are also read-locked.
    pub fn write(self) -> Acquire {
        self.lock()
    }

    /// An alias of [`try_lock`](Self::try_lock), for names that are also read-locked.
    pub fn try_write(self) -> TryAcquire {
        self.try_lock()
    }

    /// Acquires `count` of `limit` permits: [`acquire`](Self::acquire) with [`Demand::permits`]. A
    /// `count` outside 1 to `limit`, or a `limit` above 2^30 - 1, is an
    /// [`InvalidOption`](LockErrorKind::InvalidOption), and nothing is sent.
    pub fn permits(self, count: u32, limit: u32) -> Acquire {
        self.start(Demand::permits(count, limit))
    }

    /// Tries to acquire `count` of `limit` permits once: [`try_acquire`](Self::try_acquire) with
    /// [`Demand::permits`]. The ranges are as for [`permits`](Self::permits).
    pub fn try_permits(self, count: u32, limit: u32) -> TryAcquire {
        self.try_once(Demand::permits(count, limit))
    }

    fn start(self, demand: Result<Demand, ConfigError>) -> Acquire {
        let is_of_permits = is_of_permits(&demand);
        Acquire { acquisition: self.acquisition(Mode::Wait, demand), is_of_permits }
    }

    fn try_once(self, demand: Result<Demand, ConfigError>) -> TryAcquire {
        let is_of_permits = is_of_permits(&demand);
        TryAcquire { acquisition: self.acquisition(Mode::Try, demand), is_of_permits }
    }

    fn acquisition(self, mode: Mode, demand: Result<Demand, ConfigError>) -> Acquisition {
        let (backend, class) = (self.backend.clone(), Arc::clone(&self.class));
        let local = LocalOptions { store_wait: self.options.get_store_wait(), ..self.local };
        backend.acquire(self.build(mode, demand), class, local)
    }

    /// Checks the options and builds the request. Fails for an option out of range, and for a
    /// demand or an option that the store does not support. The request waits in the queue if
    /// `mode` is [`Mode::Wait`], unless the options have a wait of zero or [`WhenBusy::Refuse`].
    fn build(self, mode: Mode, demand: Result<Demand, ConfigError>) -> Result<Request, LockError> {
        let demand = demand?;
        let terms = self.options.checked()?;
        let settings = &self.backend.node().settings;
        if let Some(confirmation) = &settings.confirmation {
            confirmation.check_lease(terms.lease)?;
            confirmation.check_outage(self.local.leaves_in_outage)?;
        }
        let mode = match (terms.when_busy, terms.wait) {
            (WhenBusy::Refuse, _) | (_, Some(Duration::ZERO)) => Mode::Try,
            _ => mode,
        };
        if demand != Demand::EXCLUSIVE {
            settings.can(Ability::Parts)?;
        }
        if mode == Mode::Wait && terms.when_busy == WhenBusy::KeepNewest {
            if demand != Demand::EXCLUSIVE {
                let range = "Wait or Refuse for reads and permits";
                return Err(ConfigError::new("when_busy", "KeepNewest", range).into());
            }
            settings.can(Ability::KeepNewest)?;
        }
        Ok(Request { lock: self.lock?, options: terms, mode, label: self.label, demand })
    }
}

fn is_of_permits(demand: &Result<Demand, ConfigError>) -> bool {
    demand.as_ref().is_ok_and(|demand| demand.is_permits())
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = match &self.lock {
            Ok(_) if self.backend.node().settings.redact_names => "(redacted)",
            Ok(lock) => lock.as_str(),
            Err(_) => "(invalid)",
        };
        f.debug_struct("LockRequest")
            .field("lock", &lock)
            .field("options", &self.options)
            .field("label", &self.label)
            .field("class", &self.class.name)
            .finish_non_exhaustive()
    }
}
