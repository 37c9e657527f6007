//! [`Locks`], the entry point of the API.

use std::borrow::Cow;
use std::time::Duration;

use proto::{Command, LockErrorKind, LockName, NodeId};

use crate::api::acquire::{Acquire, TryAcquire};
use crate::api::guard::LockGuard;
use crate::api::layout::NO_FOREIGN_NAMES;
use crate::api::request::LockRequest;
use crate::api::shutdown::Shutdown;
use crate::backend::Backend;
use crate::operate::inspection::LockInspection;
use crate::operate::status::Status;
use crate::types::error::LockError;
use crate::types::key::{self, IntoKey, LockKey};

/// The entry point: acquires fair locks in a store, such as a Redis server. Cheap to clone.
///
/// All clones share a *node*, the identity under which the server knows them. A node has a
/// connection for commands and another for messages, however many locks it holds and waits for. On
/// a [Redis Cluster](crate::guide::redis) and a [quorum](crate::guide::quorum) there are two
/// connections to each primary. [`require_replicas`](crate::LocksBuilder::require_replicas) or
/// [`require_fsync`](crate::LocksBuilder::require_fsync) adds up to four to each primary. With
/// Sentinel, there is also a connection to each sentinel.
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::Locks;
///
/// let locks = Locks::in_memory(); // or Locks::connect("redis://127.0.0.1/").await?
/// let guard = locks.lock("order:42").await?;
/// println!("acquired, with token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) backend: Backend,
}

impl Locks {
    /// Acquires the lock: waits, in order of arrival among all processes, until no other lock,
    /// [read](Self::read) or [permit](Self::permit) of the name is held. The wait has no limit
    /// unless the [defaults](crate::LocksBuilder::defaults) of this `Locks` set one. To limit the
    /// wait of this request, use [`lock_timeout`](Self::lock_timeout), or for more options
    /// [`key`](Self::key): `locks.key("k").wait(limit).lock()`.
    ///
    /// A task that already holds the lock must not acquire it again, because it would wait for
    /// itself. Share the hold with [`LockGuard::reenter`](crate::LockGuard::reenter) instead.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    pub fn lock(&self, key: impl IntoKey) -> Acquire {
        self.key(key).lock()
    }

    /// Acquires the lock if it is free and has no waiters; otherwise returns `Ok(None)`, without
    /// waiting.
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_lock(&self, key: impl IntoKey) -> TryAcquire {
        self.key(key).try_lock()
    }

    /// Acquires the lock, waiting at most `wait`; after that, fails with
    /// [`Timeout`](LockErrorKind::Timeout). A `wait` of zero tries once, which takes at most the
    /// [request timeout](crate::LocksBuilder::request_timeout).
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    pub fn lock_timeout(&self, key: impl IntoKey, wait: Duration) -> Acquire {
        self.key(key).wait(wait).lock()
    }

    /// Acquires a read, which excludes locks of the name but not other reads: waits until no lock
    /// of the name is held and no request waits ahead. Reads, locks and permits of a name are
    /// served in order of arrival, so reads cannot starve a lock.
    ///
    /// Reads and permits of a name can be held at the same time, up to 2^30 in total. For the limit
    /// of a permit request, a held read counts as a permit in use.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let one = locks.read("doc:7").await?;
    /// let other = locks.read("doc:7").await?; // at the same time
    /// assert_eq!(one.fencing_token(), other.fencing_token());
    /// assert!(locks.try_lock("doc:7").await?.is_none());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn read(&self, key: impl IntoKey) -> Acquire {
        self.key(key).read()
    }

    /// Acquires a read if no lock of the name is held and no request waits; otherwise returns
    /// `Ok(None)`.
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_read(&self, key: impl IntoKey) -> TryAcquire {
        self.key(key).try_read()
    }

    /// An alias of [`lock`](Self::lock), for names that are also read-locked.
    pub fn write(&self, key: impl IntoKey) -> Acquire {
        self.lock(key)
    }

    /// An alias of [`try_lock`](Self::try_lock), for names that are also read-locked.
    pub fn try_write(&self, key: impl IntoKey) -> TryAcquire {
        self.try_lock(key)
    }

    /// Acquires a permit for the name, and waits until one is free: at most `limit` permits can be
    /// held at the same time.
    ///
    /// The limit is part of each request, so no setup is needed. Use the same limit in all requests
    /// for a name, defined in one place. A request is granted if the permits in use plus the
    /// requested number do not exceed the limit of the request. [`LockRequest::permits`] takes
    /// several permits at once. A limit outside 1 to 2^30 - 1 is an
    /// [`InvalidOption`](LockErrorKind::InvalidOption), and nothing is sent.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let permit = locks.permit("smtp", 10).await?; // one of ten permits across all processes
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn permit(&self, key: impl IntoKey, limit: u32) -> Acquire {
        self.key(key).permits(1, limit)
    }

    /// Acquires a permit if one is free and there are no waiters; otherwise returns `Ok(None)`. The
    /// limit is as for [`permit`](Self::permit).
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_permit(&self, key: impl IntoKey, limit: u32) -> TryAcquire {
        self.key(key).try_permits(1, limit)
    }

    /// Creates a request for the lock, to set options such as the lease or the longest wait before
    /// it is acquired. An invalid `key` is reported when the request is acquired, for example by
    /// [`LockRequest::lock`].
    pub fn key(&self, key: impl IntoKey) -> LockRequest {
        LockRequest::new(&self.backend, self.name(key))
    }

    /// Runs `section` under the lock, stops it if the hold is lost, and releases the lock
    /// afterwards. For other options than the defaults, such as a wait, see [`LockRequest::with`].
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let sum = locks.with("wallet:7", async |hold| {
    ///     println!("token {}", hold.fencing_token());
    ///     1 + 1
    /// }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// Write an async closure, `async |hold| {…}`: the form `|hold| async {…}` does not compile
    /// ("not general enough"). The future is `Send` if the section's is, so it can be spawned.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and [`Lost`](LockErrorKind::Lost) if the hold ended before the
    /// release; the value of a finished `section` is then dropped. Other errors of the release are
    /// not returned, because the release continues in the background.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future drops `section` at the current await point and releases the lock.
    pub async fn with<F, T>(&self, key: impl IntoKey, section: F) -> Result<T, LockError>
    where
        F: AsyncFnOnce(&LockGuard) -> T,
    {
        self.key(key).with(section).await
    }

    /// Returns the holders and waiters of the lock, with the waiters in queue order. For operators.
    /// At most 50 000 of each are read; [`holding`](LockInspection::holding) and
    /// [`waiting`](LockInspection::waiting) count the others too, and
    /// [`inspect_part`](Self::inspect_part) reads later waiters. On a
    /// [quorum](crate::guide::quorum), returns the holders at each reachable primary, and the
    /// waiters at the first primary in the list that responds.
    ///
    /// # Errors
    /// [`LockError`] if the key is invalid or the store does not respond; on a quorum, if no
    /// primary does.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Can be dropped at any point: it changes nothing.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<LockInspection, LockError> {
        self.inspect_by(key, Command::INSPECT).await
    }

    /// Returns part of an [inspection](Self::inspect): at most `most` holders, and at most `most`
    /// waiters after skipping the first `from` waiters in the queue; on a quorum, at each primary.
    /// The cost on the server grows with the number returned, not with the queue. A `most` of 0
    /// counts as 1, and a `most` above 50 000 as 50 000.
    ///
    /// # Errors
    /// [`LockError`] if the key is invalid or the store does not respond; on a quorum, if no
    /// primary does.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Can be dropped at any point: it changes nothing.
    pub async fn inspect_part(
        &self,
        key: impl IntoKey,
        from: u32,
        most: u32,
    ) -> Result<LockInspection, LockError> {
        self.inspect_by(key, Command::inspect(from, most)).await
    }

    async fn inspect_by(
        &self,
        key: impl IntoKey,
        command: Command,
    ) -> Result<LockInspection, LockError> {
        let lock = self.name(key)?;
        self.backend.inspect(lock, command).await
    }

    /// Releases all holds of the name in place of their holders, and grants the name to the next
    /// waiters. The unserved members of the holder's [batch](crate::LocksBuilder::batch_limit)
    /// queue behind these. For operators.
    ///
    /// The guards of the released holds are lost, but the work under them is not stopped: only a
    /// resource that checks the [fencing token](crate::guide::fencing) refuses its writes. Release
    /// your own hold through the guard: [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// Returns true if the name was held. On a [quorum](crate::guide::quorum), all responding
    /// primaries release the name.
    ///
    /// # Errors
    /// [`LockError`] if the key is invalid or the store does not respond. On a quorum, if fewer
    /// than a majority of primaries respond; the responding primaries have released the name even
    /// then.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, the lock may be released even if the future is dropped.
    pub async fn force_release(&self, key: impl IntoKey) -> Result<bool, LockError> {
        let lock = self.name(key)?;
        self.backend.force_release(lock).await
    }

    /// Checks that the store responds; on a [quorum](crate::guide::quorum), that a majority of
    /// primaries do.
    ///
    /// # Errors
    /// [`LockError`], within twice the request timeout, if the store does not respond.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Can be dropped at any point: it changes nothing.
    pub async fn ping(&self) -> Result<(), LockError> {
        self.backend.ping().await
    }

    /// Returns a snapshot of this node: the state of the connections, and the numbers of holds and
    /// waiters. Sends no request.
    pub fn status(&self) -> Status {
        self.backend.status()
    }

    /// Returns the id under which the server knows this `Locks` and all clones. Each hold and queue
    /// entry in the store contains the id of its node.
    pub fn node(&self) -> &NodeId {
        &self.backend.node().id
    }

    /// Returns the [namespace](crate::LocksBuilder::namespace), or `None` if none is set.
    pub fn namespace(&self) -> Option<&str> {
        self.backend.node().settings.namespace.as_deref()
    }

    /// Converts a lock's name in the store, such as an
    /// [`Activity::lock`](crate::operate::Activity::lock), a
    /// [`BusyLock::lock`](crate::operate::BusyLock::lock) or a [`LockGuard::name`], back to the key
    /// with which this `Locks` acquires the lock. `None` for a name outside the namespace, and for
    /// a name that no key leads to.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// let locks = lockcore::Locks::builder().namespace("shop").in_memory()?;
    /// let guard = locks.lock("50% {off}").await?;
    /// assert_eq!(guard.key(), "50% {off}");
    /// assert_eq!(guard.name(), "shop:50%25 %7Boff%7D");
    /// assert_eq!(locks.key_of(guard.name()).as_deref(), Some("50% {off}"));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn key_of(&self, name: &str) -> Option<String> {
        key::key_of(name, self.namespace()).map(Cow::into_owned)
    }

    /// Converts a key to the lock's name in the store, which [`LockGuard::name`] also returns: the
    /// inverse of [`key_of`](Self::key_of).
    ///
    /// ```
    /// # fn example() -> Result<(), lockcore::LockError> {
    /// let locks = lockcore::Locks::builder().namespace("shop").in_memory()?;
    /// assert_eq!(locks.name_of("order:42")?, "shop:order:42");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async { example() }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`LockError`] if the key is invalid.
    pub fn name_of(&self, key: impl IntoKey) -> Result<String, LockError> {
        self.name(key).map(|lock| lock.as_str().to_owned())
    }

    /// Returns true if lock names must be kept out of logs, as set by
    /// [`redact_names`](crate::LocksBuilder::redact_names). Check it before you log a name.
    pub fn redacts_names(&self) -> bool {
        self.backend.node().settings.redact_names
    }

    /// Shuts this `Locks` and all clones down: refuses new acquisitions, leaves all queues, waits
    /// up to `timeout` for all guards to be released, dropped or lost, then releases the remaining
    /// holds, whose guards are lost. With a `timeout` of zero it does not wait for guards. It does
    /// not wait for work that continues although its hold is lost: [`with`](Self::with) and the
    /// layers of `lock-tower` stop such work.
    ///
    /// Call it before the runtime ends, because it has to receive the responses to releases and to
    /// repeat failed releases. It takes at most `timeout` plus the [request
    /// timeout](crate::LocksBuilder::request_timeout).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, new acquisitions stay refused. The other steps may be incomplete: call it
    /// again.
    pub async fn shutdown(&self, timeout: Duration) -> Shutdown {
        self.backend.shut_down(timeout).await
    }

    /// Sorts values by the names of their locks in the store, and returns each with this name, or
    /// with the key itself if this `Locks` refuses the key: acquiring then returns the error.
    /// Values of the same lock keep their order.
    ///
    /// Everything that acquires several locks acquires them in this order, so that no two wait for
    /// each other. The order of the keys differs: processes with different namespaces may share
    /// [foreign](LockKey::foreign) keys.
    #[doc(hidden)] // for lock-tower
    pub fn in_order<T>(
        &self,
        values: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> &LockKey,
    ) -> Vec<(Result<String, LockKey>, T)> {
        let named = |value: T| (self.name_of(key(&value)).map_err(|_| key(&value).clone()), value);
        let mut named: Vec<_> = values.into_iter().map(named).collect();
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        named
    }

    pub(crate) fn name(&self, key: impl IntoKey) -> Result<LockName, LockError> {
        let key = key.into_key()?;
        let settings = &self.backend.node().settings;
        if key.is_foreign() && !settings.layout.has_foreign_names() {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NO_FOREIGN_NAMES));
        }
        Ok(key.resolve(settings.namespace.as_deref()))
    }
}
