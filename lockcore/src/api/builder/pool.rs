//! A `Locks` on Redis, with a pool of `deadpool_redis`.

use client::Connector;

use super::LocksBuilder;
use crate::api::locks::Locks;
use crate::types::error::LockError;

impl LocksBuilder {
    /// Connects by a pool of yours, whose manager opens the connection for commands. It occupies
    /// none of the pool's slots. A pool cannot open a subscription, so the URL of the same server
    /// is needed as well. Pool and URL may have different users and databases.
    ///
    /// # Errors
    /// As [`Locks::connect`], and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if pool
    /// and URL lead to two servers.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_pool(
        self,
        pool: deadpool_redis::Pool,
        url: impl AsRef<str>,
    ) -> Result<Locks, LockError> {
        let connector = Connector::from_pool(pool, url.as_ref(), &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }
}
