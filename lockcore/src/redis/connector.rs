//! Where connections come from: a URL, a configuration, or a pool that the user has.

use std::fmt;
use std::time::Duration;

use deadpool::managed::Manager as _;
use deadpool_redis::redis::aio::{MultiplexedConnection, PubSub};
use deadpool_redis::{Manager, Pool};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError};

use super::failure;
use super::tls::{self, Certificates};
use crate::error::{LockError, LockErrorKind, StoreError};

/// How long opening a connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// An idle peer that is gone is noticed by the kernel after this time,
const KEEPALIVE: Duration = Duration::from_secs(10);
/// and one that does not acknowledge what was sent after this.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens both kinds of connections to one server.
pub(crate) struct Connector {
    commands: Commands,
    subscription: Client,
    request_timeout: Duration,
}

enum Commands {
    Ours(Box<Manager>),
    Pool(Pool),
}

impl Connector {
    pub(crate) fn from_url(
        url: &str,
        certificates: &Certificates,
        request_timeout: Duration,
    ) -> Result<Self, LockError> {
        Self::from_info(certificates.apply(read_url(url)?)?, request_timeout)
    }

    pub(crate) fn from_config(
        config: deadpool_redis::Config,
        certificates: &Certificates,
        request_timeout: Duration,
    ) -> Result<Self, LockError> {
        let info = match (config.url, config.connection) {
            (Some(url), None) => read_url(&url)?,
            (None, Some(connection)) => {
                connection.into_connection_info().map_err(|error| invalid(&error))?
            }
            (None, None) => deadpool_redis::ConnectionInfo::default()
                .into_connection_info()
                .map_err(|error| invalid(&error))?,
            (Some(_), Some(_)) => {
                let detail = "the configuration has both url and connection: give one of them";
                return Err(LockError::with_detail(LockErrorKind::InvalidOption, detail));
            }
        };
        Self::from_info(certificates.apply(info)?, request_timeout)
    }

    pub(crate) fn from_pool(
        pool: Pool,
        url: &str,
        certificates: &Certificates,
        request_timeout: Duration,
    ) -> Result<Self, LockError> {
        let info = tuned(certificates.apply(read_url(url)?)?);
        let subscription = Client::open(info).map_err(|error| invalid(&error))?;
        Ok(Self { commands: Commands::Pool(pool), subscription, request_timeout })
    }

    fn from_info(info: ConnectionInfo, request_timeout: Duration) -> Result<Self, LockError> {
        let info = tuned(info);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(request_timeout));
        let manager =
            Manager::new_with_config(info.clone(), config).map_err(|error| invalid(&error))?;
        let subscription = Client::open(info).map_err(|error| invalid(&error))?;
        Ok(Self { commands: Commands::Ours(Box::new(manager)), subscription, request_timeout })
    }

    /// A new connection for commands. From a pool it takes no slot, and no check before each command.
    pub(crate) async fn commands(&self) -> Result<MultiplexedConnection, StoreError> {
        let opening = async {
            match &self.commands {
                Commands::Ours(manager) => manager.create().await,
                Commands::Pool(pool) => pool.manager().create().await,
            }
        };
        let mut connection = bounded(opening, self.request_timeout).await?;
        connection.set_response_timeout(self.request_timeout);
        Ok(connection)
    }

    /// A new connection for messages.
    pub(crate) async fn subscription(&self) -> Result<PubSub, StoreError> {
        bounded(self.subscription.get_async_pubsub(), self.request_timeout).await
    }
}

async fn bounded<T>(
    opening: impl Future<Output = Result<T, RedisError>>,
    request_timeout: Duration,
) -> Result<T, StoreError> {
    match tokio::time::timeout(CONNECT_TIMEOUT + request_timeout, opening).await {
        Ok(opened) => opened.map_err(|error| refused(&error)),
        Err(_) => Err(StoreError::refused(LockErrorKind::Unavailable, "no connection in time")),
    }
}

fn refused(error: &RedisError) -> StoreError {
    let mut refused = failure::of_connecting(error);
    if let Some(advice) = tls::advice(error) {
        refused.detail = format!("{}: {advice}", refused.detail).into();
    }
    refused
}

fn read_url(url: &str) -> Result<ConnectionInfo, LockError> {
    url.into_connection_info().map_err(|error| invalid(&error))
}

/// Says what is wrong with a URL without repeating it: it may hold a password.
fn invalid(error: &RedisError) -> LockError {
    if let Some(advice) = tls::advice(error) {
        return LockError::with_detail(LockErrorKind::InvalidOption, advice);
    }
    let detail = format!(
        "the Redis URL is not one ({}): write redis://[user[:password]@]host[:port][/db]",
        error.category()
    );
    LockError::with_detail(LockErrorKind::InvalidOption, detail)
}

/// Small writes go out at once, and a peer that is gone is noticed: neither is redis-rs' default.
fn tuned(info: ConnectionInfo) -> ConnectionInfo {
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 5);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    info.set_tcp_settings(settings)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}
