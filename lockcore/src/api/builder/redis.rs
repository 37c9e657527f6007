//! Builder methods for a `Locks` on Redis: settings of the connections, and connecting.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use client::Certificates;
use client::{Cluster, Connector, Credentials, Provider, Timeouts};
use proto::{ConfigError, NodeId};
use tracing::info;

use super::{LocksBuilder, new_node};
use crate::api::layout;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::process;
use crate::store::redis::cluster::{ClusterSettings, ClusterStore};
use crate::store::redis::server_time::ServerTime;
use crate::store::redis::{Mark, RedisSettings, RedisStore, Role};
use crate::store::seen::SeenTokens;
use crate::types::error::LockError;
use crate::types::key::LockKey;

impl LocksBuilder {
    /// Sets the time limit for the first connection to a server: once for the look-up of the
    /// server's name, and once more for TCP, TLS and login. 50 ms to a minute; 5 s by default,
    /// because an unresponsive name server costs 5 s before another name server is tried. A slower
    /// attempt fails with [`Unavailable`](crate::LockErrorKind::Unavailable), which names the
    /// unfinished step, unless redis-rs connects (see below).
    ///
    /// Reconnects have other limits: 1 s at first, because another server may have taken over. If
    /// the server accepts connections but does not serve them in time, the limit rises to 16 s, or
    /// to this limit if it is longer: the server may be busy with other clients that reconnect.
    ///
    /// redis-rs connects to the server of a `redis::Client`, with RESP3, and with TLS without
    /// verification. It does not report the steps: its attempts have a single limit, with the
    /// look-up, and reconnects have the longer limits also while the server accepts nothing.
    ///
    /// With `from_pool`, the timeouts of the pool apply instead.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts { connect: self.connect_timeout, request: self.request_timeout }
    }

    /// Sets a provider: a function that returns the password, and optionally the user, to use in
    /// place of those in the URL. It is called for each new connection to the servers: for
    /// passwords that change while a process runs.
    ///
    /// Open connections stay, even when their password is removed, so no hold is lost. A connection
    /// refused because the password has just changed is retried with a new call to the provider.
    /// Sentinels have their own credentials, in their URLs. With a pool, the provider serves the
    /// subscription only.
    ///
    /// The provider runs in a separate thread, never twice at the same time, and may block there,
    /// read a file, or use the runtime through a handle. If a call fails, panics or takes longer
    /// than a second, an event at `error` reports it, and the last good result is used; without
    /// one, the connection is [`Unavailable`](crate::LockErrorKind::Unavailable).
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

    /// Fails if `require_fsync` is set and the application's own client or pool opens the
    /// connections (`are_of_user`). The timeouts of these connections may be shorter than a write
    /// to the disk takes.
    pub(super) fn check_connections(&self, are_of_user: bool) -> Result<(), ConfigError> {
        self.confirmation().map_or(Ok(()), |it| it.check_connections(are_of_user))
    }

    /// Connects to all primaries of a Redis Cluster, and creates the `Locks`.
    pub(super) async fn on_cluster(mut self, cluster: Cluster) -> Result<Locks, LockError> {
        self.fails_over = true;
        self.check()?;
        if self.redisson_peers {
            // A JVM would have to be notified at the primary of the slot.
            let range = "unset: queues on a Redis Cluster cannot be shared with JVMs yet, because \
                JVMs subscribe to sharded channels there";
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
            confirmation: self.confirmation(),
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

    /// Connects to a server and returns the store. `primary` is `None` unless the server is a
    /// quorum primary: then it contains the expected identity record, and the tokens seen at all
    /// primaries.
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
            confirmation: self.confirmation(),
            server_time: Arc::new(seen.map_or_else(ServerTime::default, ServerTime::of_quorum)),
            role: mark.map_or(Role::Alone, Role::Primary),
        };
        RedisStore::connect(settings, Arc::new(inbox.clone())).await
    }
}

/// Logs the node id together with the host and process id of this process, so that operators can
/// find the process behind a node id shown by `inspect`. Returns `locks` unchanged.
pub(super) fn log_connected(locks: Locks) -> Locks {
    let status = locks.status();
    // Not the quorum primaries that are away or do not count.
    let connected = status.servers.iter().filter(|server| server.is_connected());
    let servers: Vec<_> = connected.map(|server| &*server.address).collect();
    let (node, process) = (locks.node(), process::of_this());
    info!(%node, process, servers = servers.join(","), "connected to Redis");
    locks
}

#[cfg(feature = "tls")]
impl LocksBuilder {
    /// Trusts servers whose certificate is signed by this authority (one or more PEM certificates),
    /// in place of the operating system's roots. The certificate must contain the name in the URL.
    ///
    /// The connecting method returns [`InvalidOption`](crate::LockErrorKind::InvalidOption) if the
    /// text is not PEM, or if the URL is not `rediss://`.
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.trust(pem.as_ref());
        self
    }

    /// Sets the client certificate (PEM, with chain) and key, for a server with `tls-auth-clients`.
    /// Errors as with [`tls_ca`](Self::tls_ca). For certificates replaced while the process runs,
    /// use [`certificates`](Self::certificates) instead.
    pub fn tls_identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.tls.identify(certificate.as_ref(), key.as_ref());
        self
    }

    /// Sets a provider: a function that returns the authorities and the client certificate, in
    /// place of [`tls_ca`](Self::tls_ca) and [`tls_identity`](Self::tls_identity). It is called for
    /// each new connection, including connections to sentinels: for certificates that are replaced
    /// while a process runs. Open connections stay.
    ///
    /// It runs like a provider of [`credentials`](Self::credentials), with the same time limit.
    /// Unusable certificates, such as a key that does not match, count as a failed call. Needs a
    /// `rediss://` URL.
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
