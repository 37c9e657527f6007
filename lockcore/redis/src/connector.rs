//! Opens connections to a server, which is given by a URL, by the application's client,
//! configuration or pool, or by sentinels.

#[cfg(feature = "deadpool")]
mod pool;
mod sentinel;

use std::fmt;
use std::time::Duration;

#[cfg(feature = "deadpool")]
use futures_util::TryFutureExt as _;
use redis::aio::PubSub;
use redis::io::tcp::socket2;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError};

use crate::certificates::Certificates;
use crate::connection::{self, Connection};
use crate::credentials::Credentials;
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::hello::Hello;
use crate::pace::{ConnectAttempt, Timeouts};
use crate::provider::Provider;
use crate::sentinel_primary::Primary;
use crate::sentinels::Sentinels;
use crate::server_url::read as read_url;
use crate::tls::{self, Tls};
use crate::topology;
use sentinel::SentinelClients;

/// Idle time after which the kernel begins to check whether the peer is alive (TCP keepalive).
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Time after which the kernel closes a connection whose peer does not acknowledge data.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The library's name and version for CLIENT SETINFO, which servers have from 7.2 on.
pub(crate) const LIBRARY: (&str, &str) = ("lockcore", env!("CARGO_PKG_VERSION"));

/// Opens connections to one server, for commands and for subscriptions. Behind sentinels, the
/// server is the current primary, and may change.
pub struct Connector {
    source: ServerSource,
    tls: Tls,
    /// True if this crate knows all connection settings, and so may open connections itself. False
    /// for the application's client or pool, which may contain certificates that cannot be read
    /// from it: then redis-rs opens the connections.
    is_known: bool,
    timeouts: Timeouts,
    /// The provider of user and password, used instead of the credentials in the URL or client.
    credentials: Provider<Credentials>,
    /// The Cluster id for the Redis Cluster primary at the address. Each server that commands are
    /// sent to has to know this primary.
    primary: Option<String>,
    /// The name that subscriptions get in CLIENT LIST.
    name: String,
}

/// A new command connection, on which the server has replied to HELLO.
#[derive(Debug)]
pub struct Opened {
    /// The open connection, logged in. Requests may still have the longer timeout of the connection
    /// attempt, until [`shorten_timeout`](Connection::shorten_timeout) is called.
    pub connection: Connection,
    /// The reply to HELLO; `None` if the server lacks the command.
    pub hello: Option<Hello>,
}

impl Opened {
    /// Returns the connection, or an error with the text of `of_replica` if the server is a
    /// replica. A replica may lack holds that the primary has, and would report them as lost.
    fn of_primary(self, of_replica: impl FnOnce() -> String) -> Result<Self, ClientError> {
        match &self.hello {
            Some(hello) if hello.is_replica() => {
                Err(ClientError::refused(ClientErrorKind::ReadOnly, of_replica()))
            }
            _ => Ok(self),
        }
    }
}

/// A new connection for subscriptions, on which no channel is subscribed yet.
pub(crate) struct Subscribed {
    pub(crate) connection: PubSub,
    /// The primary at the other end of the connection; `None` without sentinels.
    pub(crate) primary: Option<Primary>,
}

/// The source from which a [`Connector`] gets the server's address.
enum ServerSource {
    /// The server in a URL, or in the application's client or configuration.
    One(Box<Client>),
    /// The application's pool, whose manager creates the command connections; and the connection
    /// settings for subscriptions, which the pool does not create.
    #[cfg(feature = "deadpool")]
    Pool(deadpool_redis::Pool, Box<ConnectionInfo>),
    /// The primary named by these sentinels.
    Sentinels(Box<SentinelClients>),
}

impl Connector {
    /// Creates a connector for the server in a URL, or for the primary behind the sentinels in a
    /// URL.
    ///
    /// # Errors
    /// The URL is invalid or has an unsupported part, or a certificate cannot be used.
    pub fn from_url(url: &str, tls: &Tls, timeouts: Timeouts) -> Result<Self, ClientError> {
        if let Some(sentinels) = Sentinels::read(url) {
            return Self::from_sentinels(&sentinels?, tls, timeouts);
        }
        Self::new(read_url(url)?, tls, timeouts)
    }

    /// Creates a connector for the primary that these sentinels monitor.
    ///
    /// # Errors
    /// A URL or a certificate cannot be used.
    pub fn from_sentinels(
        sentinels: &Sentinels,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let sentinels = SentinelClients::new(sentinels, tls, timeouts)?;
        Ok(Self {
            source: ServerSource::Sentinels(Box::new(sentinels)),
            tls: tls.clone(),
            is_known: true,
            timeouts,
            credentials: Provider::default(),
            primary: None,
            name: String::new(),
        })
    }

    /// Creates a connector for one server, with these settings.
    ///
    /// # Errors
    /// A setting or a certificate cannot be used.
    pub fn new(info: ConnectionInfo, tls: &Tls, timeouts: Timeouts) -> Result<Self, ClientError> {
        let info = tuned(tls.apply(info)?);
        let client = Client::open(info).map_err(|error| invalid(&error))?;
        Ok(Self {
            source: ServerSource::One(Box::new(client)),
            tls: tls.clone(),
            is_known: true,
            timeouts,
            credentials: Provider::default(),
            primary: None,
            name: String::new(),
        })
    }

    /// Creates a connector for the server of the application's client. redis-rs opens the
    /// connections, because the client may contain certificates that cannot be read from it.
    ///
    /// # Errors
    /// A setting or a certificate cannot be used.
    pub fn from_client(
        client: &Client,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let info = client.get_connection_info().clone();
        Ok(Self { is_known: false, ..Self::new(info, tls, timeouts)? })
    }

    /// Sets the provider of user and password, which each new connection uses instead of the
    /// credentials in the URL or client. Connections from a pool keep the pool's credentials.
    pub fn with_credentials(self, credentials: Provider<Credentials>) -> Self {
        Self { credentials, ..self }
    }

    /// Sets the Cluster id for the Redis Cluster primary at the address. Command connections to
    /// another Cluster then fail: the address may be reused.
    pub fn with_primary(self, id: String) -> Self {
        Self { primary: Some(id), ..self }
    }

    /// Sets the name of subscriptions in CLIENT LIST. Command connections get their name later,
    /// during setup.
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Returns the timeouts of connections and requests.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Returns true if sentinels name the server, so that the address may change.
    pub fn is_watched(&self) -> bool {
        matches!(self.source, ServerSource::Sentinels(_))
    }

    /// Asks the sentinels, and returns the address of their primary if it is not the current one.
    /// Never completes without sentinels.
    pub(crate) async fn moved(&self) -> Option<String> {
        let ServerSource::Sentinels(sentinels) = &self.source else {
            return std::future::pending().await;
        };
        sentinels.moved().await.map(|primary| primary.to_string())
    }

    /// Waits until the sentinels name another primary than the one that this attempt was for. Never
    /// completes without sentinels, or if they had named none.
    pub(crate) async fn failed_over(&self, attempt: &ConnectAttempt) {
        match (&self.source, attempt.primary.get()) {
            (ServerSource::Sentinels(sentinels), Some(primary)) => {
                sentinels.failed_over(primary).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Opens a command connection, and sends HELLO on it. `timeout` is the timeout of each request
    /// once [`shorten_timeout`](Connection::shorten_timeout) was called.
    ///
    /// # Errors
    /// The server is unreachable, refuses the connection or does not reply in time; the server is a
    /// replica, or in a Redis Cluster without the primary of [`with_primary`](Self::with_primary);
    /// or the sentinels name no primary.
    pub async fn commands(
        &self,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Opened, ClientError> {
        let of_replica = || format!("{}: the server is a replica", self.address());
        match &self.source {
            ServerSource::One(client) => {
                let opened = self.at_one(client, timeout, attempt).await?.of_primary(of_replica)?;
                self.check_cluster(&opened.connection).await?;
                Ok(opened)
            }
            #[cfg(feature = "deadpool")]
            ServerSource::Pool(pool, _) => {
                let opening = pool::connection(pool, attempt)
                    .map_ok(|connection| Connection::theirs(connection, timeout));
                let opened = self.bounded(self.address(), attempt, with_hello(opening)).await?;
                opened.of_primary(of_replica)
            }
            ServerSource::Sentinels(sentinels) => {
                let found = sentinels.locate(attempt).await?;
                let primary = attempt.primary.get_or_init(|| found);
                let opened = self.at_primary(sentinels, primary, timeout, attempt).await?;
                sentinels.set_current(primary.clone())?;
                Ok(opened)
            }
        }
    }

    /// Returns an error if the server is in a Redis Cluster without the expected primary.
    async fn check_cluster(&self, connection: &Connection) -> Result<(), ClientError> {
        let Some(id) = &self.primary else { return Ok(()) };
        topology::check_member(connection, id).await.map_err(|error| {
            let detail = format!("{}: {}", self.address(), error.detail);
            ClientError::refused(error.kind, detail)
        })
    }

    /// Opens a connection for questions about the Cluster, which a replica answers as well.
    ///
    /// # Errors
    /// As [`commands`](Self::commands), but a replica is no error, nor another Cluster.
    pub async fn questions(
        &self,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Connection, ClientError> {
        let opened = match &self.source {
            ServerSource::One(client) => self.at_one(client, timeout, attempt).await,
            _ => self.commands(timeout, attempt).await,
        };
        opened.map(|opened| opened.connection)
    }

    /// Opens a connection to the server of this client, in any role.
    async fn at_one(
        &self,
        client: &Client,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Opened, ClientError> {
        let info = client.get_connection_info().clone();
        let opening = with_hello(self.open(info, timeout, attempt).await?);
        self.bounded(self.address(), attempt, opening).await
    }

    /// Opens another command connection, to the server that commands go to. Unlike
    /// [`commands`](Self::commands), it never changes this server: otherwise nobody would notice
    /// that the first connection must be replaced, because the sentinels name another primary.
    ///
    /// # Errors
    /// As [`commands`](Self::commands). Also if the sentinels have named another primary since.
    pub async fn more_commands(
        &self,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Opened, ClientError> {
        let ServerSource::Sentinels(sentinels) = &self.source else {
            return self.commands(timeout, attempt).await;
        };
        let Some(primary) = sentinels.current()? else {
            let detail = "commands have not been sent to any primary yet";
            return Err(ClientError::refused(ClientErrorKind::Unavailable, detail));
        };
        self.at_primary(sentinels, &primary, timeout, attempt).await
    }

    /// Opens a command connection to this primary.
    async fn at_primary(
        &self,
        sentinels: &SentinelClients,
        primary: &Primary,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Opened, ClientError> {
        let opening = with_hello(self.open(sentinels.reach(primary), timeout, attempt).await?);
        let opened = tokio::select! {
            opened = self.bounded(primary, attempt, opening) => opened?,
            other = sentinels.another_than(primary) => return Err(other),
        };
        opened.of_primary(|| {
            format!("the sentinels name {primary} as the primary, but it is a replica")
        })
    }

    /// Prepares a connection attempt with the current credentials and certificates, requested from
    /// their providers. The attempt itself is the returned future: the time spent on the providers
    /// must not count towards the timeout of the attempt.
    async fn open(
        &self,
        info: ConnectionInfo,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<impl Future<Output = Result<Connection, RedisError>>, ClientError> {
        let (info, certificates) = self.now(info).await?;
        let is_known = self.is_known;
        Ok(async move {
            let certificates = is_known.then_some(&certificates);
            Connection::open(info, certificates, timeout, attempt).await
        })
    }

    /// Requests the current credentials and certificates from their providers. Returns `info` with
    /// both, and the certificates themselves. Fails if a provider has never returned a value, or if
    /// a certificate cannot be used.
    async fn now(
        &self,
        info: ConnectionInfo,
    ) -> Result<(ConnectionInfo, Certificates), ClientError> {
        let (info, certificates) = self.tls.now(info).await?;
        let info = match self.credentials.current().await? {
            Some(credentials) => credentials.apply(info),
            None => info,
        };
        Ok((info, certificates))
    }

    /// Opens a connection for subscriptions to the server that commands go to. `introduce` is true
    /// if the Redis user may send CLIENT SETINFO, which sets the name of this library.
    pub(crate) async fn subscription(
        &self,
        introduce: bool,
        attempt: &ConnectAttempt,
    ) -> Result<Subscribed, ClientError> {
        let mut primary = None;
        let mut info = match &self.source {
            ServerSource::One(client) => client.get_connection_info().clone(),
            #[cfg(feature = "deadpool")]
            ServerSource::Pool(_, info) => ConnectionInfo::clone(info),
            ServerSource::Sentinels(sentinels) => {
                // The subscription has to reach the command server, because messages are published
                // there.
                let found = match sentinels.current()? {
                    Some(primary) => primary,
                    None => sentinels.locate(attempt).await?,
                };
                sentinels.reach(primary.insert(found))
            }
        };
        let address = info.addr().to_string();
        if introduce {
            let settings = info.redis_settings().clone().set_lib_name(LIBRARY.0, LIBRARY.1);
            info = info.set_redis_settings(settings);
        }
        let (info, certificates) = self.now(info).await?;
        let certificates = self.is_known.then_some(&certificates);
        let opening = connection::subscription(info, certificates, &self.name, attempt);
        let connection = self.bounded(address, attempt, opening).await?;
        Ok(Subscribed { connection, primary })
    }

    /// Returns the primary that commands are sent to; `None` without sentinels, and before the
    /// first connection.
    pub(crate) fn command_server(&self) -> Option<Primary> {
        match &self.source {
            ServerSource::Sentinels(sentinels) => sentinels.command_server(),
            _ => None,
        }
    }

    /// Waits until commands go to a server other than `primary`. A subscription to `primary` then
    /// has to reconnect. Never completes without sentinels.
    pub(crate) async fn switched_server(&self, primary: Option<&Primary>) {
        match (&self.source, primary) {
            (ServerSource::Sentinels(sentinels), Some(primary)) => {
                sentinels.switched_server(primary).await
            }
            _ => std::future::pending().await,
        }
    }

    /// Returns the server's address. With sentinels it only shows whether TLS is used: host and
    /// port are placeholders.
    fn address(&self) -> &ConnectionAddr {
        match &self.source {
            ServerSource::One(client) => client.get_connection_info().addr(),
            #[cfg(feature = "deadpool")]
            ServerSource::Pool(_, info) => info.addr(),
            ServerSource::Sentinels(sentinels) => sentinels.template().addr(),
        }
    }

    /// Returns the address of the server that commands are sent to. With sentinels, it is empty
    /// before the first connection.
    pub fn server(&self) -> String {
        match &self.source {
            ServerSource::Sentinels(sentinels) => sentinels.last_primary(),
            _ => self.address().to_string(),
        }
    }

    /// Awaits `opening`, which opens a connection and may wait for a first reply. The time limit is
    /// the sum of the timeouts for the DNS lookup, for the connection and for the first reply. An
    /// error names `address`, and the remedy if it is known.
    async fn bounded<T>(
        &self,
        address: impl fmt::Display,
        attempt: &ConnectAttempt,
        opening: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, ClientError> {
        // After the connection is open, the first reply may take as long as a request or the whole
        // attempt.
        let answer = attempt.limit.max(self.timeouts.request);
        let limit = attempt.look_up + attempt.limit + answer;
        let (mut refused, advice) = match tokio::time::timeout(limit, opening).await {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(error)) if !error.is_timeout() => {
                (failure::of_connecting(&error), tls::advice(&error, self.address()))
            }
            _ => {
                let late = ClientError::refused(ClientErrorKind::Unavailable, attempt.why_late());
                (late, tls::advice_if_silent(self.address()))
            }
        };
        let mut advice = advice.map_or(String::new(), |advice| format!(": {advice}"));
        if self.is_watched() && advice.ends_with(tls::ANOTHER_NAME) {
            advice += SENTINELS_ANNOUNCE_NAMES;
        }
        refused.detail = format!("{address}: {}{advice}", refused.detail).into();
        Err(refused)
    }
}

/// Remedy appended to the error if the server's certificate is for a host name, but the sentinels
/// returned an IP address.
const SENTINELS_ANNOUNCE_NAMES: &str = ". The sentinels returned this address: to get host names \
    instead, set `sentinel resolve-hostnames yes` and `sentinel announce-hostnames yes` on each \
    sentinel";

/// Awaits a new connection, and sends HELLO on it. Fails if the connection cannot be opened, or
/// breaks. If the server lacks HELLO, [`Opened::hello`] is `None`.
async fn with_hello(
    opening: impl Future<Output = Result<Connection, RedisError>>,
) -> Result<Opened, RedisError> {
    let connection = opening.await?;
    let hello = match connection.send(&Hello::command()).await {
        Ok(answer) => Hello::read(&answer),
        // The connection is broken, or the peer is not Redis.
        Err(error) if failure::breaks_connection(&error) => return Err(error),
        Err(_) => None,
    };
    Ok(Opened { connection, hello })
}

/// Creates the error for settings that redis-rs rejects, with the remedy if they need the feature
/// `tls`.
fn invalid(error: &RedisError) -> ClientError {
    let advice = tls::advice_on_url(error).unwrap_or_else(|| error.category());
    ClientError::refused(ClientErrorKind::InvalidOption, advice)
}

/// Returns `info` with settings that redis-rs does not have by default: small writes are sent at
/// once, dead peers are detected, and CLIENT SETINFO is not sent, because the Redis user may lack
/// the right. A keepalive and a user timeout set by the application are kept.
fn tuned(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let keepalive = settings.keepalive().cloned().unwrap_or_else(|| {
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 5)
    });
    let settings = settings.set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let user_timeout = settings.user_timeout().unwrap_or(USER_TIMEOUT);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(user_timeout);
    let quiet = info.redis_settings().clone().set_skip_set_lib_name();
    info.set_tcp_settings(settings).set_redis_settings(quiet)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "tls")))]
mod without_tls;

#[cfg(test)]
mod tests {
    use redis::{IntoConnectionInfo as _, ProtocolVersion};

    use super::*;

    #[test]
    fn what_a_client_has_set_stays_and_the_rest_is_tuned() {
        let plain = tuned("redis://h/".into_connection_info().unwrap());
        let tcp = plain.tcp_settings();
        assert!(tcp.nodelay() && tcp.keepalive().is_some());
        #[cfg(target_os = "linux")]
        assert_eq!(tcp.user_timeout(), Some(USER_TIMEOUT));

        let theirs = socket2::TcpKeepalive::new().with_time(Duration::from_secs(77));
        let tcp = plain.tcp_settings().clone().set_keepalive(theirs);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(77));
        let info = "redis://u:p@h/3?protocol=resp3".into_connection_info().unwrap();
        let kept = tuned(info.set_tcp_settings(tcp));
        let tcp = format!("{:?}", kept.tcp_settings());
        assert!(tcp.contains("77s") && !tcp.contains("10s"), "{tcp}");
        let settings = kept.redis_settings();
        assert_eq!(settings.protocol(), ProtocolVersion::RESP3);
        let login = (settings.username(), settings.password(), settings.db());
        assert_eq!(login, (Some("u"), Some("p"), 3));
    }
}
