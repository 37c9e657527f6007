//! [`Servers`], and the methods that connect a `Locks` to them.

use std::fmt;

use client::{Cluster, Connector, Sentinels, read_cluster};

use super::LocksBuilder;
use crate::api::locks::Locks;
use crate::quorum::Quorum;
use crate::types::error::LockError;

/// The servers for [`Locks::connect`]: Redis 6.2 or newer, or Valkey. Made from a URL, a
/// [`Sentinels`], a [`Cluster`], a [`Quorum`], a `redis::Client` or a `deadpool_redis::Config`.
///
/// # URLs
///
/// | URL | servers |
/// |---|---|
/// | `redis://[user[:password]@]host[:port][/db]` | one server |
/// | `redis+unix:///path[?user=…&pass=…&db=…]`, or `unix://` | one server, over a Unix socket |
/// | `redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/primary-name[/db]` | the primary watched by these sentinels; user, password and database are the primary's |
/// | `redis+cluster://[user[:password]@]host[:port][,host[:port]]…` | a Redis Cluster |
/// | `redis+quorum://[user[:password]@]host[:port],host[:port],host[:port]…[/db]` | the primaries of a quorum |
///
/// `rediss` in place of `redis` uses TLS, with the feature `tls`; not over a Unix socket. The
/// default port is 6379, and 26379 for sentinels.
///
/// Options follow a `?`, separated by `&`: `protocol=resp3`, where RESP2 is the default; `db`,
/// `user` and `pass` as an alternative form; and for a quorum `max_lease_ms=N`, the
/// [`max_lease`](Quorum::max_lease) in milliseconds. Nothing in a URL is ignored: an unknown
/// option, a `#`, and a repeated option are an
/// [`InvalidOption`](crate::LockErrorKind::InvalidOption). A user without a password logs in with
/// an empty password.
///
/// Percent-encode special characters in user and password: `#` is `%23`, `&` is `%26`, `+` is
/// `%2B`, `/` is `%2F`, `?` is `%3F`, `@` is `%40`, `%` is `%25`.
///
/// # Sentinels
///
/// ```no_run
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::{Locks, Sentinels};
///
/// let watching = [
///     "rediss://watch:secret@10.0.0.1:26379",
///     "rediss://watch:secret@10.0.0.2:26379",
/// ];
/// let sentinels = Sentinels::new("orders", watching)
///     .primary("rediss://app:secret@primary/3"); // the sentinels return the host
/// let locks = Locks::connect(sentinels).await?;
/// # Ok(())
/// # }
/// ```
///
/// Commands and subscription use the primary named by the newest configuration among the sentinels,
/// provided that server reports itself as the primary. The primary is resolved again when a
/// connection breaks, when the server refuses a write as a replica does, and when the sentinels
/// name another primary, checked every two seconds. At the new primary, holds are renewed at once.
/// Waiters keep their positions if the new primary knows them; otherwise they queue again at the
/// tail. If the sentinels know no primary of that name, the error is
/// [`InvalidOption`](crate::LockErrorKind::InvalidOption).
///
/// Replication is asynchronous: the new primary may not have the old primary's last grants and
/// releases. A second holder is then possible until the first lease ends; see
/// [`guide::fencing`](crate::guide::fencing).
///
/// # Redis Cluster
///
/// ```no_run
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::{Cluster, Locks};
///
/// let nodes = ["rediss://app:secret@10.0.0.1:6379", "rediss://app:secret@10.0.0.2:6379"];
/// let locks = Locks::connect(Cluster::new(nodes)).await?;
/// # Ok(())
/// # }
/// ```
///
/// Each lock lives on the primary that serves the slot of the lock name, together with the queue,
/// tokens and leases. A failed primary affects no locks of other primaries. While a slot moves,
/// requests for the slot's locks are refused for some milliseconds and retried within their time
/// limit. After a failover, holds are renewed and waiters keep their positions, as with sentinels,
/// and the last grants may be lost in the same way. There are two connections to each primary.
/// Errors name the address of the first unusable primary.
///
/// # Quorum
///
/// ```no_run
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::{Locks, Quorum};
///
/// let primaries = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
/// let locks = Locks::connect(Quorum::new(primaries)).await?;
/// # Ok(())
/// # }
/// ```
///
/// A lock must be held on a majority of independent servers: see [`guide::quorum`] for uses and
/// guarantees. Locks and reads have the same methods as on one server; permits are
/// [`Unsupported`](crate::LockErrorKind::Unsupported). There are two connections to each primary.
/// As long as a majority is usable, unreachable or refusing primaries are retried later, with a
/// warning for each, once a minute.
///
/// Connecting fails if fewer than a majority are usable: with the error of a refusing primary, if
/// the refusals alone leave no majority, and otherwise with an unreachable primary's error. A
/// primary that belongs to another list is [`InvalidOption`](crate::LockErrorKind::InvalidOption);
/// a server with replicas, a replica, or a promoted replica is
/// [`Unsupported`](crate::LockErrorKind::Unsupported).
///
/// # Your own client or configuration
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockcore::Locks;
///
/// let client = redis::Client::open("redis://app:secret@127.0.0.1/3")?; // of `redis` 1.x
/// let locks = Locks::connect(client).await?;
/// # Ok(())
/// # }
/// ```
///
/// A client provides the address, user, database, protocol, socket settings and, with TLS, the
/// certificates, unless `tls_ca` and `tls_identity` replace these. A `deadpool_redis` configuration
/// provides the same by `url` or `connection`, not both; the default is `127.0.0.1:6379`. The
/// `Locks` opens new connections: existing connections of the client are not used, and the pool
/// settings have no effect. To use a pool's connections, see
/// [`LocksBuilder::from_pool`](crate::LocksBuilder::from_pool).
///
/// [`guide::quorum`]: crate::guide::quorum
#[derive(Clone)]
pub struct Servers(Kind);

#[derive(Clone)]
enum Kind {
    Url(String),
    Sentinels(Sentinels),
    Cluster(Cluster),
    Quorum(Quorum),
    Client(Box<redis::Client>),
    #[cfg(feature = "deadpool")]
    Config(Box<deadpool_redis::Config>),
}

impl From<&str> for Servers {
    fn from(url: &str) -> Self {
        url.to_owned().into()
    }
}

impl From<String> for Servers {
    fn from(url: String) -> Self {
        Self(Kind::Url(url))
    }
}

impl From<&String> for Servers {
    fn from(url: &String) -> Self {
        url.as_str().into()
    }
}

impl From<Sentinels> for Servers {
    fn from(sentinels: Sentinels) -> Self {
        Self(Kind::Sentinels(sentinels))
    }
}

impl From<Cluster> for Servers {
    fn from(cluster: Cluster) -> Self {
        Self(Kind::Cluster(cluster))
    }
}

impl From<Quorum> for Servers {
    fn from(quorum: Quorum) -> Self {
        Self(Kind::Quorum(quorum))
    }
}

impl From<redis::Client> for Servers {
    fn from(client: redis::Client) -> Self {
        Self(Kind::Client(Box::new(client)))
    }
}

#[cfg(feature = "deadpool")]
impl From<deadpool_redis::Config> for Servers {
    fn from(config: deadpool_redis::Config) -> Self {
        Self(Kind::Config(Box::new(config)))
    }
}

impl Servers {
    /// Returns whether the servers are given by the application's own `redis::Client` or
    /// `deadpool_redis::Config`. The connections may then have the timeouts set there.
    fn are_of_user(&self) -> bool {
        match self.0 {
            Kind::Url(_) | Kind::Sentinels(_) | Kind::Cluster(_) | Kind::Quorum(_) => false,
            Kind::Client(_) => true,
            #[cfg(feature = "deadpool")]
            Kind::Config(_) => true,
        }
    }
}

impl fmt::Debug for Servers {
    /// Writes only the kind of servers, because URLs can contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Url(_) => "Servers::Url",
            Kind::Sentinels(_) => "Servers::Sentinels",
            Kind::Cluster(_) => "Servers::Cluster",
            Kind::Quorum(_) => "Servers::Quorum",
            Kind::Client(_) => "Servers::Client",
            #[cfg(feature = "deadpool")]
            Kind::Config(_) => "Servers::Config",
        })
    }
}

impl Locks {
    /// Connects to the [servers](Servers), with default settings. To change settings, use
    /// [`LocksBuilder::connect`].
    ///
    /// # Errors
    /// [`Unavailable`](crate::LockErrorKind::Unavailable),
    /// [`Denied`](crate::LockErrorKind::Denied), [`ReadOnly`](crate::LockErrorKind::ReadOnly) or
    /// [`Unsupported`](crate::LockErrorKind::Unsupported): the text names the change to make.
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) if the URL is invalid or an option is
    /// out of range. Each connection may take twice the [connect
    /// timeout](crate::LocksBuilder::connect_timeout), for the name look-up and for the rest, and
    /// each check of the server one [request timeout](crate::LocksBuilder::request_timeout).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections it has opened.
    pub async fn connect(servers: impl Into<Servers>) -> Result<Self, LockError> {
        Self::builder().connect(servers).await
    }
}

impl LocksBuilder {
    /// Connects to the [servers](Servers) with these settings, and creates the `Locks`.
    ///
    /// # Errors
    /// As [`Locks::connect`]. Also [`InvalidOption`](crate::LockErrorKind::InvalidOption) for an
    /// option unavailable on these servers: [`redisson_peers`](Self::redisson_peers) on a Redis
    /// Cluster; on a quorum `redisson_peers`, [`require_replicas`](Self::require_replicas),
    /// [`require_fsync`](Self::require_fsync), a [`batch_limit`](Self::batch_limit) above 1, and a
    /// default lease above the [`max_lease`](Quorum::max_lease); with your own client or
    /// configuration `require_fsync`.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections it has opened.
    pub async fn connect(self, servers: impl Into<Servers>) -> Result<Locks, LockError> {
        let (tls, timeouts) = (&self.tls, self.timeouts());
        let servers = servers.into();
        self.check_connections(servers.are_of_user())?;
        let connector = match servers.0 {
            Kind::Cluster(cluster) => return self.on_cluster(cluster).await,
            Kind::Quorum(quorum) => return self.on_quorum(quorum).await,
            Kind::Url(url) => {
                if let Some(cluster) = read_cluster(&url) {
                    return self.on_cluster(cluster?).await;
                }
                if let Some(quorum) = Quorum::read(&url) {
                    return self.on_quorum(quorum?).await;
                }
                Connector::from_url(&url, tls, timeouts)?
            }
            Kind::Sentinels(sentinels) => Connector::from_sentinels(&sentinels, tls, timeouts)?,
            Kind::Client(client) => Connector::from_client(&client, tls, timeouts)?,
            #[cfg(feature = "deadpool")]
            Kind::Config(config) => Connector::from_config(*config, tls, timeouts)?,
        };
        self.on_redis(connector).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shown_without_passwords() {
        let url = "redis://app:secret@127.0.0.1/";
        let client = redis::Client::open(url).expect("a URL");
        let all: [Servers; 5] = [
            url.into(),
            Sentinels::new("orders", [url]).into(),
            Cluster::new([url]).into(),
            Quorum::new([url; 3]).into(),
            client.into(),
        ];
        for servers in all {
            let shown = format!("{servers:?}");
            assert!(shown.starts_with("Servers::") && !shown.contains("secret"), "{shown}");
        }
    }
}
