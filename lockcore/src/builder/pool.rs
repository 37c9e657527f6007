//! A `Locks` on Redis, with a configuration or a pool of `deadpool_redis`.

use super::LocksBuilder;
use crate::error::LockError;
use crate::locks::Locks;
use crate::store::redis::Connector;

impl Locks {
    /// Connects with a `deadpool_redis` configuration.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn from_config(config: deadpool_redis::Config) -> Result<Self, LockError> {
        Self::builder().from_config(config).await
    }

    /// Takes its command connection from a pool of yours, without occupying one of the pool's
    /// slots. A pool cannot open a subscription, so the URL of the same server is needed as well.
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
}

impl LocksBuilder {
    /// See [`Locks::from_config`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn from_config(self, config: deadpool_redis::Config) -> Result<Locks, LockError> {
        let connector = Connector::from_config(config, &self.certificates, self.request_timeout)?;
        self.on_redis(connector).await
    }

    /// See [`Locks::from_pool`]. Pool and URL may have different users and databases, but have to
    /// lead to one server.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidOption`](crate::LockErrorKind::InvalidOption) if
    /// they lead to two servers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn from_pool(
        self,
        pool: deadpool_redis::Pool,
        url: impl AsRef<str>,
    ) -> Result<Locks, LockError> {
        let connector =
            Connector::from_pool(pool, url.as_ref(), &self.certificates, self.request_timeout)?;
        self.on_redis(connector).await
    }
}
