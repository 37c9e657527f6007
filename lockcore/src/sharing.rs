//! What several may hold at once: reads and writes, and permits.

use std::fmt;
use std::ops::Deref;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::acquire::{Acquire, TryAcquire};
use crate::demand::Demand;
use crate::error::LockError;
use crate::guard::{Guard, HoldState, LockGuard, Release, sealed};
use crate::inspection::SharedInspection;
use crate::key::LockKey;
use crate::locks::Locks;
use crate::options::ConfigError;
use crate::request::LockRequest;

/// What several may hold at once: reads and writes, and permits.
impl Locks {
    /// Waits until no write of this name is held and no request waits ahead; others may read at the
    /// same time. As [`lock`](Self::lock), it is first come, first served, among reads, writes and
    /// permits of this name alike: readers cannot keep a writer out. A read counts as one permit in
    /// use of the same name. Permits that are held do not keep a read out, as long as reads and
    /// permits together are at most 2^30.
    ///
    /// A [`lock`](Self::lock) of the same name is another thing. The two do not exclude each other.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let one = locks.read("doc:7").await?;
    /// let other = locks.read("doc:7").await?; // at the same time
    /// assert_eq!(one.fencing_token(), other.fencing_token());
    /// assert!(locks.try_write("doc:7").await?.is_none());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn read<K>(&self, key: K) -> Acquire<ReadGuard>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).read()
    }

    /// Acquires a read if it can be granted at once; else `None`.
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_read<K>(&self, key: K) -> TryAcquire<ReadGuard>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).try_read()
    }

    /// Waits until no other holder reads, writes or has permits of this name, and no request waits
    /// ahead.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    pub fn write<K>(&self, key: K) -> Acquire<WriteGuard>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).write()
    }

    /// Acquires a write if it can be granted at once; else `None`.
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_write<K>(&self, key: K) -> TryAcquire<WriteGuard>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).try_write()
    }

    /// Waits for one of `limit` permits of this name.
    ///
    /// The limit belongs to the request: nothing is set up before. Use one limit for a name, from
    /// one place. A request is granted if the permits in use and its own together do not exceed its
    /// own limit.
    ///
    /// Errors, panics and cancel safety: see [`Acquire`].
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let permit = locks.permit("smtp", 10).await?; // one of ten, among all processes
    /// assert_eq!(permit.count(), 1);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn permit<K>(&self, key: K, limit: u32) -> Acquire<Permit>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).permits(1, limit)
    }

    /// One of `limit` permits if it is free and there is no waiter for any; else `None`.
    ///
    /// Errors, panics and cancel safety: see [`TryAcquire`].
    pub fn try_permit<K>(&self, key: K, limit: u32) -> TryAcquire<Permit>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.key(key).try_permits(1, limit)
    }

    /// The readers, the writer or the holders of permits of this name, and the waiters in order.
    ///
    /// # Errors
    /// [`LockError`] if the key is bad or the store cannot answer.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn inspect_shared<K>(&self, key: K) -> Result<SharedInspection, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.look_at_shared(self.name(key)?).await
    }

    /// Releases all reads, writes and permits of this name although their holders have not, and
    /// grants them to the next waiters. For operators; see [`force_release`](Self::force_release).
    ///
    /// Returns whether there were any.
    ///
    /// # Errors
    /// [`LockError`] if the key is bad or the store cannot answer.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, they may be released even if the future is dropped.
    pub async fn force_release_shared<K>(&self, key: K) -> Result<bool, LockError>
    where
        K: TryInto<LockKey>,
        LockError: From<K::Error>,
    {
        self.force(self.name(key)?).await
    }
}

/// Reads, writes and permits with options. See [`Locks::read`], [`Locks::write`] and
/// [`Locks::permit`]. Errors, panics and cancel safety: see [`Acquire`] and [`TryAcquire`].
impl LockRequest {
    /// Waits to read, at most for the [wait](Self::wait).
    pub fn read(self) -> Acquire<ReadGuard> {
        self.share(Ok(Demand::READ))
    }

    /// Tries to read once, without waiting.
    pub fn try_read(self) -> TryAcquire<ReadGuard> {
        self.try_share(Ok(Demand::READ))
    }

    /// Waits to write, at most for the [wait](Self::wait).
    pub fn write(self) -> Acquire<WriteGuard> {
        self.share(Ok(Demand::ALONE))
    }

    /// Tries to write once, without waiting.
    pub fn try_write(self) -> TryAcquire<WriteGuard> {
        self.try_share(Ok(Demand::ALONE))
    }

    /// Waits for `count` of `limit` permits, all at once, at most for the [wait](Self::wait). Until
    /// there are as many, what is free stays free: smaller requests do not pass a larger one.
    ///
    /// A `count` of 0 or above `limit`, or a `limit` of 2^30 or more, is an
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption), and nothing is sent.
    pub fn permits(self, count: u32, limit: u32) -> Acquire<Permit> {
        self.share(demand(count, limit))
    }

    /// Tries to take `count` of `limit` permits once, without waiting.
    pub fn try_permits(self, count: u32, limit: u32) -> TryAcquire<Permit> {
        self.try_share(demand(count, limit))
    }
}

fn demand(count: u32, limit: u32) -> Result<Demand, ConfigError> {
    Demand::permits(count, limit).ok_or_else(|| {
        let value = format!("{count} of {limit}");
        ConfigError::new("permits", value, "a count of 1 up to the limit, of a limit below 2^30")
    })
}

/// A held read. Others may hold reads of the same name; there is no writer.
///
/// It is a [`LockGuard`] in all that it knows of its hold. Reads have the same [fencing
/// token](LockGuard::fencing_token) as long as no write is granted or downgraded and no server is
/// replaced between them. It is higher than that of the write before, and lower than that of the
/// write after.
#[must_use = "a guard that is dropped releases the read at once"]
#[derive(Debug)]
pub struct ReadGuard(LockGuard);

/// A held write: no other holder reads, writes or has permits of the same name.
///
/// It is a [`LockGuard`] in all that it knows of its hold.
#[must_use = "a guard that is dropped releases the write at once"]
#[derive(Debug)]
pub struct WriteGuard(LockGuard);

macro_rules! guards {
    ($($guard:ident)*) => {$(
        impl Guard for $guard {}

        impl sealed::Sealed for $guard {
            fn of(guard: LockGuard) -> Self {
                Self(guard)
            }
        }

        impl Deref for $guard {
            type Target = LockGuard;

            fn deref(&self) -> &LockGuard {
                &self.0
            }
        }

        impl $guard {
            /// As [`LockGuard::release`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Cancel safety
            /// As there.
            pub fn release(self) -> Release {
                self.0.release()
            }

            /// As [`LockGuard::leak`].
            pub fn leak(self) -> Instant {
                self.0.leak()
            }
        }
    )*};
}

guards!(ReadGuard WriteGuard);

impl WriteGuard {
    /// Makes a read of it in one step: no other write comes in between, and the reads at the head
    /// of the queue are granted. The read has a token of its own, above that of the write.
    ///
    /// There is no upgrade: two reads that both want to write would wait for each other for ever.
    ///
    /// # Errors
    /// [`DowngradeError`] with the guard, which is still held unless it
    /// [is lost](LockGuard::is_lost). After
    /// [`Unavailable`](crate::LockErrorKind::Unavailable) it may be a read already: ask again, or
    /// release it. [`InvalidOption`](crate::LockErrorKind::InvalidOption) if other guards
    /// share the write.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it releases the hold.
    pub async fn downgrade(mut self) -> Result<ReadGuard, DowngradeError> {
        match self.0.downgrade().await {
            Ok(()) => Ok(ReadGuard(self.0)),
            Err(error) => Err(DowngradeError { error, guard: self }),
        }
    }
}

/// A write that was not made a read.
#[derive(Debug)]
pub struct DowngradeError {
    error: LockError,
    guard: WriteGuard,
}

impl DowngradeError {
    /// What went wrong.
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// The guard, to ask again or to release it.
    pub fn into_guard(self) -> WriteGuard {
        self.guard
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the write was not made a read: {}", self.error)
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<DowngradeError> for LockError {
    /// Drops the guard, which releases the hold.
    fn from(error: DowngradeError) -> Self {
        error.error
    }
}

/// Permits that are held. Dropping it releases them in the background; [`release`](Self::release)
/// releases them and reports whether they were held until then.
///
/// What holds for a [`LockGuard`] holds for it, with two exceptions. It has no fencing token, since
/// others hold permits at the same time; and guards cannot share it. A process that sleeps past its
/// lease works on, beside those who have its permits now.
#[must_use = "permits that are dropped are released at once"]
pub struct Permit(LockGuard);

impl Guard for Permit {}

impl sealed::Sealed for Permit {
    const IS_OF_PERMITS: bool = true;

    fn of(guard: LockGuard) -> Self {
        Self(guard)
    }
}

impl Permit {
    /// How many permits these are.
    pub fn count(&self) -> u32 {
        self.0.weight()
    }

    /// As [`LockGuard::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// As [`LockGuard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// As [`LockGuard::state`].
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// As [`LockGuard::lost`].
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// As [`LockGuard::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        self.0.cancellation_token()
    }

    /// As [`LockGuard::deadline`].
    pub fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    /// As [`LockGuard::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub fn release(self) -> Release {
        self.0.release()
    }

    /// As [`LockGuard::leak`].
    pub fn leak(self) -> Instant {
        self.0.leak()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("count", &self.count())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
