//! A `Locks` on Redis, by its URL or by a client.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use client::Certificates;
use client::{Cluster, Connector, Credentials, Provider, Sentinels, Timeouts, read_cluster};
use proto::{ConfigError, NodeId};
use tracing::info;

use super::{LocksBuilder, new_node};
use crate::error::LockError;
use crate::key::LockKey;
use crate::layout;
use crate::locks::Locks;
use crate::node::Inbox;
use crate::process;
use crate::quorum::Quorum;
use crate::store::redis::cluster::{ClusterSettings, ClusterStore};
use crate::store::redis::server_time::ServerTime;
use crate::store::redis::{Mark, RedisSettings, RedisStore, Replicas, Role};
use crate::store::seen::SeenTokens;

impl Locks {
    /// Connects to the servers of a URL, Redis 6.2 or newer:
    ///
    /// | URL | servers |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/db]` | one server |
    /// | `redis+unix:///path[?user=…&pass=…&db=…]`, or `unix://` | one server, by a Unix socket |
    /// | `redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/primary-name[/db]` | the primary that these sentinels watch, as [`from_sentinels`](Self::from_sentinels) does; user, password and database are the primary's |
    /// | `redis+cluster://[user[:password]@]host[:port][,host[:port]]…` | a Redis Cluster, as [`from_cluster`](Self::from_cluster) does |
    /// | `redis+quorum://[user[:password]@]host[:port],host[:port],host[:port]…[/db]` | the primaries of a quorum, as [`from_quorum`](Self::from_quorum) does |
    ///
    /// With `rediss` in place of `redis` the connections use TLS, which needs the feature `tls`;
    /// not by a Unix socket. The port is 6379 unless it is given, that of sentinels 26379.
    ///
    /// Options stand behind a `?`, with `&` between them: `protocol=resp3`, where RESP2 is the
    /// default; `db`, `user` and `pass` as another way to write these; and for a quorum
    /// `max_lease_ms=N`, its [`max_lease`](crate::Quorum::max_lease) in milliseconds. All that a
    /// URL says is followed: another option, a `#`, and something that is given twice are an
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption). A user without a password is that
    /// user, with an empty password.
    ///
    /// Percent-encode special characters of user and password: `#` is `%23`, `/` is `%2F`, `?` is
    /// `%3F`, `@` is `%40`, `%` is `%25`.
    ///
    /// # Errors
    /// [`Unavailable`](crate::LockErrorKind::Unavailable),
    /// [`Denied`](crate::LockErrorKind::Denied), [`ReadOnly`](crate::LockErrorKind::ReadOnly) or
    /// [`Unsupported`](crate::LockErrorKind::Unsupported), each naming the change to make;
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) if the URL cannot be read or an
    /// option is out of its range. Each connection may take the [time to
    /// connect](crate::LocksBuilder::connect_timeout) twice, for the look-up of the name and for
    /// the rest, each check of the server one [request
    /// timeout](crate::LocksBuilder::request_timeout).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// Connects as a client of yours does: to its address, over TLS with its certificates, with
    /// its user and database, its protocol and its socket settings. The connections are this
    /// `Locks`' own; those that the client has opened are not used.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockcore::Locks;
    ///
    /// let client = redis::Client::open("redis://app:secret@127.0.0.1/3")?; // of `redis` 1.x
    /// let locks = Locks::from_client(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_client(client: redis::Client) -> Result<Self, LockError> {
        Self::builder().from_client(client).await
    }

    /// Connects to the primary that these sentinels watch, and follows it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// use lockcore::{Locks, Sentinels};
    ///
    /// let sentinels = Sentinels::new(
    ///     "orders",
    ///     ["rediss://watch:secret@10.0.0.1:26379", "rediss://watch:secret@10.0.0.2:26379"],
    /// )
    /// .primary("rediss://app:secret@primary/3"); // its host says nothing: the sentinels do
    /// let locks = Locks::from_sentinels(sentinels).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Commands and subscription go to the primary that the newest configuration among the
    /// sentinels names, and only if it says itself that it is the primary. When a connection
    /// breaks, the server refuses a write as a replica does, or the sentinels name another primary
    /// (looked at every two seconds), the primary is looked for anew: holds are renewed there at
    /// once, and waiters keep their places if the new primary knows them, else they go on at the
    /// tail.
    ///
    /// Replication is asynchronous: grants and releases of the old primary's last moments may be
    /// unknown to the new one. A second holder is then possible until the first one's lease ends;
    /// see [`guide::fencing`](crate::guide::fencing).
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`InvalidOption`](crate::LockErrorKind::InvalidOption) if the
    /// sentinels know no primary of that name.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_sentinels(sentinels: Sentinels) -> Result<Self, LockError> {
        Self::builder().from_sentinels(sentinels).await
    }

    /// Connects to all primaries of a Redis Cluster, and follows its slots.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// use lockcore::{Cluster, Locks};
    ///
    /// let nodes = ["rediss://app:secret@10.0.0.1:6379", "rediss://app:secret@10.0.0.2:6379"];
    /// let locks = Locks::from_cluster(Cluster::new(nodes)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each lock lives on the primary that serves the slot of its name; the order of its waiters,
    /// its tokens and its leases are those of that primary. A primary that fails costs its own
    /// locks only. While a slot moves, its locks are refused for some milliseconds, and the
    /// requests are sent again within their time. After a failover, holds are renewed and waiters
    /// ask again, as with [`from_sentinels`](Self::from_sentinels), and grants may be lost in the
    /// same way.
    ///
    /// There are two connections for each primary. Queues cannot be shared with JVMs:
    /// [`redisson_peers`](crate::LocksBuilder::redisson_peers) is an
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) here.
    ///
    /// # Errors
    /// As [`connect`](Self::connect): of the first primary that cannot be used, with its address.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_cluster(cluster: Cluster) -> Result<Self, LockError> {
        Self::builder().from_cluster(cluster).await
    }
}

impl LocksBuilder {
    /// The time for the look-up of a server's name, and again that for the rest of the first
    /// connection: TCP, TLS and the login. 5 s by default, 50 ms to a minute: a name server that
    /// does not answer costs 5 s before the next one is asked. An attempt that takes longer fails
    /// with [`Unavailable`](crate::LockErrorKind::Unavailable), which says the step that was not
    /// done.
    ///
    /// A connection that broke is opened again with 1 s at first, since another server may have
    /// taken over, and with up to 16 s where the server lets attempts in and does not get to them
    /// in time: it may be at work for all the other clients that come back.
    ///
    /// A pool opens connections in its own time (`from_pool`).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts { connect: self.connect_timeout, request: self.request_timeout }
    }

    /// Sets a provider of the password, and maybe the user, in place of the URL's. It is called for
    /// each connection to the servers: for passwords that change while a process runs.
    ///
    /// Open connections stay, also when their password is removed: no hold is lost by it. A
    /// connection that is refused because the password just changed is tried again, and the
    /// provider called again. Sentinels have their own credentials, in their URLs. With a pool, it
    /// is for the subscription only.
    ///
    /// The provider runs in a thread of its own, one call at a time, and may block there, read a
    /// file, or use the runtime by its handle. A call that fails, panics or takes longer than a
    /// second is an event at `error`, and the last good answer is used; without one the connection
    /// is [`Unavailable`](crate::LockErrorKind::Unavailable).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// use lockcore::{Credentials, Locks};
    ///
    /// let locks = Locks::builder()
    ///     .credentials(|| {
    ///         let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///         Ok(Credentials::new("app", password.trim()))
    ///     })
    ///     .connect("redis://10.0.0.1/")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials(
        mut self,
        provide: impl Fn() -> Result<Credentials, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Provider::new("credentials", provide);
        self
    }

    /// Connects to the servers of a URL: see [`Locks::connect`].
    ///
    /// # Errors
    /// As [`Locks::connect`].
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Locks, LockError> {
        if let Some(cluster) = read_cluster(url.as_ref()) {
            return self.from_cluster(cluster?).await;
        }
        if let Some(quorum) = Quorum::read(url.as_ref()) {
            return self.from_quorum(quorum?).await;
        }
        let connector = Connector::from_url(url.as_ref(), &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }

    /// Connects as a client of yours does: see [`Locks::from_client`]. `tls_ca` and `tls_identity`,
    /// if given, replace the client's certificates.
    ///
    /// # Errors
    /// As [`Locks::from_client`].
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_client(self, client: redis::Client) -> Result<Locks, LockError> {
        let connector = Connector::from_client(&client, &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }

    /// Connects to the primary that these sentinels watch: see [`Locks::from_sentinels`].
    ///
    /// # Errors
    /// As [`Locks::from_sentinels`].
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_sentinels(self, sentinels: Sentinels) -> Result<Locks, LockError> {
        let connector = Connector::from_sentinels(&sentinels, &self.tls, self.timeouts())?;
        self.on_redis(connector).await
    }

    /// Connects to all primaries of a Redis Cluster: see [`Locks::from_cluster`].
    ///
    /// # Errors
    /// As [`Locks::from_cluster`]. [`InvalidOption`](crate::LockErrorKind::InvalidOption) for
    /// [`redisson_peers`](Self::redisson_peers).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn from_cluster(mut self, cluster: Cluster) -> Result<Locks, LockError> {
        self.fails_over = true;
        self.check()?;
        if self.redisson_peers {
            // A JVM would have to hear of its turn at the primary of the slot.
            let range = "left out: queues on a Redis Cluster cannot be shared with JVMs yet, which \
                         subscribe to sharded channels there";
            return Err(ConfigError::new("redisson_peers", "set", range).into());
        }
        let node = new_node();
        let inbox = Inbox::default();
        let settings = ClusterSettings {
            tls: self.tls.clone(),
            credentials: self.credentials.clone(),
            node: node.clone(),
            prefix: Arc::clone(&self.channel_prefix),
            label: self.label.clone(),
            namespace: self.namespace.clone(),
            timeouts: self.timeouts(),
            replicas: self.replicas.map(|(count, timeout)| Replicas { count, timeout }),
        };
        let store = ClusterStore::connect(&cluster, settings, Arc::new(inbox.clone())).await?;
        Ok(log_connected(self.build(Arc::new(store), node, &inbox)))
    }

    pub(super) async fn on_redis(mut self, connector: Connector) -> Result<Locks, LockError> {
        self.fails_over = connector.is_watched();
        self.check()?;
        let (node, inbox) = (new_node(), Inbox::default());
        let store = self.store(connector, &node, &inbox, None).await?;
        Ok(log_connected(self.build(Arc::new(store), node, &inbox)))
    }

    /// Connects to one server, as a primary of a quorum with its `mark`.
    pub(super) async fn store(
        &self,
        connector: Connector,
        node: &NodeId,
        inbox: &Inbox,
        primary: Option<(Mark, Arc<SeenTokens>)>,
    ) -> Result<RedisStore, LockError> {
        let connector = connector.with_credentials(self.credentials.clone());
        let (mark, seen) = primary.unzip();
        let settings = RedisSettings {
            connector,
            node: node.clone(),
            prefix: Arc::clone(&self.channel_prefix),
            label: self.label.clone(),
            namespace: self.namespace.clone(),
            probe: Some(
                LockKey::new(format!("lockcore-preflight-{node}"))?
                    .resolve(self.namespace.as_deref()),
            ),
            request_timeout: self.request_timeout,
            layout: layout::of(self.redisson_peers),
            replicas: self.replicas.map(|(count, timeout)| Replicas { count, timeout }),
            server_time: Arc::new(seen.map_or_else(ServerTime::default, ServerTime::of_quorum)),
            role: mark.map_or(Role::Alone, Role::Primary),
        };
        RedisStore::connect(settings, Arc::new(inbox.clone())).await
    }
}

/// Logs node and process once: holders and waiters show the node, and the log has its process.
pub(super) fn log_connected(locks: Locks) -> Locks {
    let status = locks.status();
    let servers: Vec<_> = status.servers.iter().map(|server| &*server.address).collect();
    let (node, process) = (locks.node(), process::of_this());
    info!(%node, process, servers = servers.join(","), "connected to Redis");
    locks
}

#[cfg(feature = "tls")]
impl LocksBuilder {
    /// Trusts servers whose certificate this authority (PEM, one certificate or several) signed, in
    /// place of the operating system's roots. The name in the URL has to be in the certificate.
    ///
    /// A text that is no PEM, or that is given without a `rediss://` URL, is an
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) of the method that connects.
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.trust(pem.as_ref());
        self
    }

    /// The certificate (PEM, with its chain) and key that a server with `tls-auth-clients` asks
    /// for. Errors as with [`tls_ca`](Self::tls_ca). For one that is replaced while the process
    /// runs, set a provider of [`certificates`](Self::certificates).
    pub fn tls_identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls.identify(certificate.as_ref(), key.as_ref());
        self
    }

    /// Sets a provider of the authorities and of the client's certificate, which take the place of
    /// [`tls_ca`](Self::tls_ca) and [`tls_identity`](Self::tls_identity). It is called for each
    /// connection, those to sentinels among them: for certificates that are replaced while a
    /// process runs. Open connections stay.
    ///
    /// It runs as a provider of [`credentials`](Self::credentials) does, with the same bound.
    /// Certificates that cannot be used, as a key of another certificate, count as a failed call.
    /// It needs a `rediss://` URL.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// use std::fs;
    ///
    /// use lockcore::{Certificates, Locks};
    ///
    /// let locks = Locks::builder()
    ///     .certificates(|| {
    ///         let [authority, certificate, key] = ["ca.crt", "tls.crt", "tls.key"]
    ///             .map(|file| fs::read(format!("/run/secrets/redis/{file}")));
    ///         Ok(Certificates::new().ca(authority?).identity(certificate?, key?))
    ///     })
    ///     .connect("rediss://10.0.0.1/")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn certificates(
        mut self,
        provide: impl Fn() -> Result<Certificates, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.tls.provide(provide);
        self
    }
}
