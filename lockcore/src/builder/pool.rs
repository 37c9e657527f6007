//! A `Locks` on Redis, with a configuration or a pool of `deadpool_redis`.

use client::Connector;

use super::LocksBuilder;
use crate::error::LockError;
use crate::locks::Locks;

impl Locks {
    /// Connects to the server that a `deadpool_redis` configuration names, by its `url` or its
    /// `connection`; to `127.0.0.1:6379` if it has neither. It is one server, as with a `redis://`
    /// URL of [`connect`](Self::connect). The connections are this `Locks`' own, so the settings of
    /// the pool have no effect.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if
    /// the configuration has both `url` and `connection`.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_config(config: deadpool_redis::Config) -> Result<Self, LockError> {
        Self::builder().from_config(config).await
    }

    /// Connects by a pool of yours, whose manager opens the connection for commands. It occupies
    /// none of the pool's slots. A pool cannot open a subscription, so the URL of the same server
    /// is needed as well. Pool and URL may have different users and databases.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if
    /// pool and URL lead to two servers.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_pool(
        pool: deadpool_redis::Pool,
        url: impl AsRef<str>,
    ) -> Result<Self, LockError> {
        Self::builder().from_pool(pool, url).await
    }
}

impl LocksBuilder {
    /// Connects to the server that a `deadpool_redis` configuration names: see
    /// [`Locks::from_config`].
    ///
    /// # Errors
    /// As [`Locks::from_config`].
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_config(self, config: deadpool_redis::Config) -> Result<Locks, LockError> {
        let connector = Connector::from_config(config, &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }

    /// Connects by a pool of yours: see [`Locks::from_pool`].
    ///
    /// # Errors
    /// As [`Locks::from_pool`].
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
