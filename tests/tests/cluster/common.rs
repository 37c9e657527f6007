//! Shared parts of these tests: bounds, names in given slots, and locks acquired at once.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use lock_tests::{Clustered, CommandStats, eventually};
use lockcore::{LockGuard, LockOptions, Locks};
use proto::LockName;
use redis::cmd;

/// The bound of a failover on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A lease much longer than a test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let limit = tokio::time::timeout(SOON, future).await;
    limit.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

pub(crate) async fn connect(clustered: &Clustered) -> Locks {
    let locks = Locks::builder().defaults(LockOptions::new().lease(LONG));
    soon("a connection", locks.connect(clustered.url())).await.expect("accepted")
}

pub(crate) fn slot(key: &str) -> u16 {
    LockName::from(key).slot()
}

/// Acquires a free lock.
pub(crate) async fn held(locks: &Locks, key: &str) -> LockGuard {
    soon("the lock", locks.lock(key)).await.expect("the lock is free")
}

pub(crate) async fn release(guard: LockGuard) {
    soon("the release", guard.release()).await.expect("it was held");
}

/// Announces these addresses as the addresses of the servers. Returns once all primaries report
/// them.
pub(crate) async fn announce<const N: usize>(
    clustered: &Clustered,
    addresses: [(usize, SocketAddr); N],
) {
    let mut announced = Vec::new();
    for (number, address) in addresses {
        let mut redis = clustered.raw(number).await;
        redis.configure("cluster-announce-port", &address.port().to_string()).await;
        let id: String = redis.ask(cmd("CLUSTER").arg("MYID")).await;
        announced.push(format!("{id} {address}@"));
    }
    for primary in 0..3 {
        let mut redis = clustered.raw(primary).await;
        eventually("the addresses are known", SOON, async || {
            let nodes: String = redis.ask(cmd("CLUSTER").arg("NODES")).await;
            announced.iter().all(|announced| nodes.contains(announced))
        })
        .await;
    }
}

/// Returns how often these servers were asked for the topology.
pub(crate) async fn topology_queries(clustered: &Clustered, servers: Range<usize>) -> u64 {
    let mut queries = 0;
    for number in servers {
        let stats = CommandStats::read(&mut clustered.raw(number).await).await;
        queries += stats.calls("cluster|slots");
    }
    queries
}

/// Waits until the node has queried the topology several times, and acted on it.
pub(crate) async fn several_refreshes(clustered: &Clustered) {
    let before = topology_queries(clustered, 0..3).await;
    eventually("the topology is queried", SOON, async || {
        topology_queries(clustered, 0..3).await >= before + 4
    })
    .await;
}
