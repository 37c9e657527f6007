//! A `Locks` on Redis, with a pool of `deadpool_redis`.

use client::Connector;

use super::LocksBuilder;
use crate::api::locks::Locks;
use crate::types::error::LockError;

impl LocksBuilder {
    /// Connects with your pool, whose manager opens the connection for commands. The connection
    /// occupies no slot of the pool. A pool cannot open a subscription, so the server's URL is
    /// needed as well. Pool and URL may have different users and databases.
    ///
    /// # Errors
    /// As [`Locks::connect`], and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if pool
    /// and URL lead to two servers, or if [`require_fsync`](Self::require_fsync) is set.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections it has opened.
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
