//! The ways in which a primary is replaced.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::cmd;

use crate::{Raw, RedisOptions, Watched};

/// A way to take the primary out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Kills the primary; it comes back empty, as a replica.
    Kill,
    /// Stops the primary; it comes back as it was, and thinks that it is the primary.
    Freeze,
    /// Cuts the replicas and sentinels off from the primary; the clients still reach it.
    Partition,
    /// Asks the sentinels for another primary.
    Planned,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Freeze, Self::Partition, Self::Planned];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "failover-kill",
            Self::Freeze => "failover-freeze",
            Self::Partition => "failover-partition",
            Self::Planned => "failover-planned",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| format!("no way to replace a primary: {text:?}"))
    }
}

/// The time for which a primary that was replaced serves on.
const RETURNED: Duration = Duration::from_secs(2);

/// The servers and sentinels, which stay for many failovers.
pub(super) struct Scene {
    watched: Watched,
    primary: usize,
    /// The server that was replaced, and its fault.
    broken: Option<(usize, Fault)>,
}

impl Scene {
    pub(super) async fn start(careful: bool) -> Self {
        let mut options = RedisOptions::default();
        if careful {
            options = options.arg("min-replicas-to-write", "1").arg("min-replicas-max-lag", "2");
        }
        // Clients have a user of their own, so that all others can be cut off.
        let options = options.arg("user", "locks on >locks allkeys allchannels allcommands");
        Self { watched: Watched::start(options).await, primary: 0, broken: None }
    }

    /// The URL for clients.
    pub(super) fn url(&self) -> String {
        self.watched.url().replace("redis+sentinel://", "redis+sentinel://locks:locks@")
    }

    /// Breaks the primary; returns once another server is the primary.
    pub(super) async fn break_by(&mut self, fault: Fault) {
        let old = self.primary;
        self.primary = match fault {
            Fault::Kill => {
                self.watched.server(old).kill();
                self.watched.promoted(old).await
            }
            Fault::Freeze => {
                self.watched.server(old).freeze();
                self.watched.promoted(old).await
            }
            Fault::Partition => {
                let mut redis = self.watched.raw(old).await;
                redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("default").arg("off")).await;
                for kind in ["replica", "pubsub", "normal"] {
                    let mut kill = cmd("CLIENT");
                    kill.arg("KILL").arg("TYPE").arg(kind).arg("USER").arg("default");
                    // This very connection is one of them at the end.
                    let _ = redis.try_ask::<()>(kill.arg("SKIPME").arg("yes")).await;
                }
                self.watched.promoted(old).await
            }
            Fault::Planned => self.watched.fail_over(old).await,
        };
        self.broken = Some((old, fault));
    }

    /// Makes the old primary follow the new one; returns whether the new one is still the same.
    pub(super) async fn mend(&mut self) -> bool {
        let Some((old, fault)) = self.broken.take() else { return true };
        match fault {
            Fault::Kill => self.watched.server(old).restart(),
            Fault::Freeze => {
                self.watched.server(old).thaw();
                tokio::time::sleep(RETURNED).await;
            }
            Fault::Partition => {
                let url = self.watched.server(old).url();
                let mut redis =
                    Raw::connect(&url.replace("redis://", "redis://locks:locks@")).await;
                redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("default").arg("on")).await;
                tokio::time::sleep(RETURNED).await;
            }
            Fault::Planned => {}
        }
        // The sentinels would take ten seconds for it.
        let port = self.watched.server(self.primary).port();
        let mut redis = self.watched.raw(old).await;
        redis.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(port)).await;
        let promoted = self.primary;
        self.primary = self.watched.in_step().await;
        self.primary == promoted
    }
}
