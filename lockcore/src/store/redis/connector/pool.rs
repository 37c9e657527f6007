//! Connections by `deadpool_redis`: its configuration, and the manager of a pool.

use deadpool::managed::Manager as _;
use deadpool_redis::Pool;
use proto::LockErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo as _, RedisError};

use super::{Connector, ServerSource, invalid, read_url, tuned};
use crate::error::LockError;
use crate::provider::Provider;
use crate::store::redis::Tls;
use crate::store::redis::server_url::of_its_user;
use client::Timeouts;

impl Connector {
    pub(crate) fn from_config(
        config: deadpool_redis::Config,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, LockError> {
        let info = match (config.url, config.connection) {
            (Some(url), None) => read_url(&url)?,
            (None, Some(connection)) => {
                of_its_user(connection.into_connection_info().map_err(|error| invalid(&error))?)
            }
            (None, None) => deadpool_redis::ConnectionInfo::default()
                .into_connection_info()
                .map_err(|error| invalid(&error))?,
            (Some(_), Some(_)) => {
                let detail = "the configuration has both url and connection: give one of them";
                return Err(LockError::with_detail(LockErrorKind::InvalidOption, detail));
            }
        };
        Self::new(info, tls, timeouts)
    }

    pub(crate) fn from_pool(
        pool: Pool,
        url: &str,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, LockError> {
        let subscription = tuned(tls.apply(read_url(url)?)?);
        Client::open(subscription.clone()).map_err(|error| invalid(&error))?;
        Ok(Self {
            source: ServerSource::Pool(pool, Box::new(subscription)),
            tls: tls.clone(),
            is_known: false,
            timeouts,
            credentials: Provider::default(),
            name: String::new(),
        })
    }
}

/// A connection that takes no slot of the pool, and no check before each command.
pub(super) async fn connection(pool: &Pool) -> Result<MultiplexedConnection, RedisError> {
    pool.manager().create().await
}
