//! `Watched`: a primary with replicas, and the sentinels that watch them.

use std::collections::HashMap;
use std::time::Duration;

use redis::cmd;

use crate::{Raw, RedisOptions, RedisServer, eventually, eventually_some};

/// The sentinels' name of the primary.
const NAME: &str = "locks";
const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// The bound of a start or a failover: on an idle machine each takes 2 s. A sentinel that got no
/// processor for 2 s does nothing for 30 s.
const LIMIT: Duration = Duration::from_secs(120);

/// A primary with two replicas, and three sentinels, all on loopback.
#[derive(Debug)]
pub struct Watched {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl Watched {
    /// Starts the servers with `options` for each, and returns when all know each other.
    ///
    /// # Panics
    ///
    /// If a server does not come up, or the servers do not find each other in time.
    pub async fn start(options: RedisOptions) -> Self {
        Self::start_with(options, "", |_| RedisOptions::default()).await
    }

    /// Starts the servers as in [`start`](Self::start), with `more` lines for the sentinels' files,
    /// and options for each server by index.
    ///
    /// # Panics
    ///
    /// As [`Watched::start`].
    pub async fn start_with(
        options: RedisOptions,
        more: &str,
        of_sentinel: impl Fn(usize) -> RedisOptions,
    ) -> Self {
        let server = |primary: Option<&RedisServer>| {
            let options = options
                .clone()
                .arg("repl-diskless-sync-delay", "0")
                .arg("repl-ping-replica-period", "1")
                .arg("repl-timeout", "5");
            match primary {
                Some(primary) => {
                    options.arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start()
                }
                None => options.start(),
            }
        };
        let mut servers = vec![server(None)];
        while servers.len() < SERVERS {
            servers.push(server(servers.first()));
        }
        let lines = format!(
            "sentinel monitor {NAME} 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds {NAME} 500\n\
             sentinel failover-timeout {NAME} 2000\n\
             sentinel parallel-syncs {NAME} 2\n\
             sentinel deny-scripts-reconfig yes\n\
             {more}\n",
            servers[0].port()
        );
        let sentinel = |number| of_sentinel(number).sentinel(lines.clone()).start();
        let sentinels = (0..SENTINELS).map(sentinel).collect();
        let watched = Self { servers, sentinels };
        for sentinel in &watched.sentinels {
            watched.formed(sentinel).await;
        }
        watched
    }

    /// Returns the URL of all sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> =
            self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Returns a server, by index; 0 is the first primary.
    pub fn server(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// Returns a connection to a server.
    pub async fn raw(&self, number: usize) -> Raw {
        Raw::connect(&self.servers[number].url()).await
    }

    /// Waits until another server than `old` is the primary; returns its index.
    ///
    /// # Panics
    ///
    /// If no other server is the primary in time.
    pub async fn promoted(&self, old: usize) -> usize {
        eventually_some("another server is promoted", LIMIT, async || {
            for (number, server) in self.servers.iter().enumerate() {
                if number != old && role(server).await.as_deref() == Some("master") {
                    return Some(number);
                }
            }
            None
        })
        .await
    }

    /// Waits until every sentinel names this server as the primary.
    ///
    /// # Panics
    ///
    /// If a sentinel does not in time.
    pub async fn until_named(&self, number: usize) {
        eventually("every sentinel names the new primary", LIMIT, async || {
            self.named().await == Some(number)
        })
        .await;
    }

    /// Waits until the sentinels agree on a primary that is well for all; returns its index.
    ///
    /// From now on no failover happens by itself: on an overloaded machine, a second failover may
    /// follow, and lose writes that the primary in between has just acknowledged.
    ///
    /// # Panics
    ///
    /// If they do not agree in time.
    pub async fn settled(&self) -> usize {
        for sentinel in &self.sentinels {
            let mut sentinel = Raw::connect(&sentinel.url()).await;
            let mut set = cmd("SENTINEL");
            set.arg("SET").arg(NAME).arg("down-after-milliseconds").arg(3_600_000);
            sentinel.ask::<()>(&set).await;
        }
        eventually_some("the sentinels agree", LIMIT, async || {
            let primary = self.named().await?;
            for sentinel in &self.sentinels {
                let mut sentinel = Raw::connect(&sentinel.url()).await;
                let ask = cmd("SENTINEL").arg("MASTER").arg(NAME).to_owned();
                let seen: HashMap<String, String> = sentinel.try_ask(&ask).await.ok()?;
                if seen["flags"] != "master" {
                    return None;
                }
            }
            (role(&self.servers[primary]).await.as_deref() == Some("master")).then_some(primary)
        })
        .await
    }

    /// Waits until this server is a replica.
    ///
    /// # Panics
    ///
    /// If it is not in time.
    pub async fn demoted(&self, number: usize) {
        eventually("the old primary is a replica", LIMIT, async || {
            role(&self.servers[number]).await.as_deref() == Some("slave")
        })
        .await;
    }

    /// Makes the sentinels promote another server while all are alive.
    ///
    /// # Panics
    ///
    /// If the sentinels do not.
    pub async fn fail_over(&self, old: usize) -> usize {
        let mut sentinel = Raw::connect(&self.sentinels[0].url()).await;
        eventually("a failover begins", LIMIT, async || {
            // Refused during another failover, or while no replica is good enough.
            sentinel.try_ask::<()>(cmd("SENTINEL").arg("FAILOVER").arg(NAME)).await.is_ok()
        })
        .await;
        self.promoted(old).await
    }

    /// Waits until both replicas have all data of the primary, and the sentinels report so, too.
    /// Returns the primary's index: on an overloaded machine, the sentinels may have promoted
    /// another server again.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub async fn in_step(&self) -> usize {
        let primary = eventually_some("both replicas follow", LIMIT, async || {
            let primary = self.named().await?;
            let mut redis = self.raw(primary).await;
            (followers(&mut redis, SERVERS - 1).await == SERVERS - 1).then_some(primary)
        })
        .await;
        for sentinel in &self.sentinels {
            self.formed(sentinel).await;
        }
        primary
    }

    /// Returns the index of the server that all sentinels name as the primary, once they agree.
    async fn named(&self) -> Option<usize> {
        let mut named = None;
        for sentinel in &self.sentinels {
            let mut sentinel = Raw::connect(&sentinel.url()).await;
            let ask = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).to_owned();
            let (_, port): (String, u16) = sentinel.try_ask(&ask).await.ok()?;
            let number = self.servers.iter().position(|server| server.port() == port)?;
            if *named.get_or_insert(number) != number {
                return None;
            }
        }
        named
    }

    async fn formed(&self, sentinel: &RedisServer) {
        let mut sentinel = Raw::connect(&sentinel.url()).await;
        eventually("the sentinels know each other and all servers", LIMIT, async || {
            let others: Vec<redis::Value> =
                sentinel.ask(cmd("SENTINEL").arg("SENTINELS").arg(NAME)).await;
            let replicas: Vec<HashMap<String, String>> =
                sentinel.ask(cmd("SENTINEL").arg("REPLICAS").arg(NAME)).await;
            let is_good = |replica: &HashMap<String, String>| {
                replica["flags"] == "slave" && replica["master-link-status"] == "ok"
            };
            others.len() == SENTINELS - 1
                && replicas.iter().filter(|replica| is_good(replica)).count() == SERVERS - 1
        })
        .await;
    }
}

async fn role(server: &RedisServer) -> Option<String> {
    let client = redis::Client::open(server.url()).ok()?;
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_millis(500)))
        .set_response_timeout(Some(Duration::from_millis(500)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.ok()?;
    let role: Vec<redis::Value> = cmd("ROLE").query_async(&mut connection).await.ok()?;
    redis::from_redis_value_ref(role.first()?).ok()
}

/// Returns how many replicas have all data of this primary, once there are `wanted` or after half a
/// second.
pub async fn followers(primary: &mut Raw, wanted: usize) -> usize {
    let _ = primary.try_ask::<()>(cmd("SET").arg("in-step").arg(1).arg("PX").arg(1)).await;
    primary.try_ask(cmd("WAIT").arg(wanted).arg(500)).await.unwrap_or(0)
}
