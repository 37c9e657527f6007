//! Connectors for a configuration or a pool of `deadpool_redis`.

use deadpool::managed::Manager as _;
use deadpool_redis::Pool;
use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo as _, RedisError};

use super::{Connector, ServerSource, invalid, read_url, tuned};
use crate::error::{ClientError, ClientErrorKind};
use crate::pace::{ConnectAttempt, Step, Timeouts};
use crate::provider::Provider;
use crate::server_url::of_its_user;
use crate::tls::Tls;

impl Connector {
    /// Creates a connector for the server in a pool configuration, set as `url` or as `connection`.
    /// If neither is set, the server is the default of `deadpool_redis`.
    ///
    /// # Errors
    /// Both are set, or the value cannot be used.
    pub fn from_config(
        config: deadpool_redis::Config,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let info = match (config.url, config.connection) {
            (Some(url), None) => read_url(&url)?,
            (None, Some(connection)) => {
                of_its_user(connection.into_connection_info().map_err(|error| invalid(&error))?)
            }
            (None, None) => deadpool_redis::ConnectionInfo::default()
                .into_connection_info()
                .map_err(|error| invalid(&error))?,
            (Some(_), Some(_)) => {
                let detail = "the configuration has both url and connection: set only one";
                return Err(ClientError::refused(ClientErrorKind::InvalidOption, detail));
            }
        };
        Self::new(info, tls, timeouts)
    }

    /// Creates a connector for the server of a pool. The pool's manager creates the command
    /// connections. Subscriptions connect to `url`, which must lead to the same server.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn from_pool(
        pool: Pool,
        url: &str,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let subscription = tuned(tls.apply(read_url(url)?)?);
        Client::open(subscription.clone()).map_err(|error| invalid(&error))?;
        Ok(Self {
            source: ServerSource::Pool(pool, Box::new(subscription)),
            tls: tls.clone(),
            is_known: false,
            timeouts,
            credentials: Provider::default(),
            primary: None,
            name: String::new(),
        })
    }
}

/// Creates a connection with the pool's manager. Unlike a connection from the pool itself, it
/// occupies no slot, and is not checked before each command.
pub(super) async fn connection(
    pool: &Pool,
    attempt: &ConnectAttempt,
) -> Result<MultiplexedConnection, RedisError> {
    attempt.begins(Step::Pool);
    pool.manager().create().await
}
