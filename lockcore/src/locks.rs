//! The front door: a cloneable handle on one store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::acquire::{Acquire, TryAcquire};
use crate::builder::LocksBuilder;
use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind};
use crate::guard::LockGuard;
use crate::inspection::LockInspection;
use crate::key::{LockKey, LockName};
use crate::member::NodeId;
use crate::request::LockRequest;
use crate::shutdown::Shutdown;
use crate::status::{Connection, Status};
use crate::store::Released;

/// Fair locks on one store. Cheap to clone; every clone is the same node, with one connection for commands and one
/// for wake-ups, however many locks are held and waited for.
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::Locks;
///
/// let locks = Locks::in_memory(); // or Locks::connect("redis://127.0.0.1/").await?
/// let guard = locks.lock("order:42").await?;
/// println!("mine, with token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) engine: Arc<Engine>,
}

impl Locks {
    /// Connects to Redis 6.2 or newer: `redis://[user[:password]@]host[:port][/db]`.
    ///
    /// # Errors
    /// Within about three seconds: [`Unavailable`](LockErrorKind::Unavailable),
    /// [`Denied`](LockErrorKind::Denied), [`ReadOnly`](LockErrorKind::ReadOnly) or
    /// [`Unsupported`](LockErrorKind::Unsupported), each saying what to change;
    /// [`InvalidOption`](LockErrorKind::InvalidOption) for a URL that is none.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// Connects as a `deadpool_redis` configuration says.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn from_config(config: deadpool_redis::Config) -> Result<Self, LockError> {
        Self::builder().from_config(config).await
    }

    /// Takes its command connection from a pool that you have, without occupying one of its slots. A
    /// pool cannot open a subscription, so the URL of the same server is needed as well.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn from_pool(
        pool: deadpool_redis::Pool,
        url: impl AsRef<str>,
    ) -> Result<Self, LockError> {
        Self::builder().from_pool(pool, url).await
    }

    /// Locks within this process: the same order, leases, tokens and errors, without a server. For
    /// tests, and for programs of one process.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// For namespaces, labels, defaults and the like.
    pub fn builder() -> LocksBuilder {
        LocksBuilder::new()
    }

    /// Waits for the lock, in order of arrival among all processes, as long as it takes; with the defaults of this `Locks`.
    pub fn lock<K>(&self, key: K) -> Acquire
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).lock()
    }

    /// Takes the lock if it is free and nobody queues for it.
    pub fn try_lock<K>(&self, key: K) -> TryAcquire
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).try_lock()
    }

    /// Waits for the lock at most `wait`.
    pub fn lock_timeout<K>(&self, key: K, wait: Duration) -> Acquire
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).wait(wait).lock()
    }

    /// An acquisition with its own options. A bad key is an error of what follows.
    pub fn key<K>(&self, key: K) -> LockRequest
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        LockRequest::new(&self.engine, self.name(key))
    }

    /// Runs `section` under the lock: stops it when the hold is lost, and gives the lock back after it.
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
    /// # Errors
    /// Those of [`lock`](Self::lock), and [`Lost`](LockErrorKind::Lost) if the hold ended before `section` did.
    ///
    /// # Cancel safety
    /// Dropping it drops `section` where it stands and gives the lock back.
    pub async fn with<K, F, T>(&self, key: K, section: F) -> Result<T, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
        F: AsyncFnOnce(&LockGuard) -> T,
    {
        let guard = self.lock(key).await?;
        let value = tokio::select! {
            value = section(&guard) => value,
            () = guard.lost() => return Err(LockError::new(LockErrorKind::Lost)),
        };
        match guard.release().await {
            Err(error) if error.kind() == LockErrorKind::Lost => Err(error),
            // Not reached: it was still held for certain, and the release goes on in the background.
            _ => Ok(value),
        }
    }

    /// Who holds the lock and who waits for it, in order.
    ///
    /// # Errors
    /// [`LockError`] if the key is bad or the store cannot answer.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn inspect<K>(&self, key: K) -> Result<LockInspection, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        let lock = self.name(key)?;
        let inspection = self.engine.complete(self.engine.store.inspect(&lock)).await?;
        Ok(LockInspection::new(inspection))
    }

    /// Takes the lock away from whoever holds it and hands it to the next. The holder is told, but
    /// nothing stops it: only its fencing token keeps it from writing. For operators.
    ///
    /// Returns whether anybody held it.
    ///
    /// # Errors
    /// [`LockError`] if the key is bad or the store cannot answer.
    ///
    /// # Cancel safety
    /// Once polled, it may happen even if it is dropped.
    pub async fn force_release<K>(&self, key: K) -> Result<bool, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        let lock = self.name(key)?;
        let engine = Arc::clone(&self.engine);
        let request = async move {
            let sent = tokio::time::Instant::now();
            let reply = engine.store.force_release(&lock).await?;
            engine.absorb(&lock, sent, &reply);
            Ok(reply.outcome == Released::Released)
        };
        Ok(self.engine.complete(request).await?)
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// [`Unavailable`](LockErrorKind::Unavailable) and the like, within twice the request timeout.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn ping(&self) -> Result<(), LockError> {
        Ok(self.engine.complete(self.engine.store.ping()).await?)
    }

    /// How this node stands: its connections, holds and waiters. Asks nobody.
    pub fn status(&self) -> Status {
        Status {
            commands: Connection::from(&*self.engine.store.commands().borrow()),
            subscription: Connection::from(&*self.engine.store.subscription().borrow()),
            waiting: self.engine.waiters().len(),
            holding: self.engine.holds().len(),
            giving_back: self.engine.reaper.outstanding(),
            places_lost: self.engine.places_lost.load(Ordering::Relaxed),
        }
    }

    /// This process as the queue sees it.
    pub fn node(&self) -> &NodeId {
        &self.engine.node
    }

    /// Ends this node: refuses new acquisitions, leaves all queues, waits up to `timeout` for guards
    /// to be given back, takes the rest away from their holders (who are told that it is lost) and
    /// gives that back too. With a `timeout` of zero it waits for nobody.
    ///
    /// Call it before the runtime ends: what was dropped is given back by background tasks.
    ///
    /// # Cancel safety
    /// New acquisitions stay refused and queues are left; the rest may not happen.
    pub async fn shutdown(&self, timeout: Duration) -> Shutdown {
        self.engine.shut_down(timeout).await
    }

    fn name<K>(&self, key: K) -> Result<LockName, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        Ok(key.try_into()?.resolve(self.engine.settings.namespace.as_deref()))
    }
}
