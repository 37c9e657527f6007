//! The servers whose primaries are replaced: behind Sentinel, and in a Redis Cluster.

use std::time::Duration;

use redis::cmd;

use super::fault::Fault;
use crate::{Clustered, Raw, RedisOptions, RedisServer, Watched};

/// The rules of the clients' user. It differs from the user of other connections, so that these can
/// be cut off.
const USER: &str = "locks on >locks allkeys allchannels allcommands";
const CLIENT: &str = "locks:locks@";
/// How long a replaced primary keeps serving.
const RETURNED: Duration = Duration::from_secs(2);

/// The servers of many failovers.
pub(super) trait Scene {
    /// Returns the URL for clients.
    fn url(&self) -> String;

    /// Breaks a primary; returns once another server has replaced it.
    async fn break_by(&mut self, fault: Fault);

    /// Makes the old primary follow the new one; returns whether the new primary is unchanged.
    async fn mend(&mut self) -> bool;
}

/// Ends the fault of a replaced server, which believes to be the primary for a while.
async fn bring_back(server: &mut RedisServer, fault: Fault) {
    match fault {
        Fault::Kill => server.restart(),
        Fault::Freeze => {
            server.thaw();
            tokio::time::sleep(RETURNED).await;
        }
        Fault::Partition => {
            let url = server.url().replace("redis://", &format!("redis://{CLIENT}"));
            let mut redis = Raw::connect(&url).await;
            redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("default").arg("on")).await;
            tokio::time::sleep(RETURNED).await;
        }
        Fault::Planned => {}
    }
}

/// Cuts off all connections without their own user: replicas and sentinels.
async fn cut_off(redis: &mut Raw) {
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("default").arg("off")).await;
    for kind in ["replica", "pubsub", "normal"] {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg(kind).arg("USER").arg("default");
        // This connection is cut last.
        let _ = redis.try_ask::<()>(kill.arg("SKIPME").arg("yes")).await;
    }
}

/// Servers and sentinels.
pub(super) struct OverSentinel {
    watched: Watched,
    primary: usize,
    /// The index of the replaced server, and the fault that struck it.
    broken: Option<(usize, Fault)>,
}

impl OverSentinel {
    pub(super) async fn start(careful: bool) -> Self {
        let mut options = RedisOptions::default();
        if careful {
            options = options.arg("min-replicas-to-write", "1").arg("min-replicas-max-lag", "2");
        }
        let options = options.arg("user", USER);
        Self { watched: Watched::start(options).await, primary: 0, broken: None }
    }
}

impl Scene for OverSentinel {
    fn url(&self) -> String {
        self.watched.url().replace("redis+sentinel://", &format!("redis+sentinel://{CLIENT}"))
    }

    async fn break_by(&mut self, fault: Fault) {
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
                cut_off(&mut self.watched.raw(old).await).await;
                self.watched.promoted(old).await
            }
            Fault::Planned => self.watched.fail_over(old).await,
        };
        self.broken = Some((old, fault));
    }

    async fn mend(&mut self) -> bool {
        let Some((old, fault)) = self.broken.take() else { return true };
        bring_back(self.watched.server(old), fault).await;
        // The sentinels would take ten seconds for this.
        let port = self.watched.server(self.primary).port();
        let mut redis = self.watched.raw(old).await;
        redis.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(port)).await;
        let promoted = self.primary;
        self.primary = self.watched.in_step().await;
        self.primary == promoted
    }
}

/// The silence after which a Cluster primary is considered dead.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// A Redis Cluster whose primaries are replaced in turn, each by its only replica.
pub(super) struct OnCluster {
    clustered: Clustered,
    /// The server that serves the slots of each shard.
    primaries: [usize; 3],
    turn: usize,
    broken: Option<(usize, Fault)>,
}

impl OnCluster {
    pub(super) async fn start() -> Self {
        let options = RedisOptions::default().arg("user", USER);
        let clustered = Clustered::start_with_relays(options, NODE_TIMEOUT).await;
        Self { clustered, primaries: [0, 1, 2], turn: 0, broken: None }
    }
}

impl Scene for OnCluster {
    fn url(&self) -> String {
        self.clustered.url_with("redis", CLIENT, "127.0.0.1")
    }

    async fn break_by(&mut self, fault: Fault) {
        let shard = self.turn % self.primaries.len();
        self.turn += 1;
        // On a busy machine failovers happen by themselves occasionally.
        let old = self.clustered.present_primary(self.primaries[shard]).await;
        match fault {
            Fault::Kill => self.clustered.server(old).kill(),
            Fault::Freeze => self.clustered.server(old).freeze(),
            Fault::Planned => self.clustered.fail_over(old).await,
            Fault::Partition => {
                self.clustered.isolate(Some(old));
                cut_off(&mut self.clustered.raw(old).await).await;
            }
        }
        self.primaries[shard] = self.clustered.promoted(old).await;
        self.broken = Some((old, fault));
    }

    async fn mend(&mut self) -> bool {
        let Some((old, fault)) = self.broken.take() else { return true };
        self.clustered.isolate(None);
        bring_back(self.clustered.server(old), fault).await;
        self.clustered.follows(old).await;
        let mut primaries = self.primaries;
        for primary in &mut primaries {
            *primary = self.clustered.present_primary(*primary).await;
        }
        let is_alone = primaries == self.primaries;
        self.primaries = primaries;
        is_alone
    }
}
