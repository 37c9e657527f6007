//! The servers that a `Locks` connects to.

use std::fmt;

use client::{Cluster, Connector, Sentinels, read_cluster};

use super::LocksBuilder;
use crate::api::locks::Locks;
use crate::quorum::Quorum;
use crate::types::error::LockError;

/// The servers that [`Locks::connect`] connects to: Redis 6.2 or newer, or Valkey. Made of a URL, a
/// [`Sentinels`], a [`Cluster`], a [`Quorum`], a `redis::Client` or a `deadpool_redis::Config`.
///
/// # URLs
///
/// | URL | servers |
/// |---|---|
/// | `redis://[user[:password]@]host[:port][/db]` | one server |
/// | `redis+unix:///path[?user=…&pass=…&db=…]`, or `unix://` | one server, by a Unix socket |
/// | `redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/primary-name[/db]` | the primary that these sentinels watch; user, password and database are the primary's |
/// | `redis+cluster://[user[:password]@]host[:port][,host[:port]]…` | a Redis Cluster |
/// | `redis+quorum://[user[:password]@]host[:port],host[:port],host[:port]…[/db]` | the primaries of a quorum |
///
/// With `rediss` in place of `redis` the connections use TLS, which needs the feature `tls`; not by
/// a Unix socket. The port is 6379 unless it is given, that of sentinels 26379.
///
/// Options stand behind a `?`, with `&` between them: `protocol=resp3`, where RESP2 is the default;
/// `db`, `user` and `pass` as another way to write these; and for a quorum `max_lease_ms=N`, its
/// [`max_lease`](Quorum::max_lease) in milliseconds. All that a URL says is followed: another
/// option, a `#`, and something that is given twice are an
/// [`InvalidOption`](crate::LockErrorKind::InvalidOption). A user without a password is that user,
/// with an empty password.
///
/// Percent-encode special characters of user and password: `#` is `%23`, `/` is `%2F`, `?` is
/// `%3F`, `@` is `%40`, `%` is `%25`.
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
///     .primary("rediss://app:secret@primary/3"); // the sentinels name its host
/// let locks = Locks::connect(sentinels).await?;
/// # Ok(())
/// # }
/// ```
///
/// Commands and subscription go to the primary that the newest configuration among the sentinels
/// names, and only if it says itself that it is the primary. When a connection breaks, the server
/// refuses a write as a replica does, or the sentinels name another primary (looked at every two
/// seconds), the primary is looked for anew: holds are renewed there at once, and waiters keep
/// their places if the new primary knows them, else they go on at the tail. Sentinels that know no
/// primary of that name are an [`InvalidOption`](crate::LockErrorKind::InvalidOption).
///
/// Replication is asynchronous: grants and releases of the old primary's last moments may be
/// unknown to the new one. A second holder is then possible until the first one's lease ends; see
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
/// Each lock lives on the primary that serves the slot of its name; the order of its waiters, its
/// tokens and its leases are those of that primary. A primary that fails costs its own locks only.
/// While a slot moves, its locks are refused for some milliseconds, and the requests are sent again
/// within their time. After a failover, holds are renewed and waiters ask again, as with sentinels,
/// and grants may be lost in the same way. There are two connections for each primary. Errors are
/// those of the first primary that cannot be used, with its address.
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
/// A lock has to be held on most of several independent servers: [`guide::quorum`] has its uses and
/// its promises. Locks and reads have the same methods as on one server; permits are
/// [`Unsupported`](crate::LockErrorKind::Unsupported). There are two connections for each primary.
/// Primaries that cannot be reached, or refuse, are tried again later, as long as a majority can be
/// used: a warning tells of each, once a minute.
///
/// Connecting fails if fewer than a majority can be used, with the error of a primary that refuses,
/// if so many refuse; else of one that cannot be reached. A primary that belongs to another list is
/// [`InvalidOption`](crate::LockErrorKind::InvalidOption), and one that has replicas or was one is
/// [`Unsupported`](crate::LockErrorKind::Unsupported).
///
/// # A client or a configuration of yours
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
/// A client says the address, the user and the database, the protocol, the socket settings, and
/// with TLS the certificates; `tls_ca` and `tls_identity`, if given, replace these. A configuration
/// of `deadpool_redis` says the same by its `url` or its `connection`, of which it may not have
/// both; without either it is `127.0.0.1:6379`. The connections are the `Locks`' own: those that
/// the client has opened are not used, and the settings of the pool have no effect. To use a pool's
/// connections, see [`LocksBuilder::from_pool`](crate::LocksBuilder::from_pool).
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

impl fmt::Debug for Servers {
    /// Without credentials.
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
    /// Connects to these [servers](Servers); with options, by [`LocksBuilder::connect`].
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
    pub async fn connect(servers: impl Into<Servers>) -> Result<Self, LockError> {
        Self::builder().connect(servers).await
    }
}

impl LocksBuilder {
    /// Connects to these [servers](Servers).
    ///
    /// # Errors
    /// As [`Locks::connect`]. [`InvalidOption`](crate::LockErrorKind::InvalidOption), too, for an
    /// option that the servers cannot have: [`redisson_peers`](Self::redisson_peers) on a Redis
    /// Cluster; on a quorum `redisson_peers`, [`require_replicas`](Self::require_replicas), a
    /// [`run_limit`](Self::run_limit) above 1, and a default lease above the
    /// [`max_lease`](Quorum::max_lease).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections that it has opened.
    pub async fn connect(self, servers: impl Into<Servers>) -> Result<Locks, LockError> {
        let (tls, timeouts) = (&self.tls, self.timeouts());
        let connector = match servers.into().0 {
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
