//! The builder method for a `Locks` on Redis with a pool of `deadpool_redis`.

use client::Connector;

use super::LocksBuilder;
use crate::api::locks::Locks;
use crate::types::error::LockError;

impl LocksBuilder {
    /// Connects to Redis with your own connection pool. The pool's manager opens the connection for
    /// commands, which occupies no slot of the pool. The connection for messages is opened from
    /// `url`, because a pool cannot open a subscription; `url` must lead to the same server. Pool
    /// and URL may have different users and databases.
    ///
    /// # Errors
    /// As [`Locks::connect`], and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if pool
    /// and URL lead to two servers, or if [`require_fsync`](Self::require_fsync) is set.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections it has opened.
    pub async fn from_pool(
        self,
        pool: deadpool_redis::Pool,
        url: impl AsRef<str>,
    ) -> Result<Locks, LockError> {
        self.check_connections(true)?;
        let connector = Connector::from_pool(pool, url.as_ref(), &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }
}
