//! Primaries whose announced address changes, leads to another server, or cannot be reached.

use std::time::Duration;

use lock_tests::{Clustered, Front, Port, RedisOptions, eventually, lock_key};
use lockcore::{LockOptions, Locks};
use redis::cmd;

use crate::common::{
    LONG, SOON, announce, connect, held, release, several_refreshes, slot, soon, topology_queries,
};

/// When a silent primary is considered dead.
const SILENT: Duration = Duration::from_secs(2);

/// Returns the beginnings of the names of the channels on which the node listens at a server: the
/// Cluster ids of the servers that it takes the server for.
async fn taken_for(clustered: &Clustered, number: usize, locks: &Locks) -> Vec<String> {
    let pattern = format!("lockcore:grants:*:{}", locks.node());
    let mut redis = clustered.raw(number).await;
    let heard: Vec<String> = redis.ask(cmd("PUBSUB").arg("CHANNELS").arg(&pattern)).await;
    let id = |channel: &String| channel.split(':').nth(2).map(str::to_owned);
    heard.iter().filter_map(id).collect()
}

#[tokio::test]
async fn a_connected_primary_that_announces_another_address_is_not_opened_again() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let front = Front::start(clustered.server(0).address()).await;
    announce(&clustered, [(0, front.address())]).await;
    several_refreshes(&clustered).await;
    let shown = locks.status().servers;
    assert_eq!(shown.len(), 3, "{shown:?}");
    release(held(&locks, &clustered.key_of(0, 0)).await).await;
}

#[tokio::test]
async fn a_hold_in_an_open_slot_is_followed_to_a_connected_primary_with_a_new_address() {
    const LEASE: Duration = Duration::from_secs(3);
    let mut clustered = Clustered::steady().await;
    let options = Locks::builder().defaults(LockOptions::new().lease(LEASE));
    let locks = soon("a connection", options.connect(clustered.url())).await.expect("accepted");
    let front = Front::start(clustered.server(0).address()).await;
    announce(&clustered, [(0, front.address())]).await;
    several_refreshes(&clustered).await;
    let key = clustered.key_of(1, 0);
    let guard = held(&locks, &key).await;
    clustered.open_slot(slot(&key), 1, 0).await;
    clustered.move_key(&lock_key(&key), 1, 0).await;
    let lost = tokio::time::timeout(2 * LEASE, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

#[tokio::test]
async fn a_primary_is_followed_to_its_new_address_although_a_replica_has_the_former() {
    let mut clustered = Clustered::start(RedisOptions::default(), true, LONG).await;
    let [primary, replica] = [0, 3].map(|number| clustered.server(number).address());
    let [first, second] = [Front::start(primary).await, Front::start(replica).await];
    announce(&clustered, [(0, first.address()), (3, second.address())]).await;
    let locks = connect(&clustered).await;
    let guard = held(&locks, &clustered.key_of(0, 0)).await;
    first.leads_to(replica);
    second.leads_to(primary);
    first.cut();
    announce(&clustered, [(0, second.address()), (3, first.address())]).await;
    let other = clustered.key_of(0, 1);
    eventually("the primary is followed", SOON, async || locks.try_lock(&other).await.is_ok())
        .await;
    release(guard).await;
    // The shard at the former address is kept for a while, and no other is opened.
    several_refreshes(&clustered).await;
    let shown = locks.status().servers;
    assert_eq!(shown.len(), 4, "{shown:?}");
}

// A process that listens by the name of another primary is not counted by the scripts of others.
#[tokio::test]
async fn two_primaries_that_exchange_their_addresses_are_told_apart() {
    let mut clustered = Clustered::steady().await;
    let servers = [0, 1].map(|number| clustered.server(number).address());
    let [first, second] = [Front::start(servers[0]).await, Front::start(servers[1]).await];
    announce(&clustered, [(0, first.address()), (1, second.address())]).await;
    let locks = connect(&clustered).await;
    let mut names = Vec::new();
    for number in [0, 1] {
        names.extend(taken_for(&clustered, number, &locks).await);
    }
    first.leads_to(servers[1]);
    second.leads_to(servers[0]);
    first.cut();
    second.cut();
    announce(&clustered, [(0, second.address()), (1, first.address())]).await;
    for (number, name) in names.iter().enumerate() {
        eventually("the primary is told apart", SOON, async || {
            taken_for(&clustered, number, &locks).await.contains(name)
        })
        .await;
        release(held(&locks, &clustered.key_of(number, 0)).await).await;
    }
}

#[tokio::test]
async fn a_failover_is_followed_while_another_new_primary_cannot_be_reached() {
    let mut clustered = Clustered::start(RedisOptions::default(), true, SILENT).await;
    let builder = Locks::builder().connect_timeout(SOON);
    let locks = soon("a connection", builder.connect(clustered.url())).await.expect("accepted");
    // Accepts connections, and answers nothing.
    let silent = Front::start(clustered.server(3).address()).await;
    silent.costs(LONG);
    announce(&clustered, [(3, silent.address())]).await;
    clustered.fail_over(0).await;
    clustered.promoted(0).await;
    eventually("it is being connected to", SOON, async || silent.in_line() > 0).await;
    // A replica that lacks too much is never promoted.
    clustered.follows(4).await;
    clustered.server(1).kill();
    clustered.promoted(1).await;
    let key = clustered.key_of(1, 0);
    eventually("the failover is followed", SOON / 3, async || locks.try_lock(&key).await.is_ok())
        .await;
}

/// Tries to acquire the lock until this server has been asked for the topology several times.
async fn try_until_asked(locks: &Locks, key: &str, clustered: &Clustered, server: usize) {
    eventually("the server is asked", SOON, async || {
        // Granted at most before the connections are cut.
        drop(locks.try_lock(key).await);
        topology_queries(clustered, server..server + 1).await >= 3
    })
    .await;
}

/// Panics if the Cluster has any key, such as a counter of tokens.
async fn assert_unused(other: &Clustered) {
    for number in 0..3 {
        assert_eq!(other.raw(number).await.keys("*").await, [""; 0], "in the other Cluster");
    }
}

// An address that an orchestrator has given to a server of another Cluster.
#[tokio::test]
async fn a_server_of_another_cluster_at_the_address_of_a_primary_gets_no_lock() {
    let [mut clustered, mut other] = [Clustered::steady().await, Clustered::steady().await];
    let [ours, theirs] = [&mut clustered, &mut other].map(|of| of.server(0).address());
    let front = Front::start(ours).await;
    announce(&clustered, [(0, front.address())]).await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(0, 0);
    release(held(&locks, &key).await).await;
    front.leads_to(theirs);
    front.cut();
    try_until_asked(&locks, &key, &other, 0).await;
    release(held(&locks, &clustered.key_of(1, 0)).await).await;
    assert_unused(&other).await;
    front.leads_to(ours);
    release(held(&locks, &key).await).await;
}

#[tokio::test]
async fn a_seed_that_is_of_another_cluster_by_now_is_not_believed_while_another_seed_is_not() {
    let [mut clustered, mut other] = [Clustered::steady().await, Clustered::steady().await];
    let ours = [0, 1, 2].map(|number| clustered.server(number).address());
    let theirs = other.server(0).address();
    let mut fronts = Vec::new();
    for address in ours {
        fronts.push(Front::start(address).await);
    }
    let of_fronts = [0, 1, 2].map(|number| (number, fronts[number].address()));
    announce(&clustered, of_fronts).await;
    let seed = Front::start(ours[0]).await;
    let url = format!("redis+cluster://{},{}", seed.address(), ours[1]);
    let locks = soon("a connection", Locks::connect(url)).await.expect("accepted");
    seed.leads_to(theirs);
    let nobody = Port::free();
    for front in &fronts {
        front.leads_to(nobody.address());
        front.cut();
    }
    let key = clustered.key_of(0, 0);
    try_until_asked(&locks, &key, &other, 0).await;
    for (front, address) in fronts.iter().zip(ours) {
        front.leads_to(address);
    }
    release(held(&locks, &key).await).await;
    assert_unused(&other).await;
}
