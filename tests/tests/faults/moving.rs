//! A move to another server, as described in `docs/deploy.md`.

use std::time::Duration;

use lock_tests::acl::set_user;
use lock_tests::{CommandStats, Front, Port, Raw, RedisServer, eventually};
use lockcore::{HoldState, Locks};
use redis::cmd;

use crate::common::{LONG, SOON, connect, connected, granted, held, queued, release, soon};
use crate::replicas::{Pair, pair};

/// Makes the old server a replica of the new one.
async fn hand_off(at_old: &mut Raw, new: &RedisServer) {
    let mut failover = cmd("FAILOVER");
    failover.arg("TO").arg("127.0.0.1").arg(new.port());
    at_old.ask::<()>(&failover).await;
    eventually("it is a replica", SOON, async || {
        at_old.clone().info("replication").await.contains("role:slave")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_steps_of_a_move_no_hold_and_no_position_is_lost() {
    // 1. The new server is a replica of the old one.
    let Pair { primary: old, replica: new, at_primary: mut at_old, .. } = pair().await;
    let name = Front::start(old.address()).await;
    let locks = connect(&name.url()).await;
    let first = held(&locks, "k", LONG).await;
    let second = queued(&locks, "k", LONG, &mut at_old).await;
    let held_long = held(&locks, "other", LONG).await;
    // 2. The name leads to the new one; the processes stay.
    name.leads_to(new.address());
    release(held(&locks, "free", LONG).await).await;
    // 3. The old one hands off.
    hand_off(&mut at_old, &new).await;
    // 4. Its connections end.
    for of in ["normal", "pubsub"] {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg(of).arg("SKIPME").arg("yes");
        at_old.ask::<u64>(&kill).await;
    }
    eventually("the name is used", SOON, async || locks.try_lock("free").await.is_ok()).await;
    connected(&locks).await;
    let token = first.fencing_token();
    release(first).await;
    let second = granted(second).await;
    assert!(second.fencing_token() > token);
    assert_ne!(held_long.state(), HoldState::Lost);
    release(held_long).await;
    release(second).await;
}

/// The process only renews: on the command connection it has nothing to send but PINGs, which a
/// replica answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_hold_follows_the_name_though_the_old_server_closes_no_connection() {
    let Pair { primary: old, replica: new, at_primary: mut at_old, .. } = pair().await;
    let name = Front::start(old.address()).await;
    let builder = Locks::builder().require_replicas(1, Duration::from_secs(1));
    let locks = soon("a connection", builder.connect(name.url())).await.expect("it may");
    let guard = held(&locks, "k", Duration::from_secs(9)).await;
    name.leads_to(new.address());
    hand_off(&mut at_old, &new).await;
    let before = guard.deadline();
    eventually("it is renewed", SOON, async || {
        assert_ne!(guard.state(), HoldState::Lost);
        guard.deadline() > before
    })
    .await;
    release(guard).await;
}

async fn replicaof(redis: &mut Raw, host: &str, port: impl redis::ToRedisArgs) {
    redis.ask::<()>(cmd("REPLICAOF").arg(host).arg(port)).await;
}

/// The replica has an older holder. Later the name leads to the new primary, which has the hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_a_name_that_leads_to_a_replica_without_it_for_a_while() {
    let Pair { primary: old, replica: new, .. } = pair().await;
    let behind = RedisServer::start();
    held(&connect(&behind.url()).await, "k", LONG).await.leak();
    let mut at_behind = Raw::connect(&behind.url()).await;
    let closed = Port::free();
    replicaof(&mut at_behind, "127.0.0.1", closed.number()).await;
    let name = Front::start(old.address()).await;
    let locks = connect(&name.url()).await;
    let guard = held(&locks, "k", LONG).await;
    let mut at_new = Raw::connect(&new.url()).await;
    eventually("the new one has it", SOON, async || at_new.holder("k").await.is_some()).await;

    name.leads_to(behind.address());
    let before = CommandStats::read(&mut at_behind).await;
    drop(old);
    eventually("the one behind is connected to", SOON, async || {
        CommandStats::read(&mut at_behind).await.since(&before).calls("hello") > 0
    })
    .await;
    replicaof(&mut at_new, "NO", "ONE").await;
    name.leads_to(new.address());
    let before = guard.deadline();
    eventually("it is renewed", SOON, async || {
        assert_ne!(guard.state(), HoldState::Lost, "the new primary has it");
        guard.deadline() > before
    })
    .await;
    release(guard).await;
}

/// Such a server refuses even PINGs, and still closes no connection. The user of the manual sends
/// scripts alone: other writes are refused as on any replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_serves_no_stale_data_is_left_though_it_closes_no_connection() {
    let Pair { primary: old, replica: new, at_primary: mut at_old, .. } = pair().await;
    let name = Front::start(old.address()).await;
    let mut at_new = Raw::connect(&new.url()).await;
    for redis in [&mut at_old, &mut at_new] {
        redis.ask::<()>(&set_user("locker", |_| false)).await;
    }
    let url = format!("redis://locker:PASSWORD@{}/", name.address());
    let connecting = Locks::builder().namespace("shop").connect(url);
    let locks = soon("a connection", connecting).await.expect("it may");
    release(held(&locks, "k", LONG).await).await;
    name.leads_to(new.address());
    replicaof(&mut at_new, "NO", "ONE").await;
    at_old.configure("replica-serve-stale-data", "no").await;
    let closed = Port::free();
    replicaof(&mut at_old, "127.0.0.1", closed.number()).await;
    eventually("the new one serves", SOON, async || locks.try_lock("k").await.is_ok()).await;
    connected(&locks).await;
    release(held(&locks, "k", LONG).await).await;
}

/// Makes the name lead a process to a replica, which becomes a primary without the holds in
/// between, and then back to the run that it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_a_replica_in_between_counts_as_another_though_it_never_restarted() {
    let Pair { primary: old, replica: new, at_primary: mut at_old, .. } = pair().await;
    let name = Front::start(old.address()).await;
    let (near, far) = (connect(&old.url()).await, connect(&name.url()).await);
    let read = soon("a read", near.read("doc")).await.expect("free");
    // Its token is above the token of the read, so that a read on another server draws a new one.
    release(held(&far, "other", LONG).await).await;
    let mut at_new = Raw::connect(&new.url()).await;
    let nowhere = Port::free();
    name.leads_to(([127, 0, 0, 1], nowhere.number()).into());
    name.cut();
    eventually("it is cut", SOON, async || !far.status().is_connected()).await;
    eventually("all is replicated", SOON, async || {
        let mut wait = cmd("WAIT");
        wait.arg(1).arg(100);
        at_old.ask::<()>(cmd("SET").arg("written").arg(2)).await;
        at_old.ask::<u32>(&wait).await == 1
    })
    .await;
    replicaof(&mut at_new, "NO", "ONE").await;
    replicaof(&mut at_old, "127.0.0.1", new.port()).await;
    eventually("it is a replica", SOON, async || {
        at_old.clone().info("replication").await.contains("master_link_status:up")
    })
    .await;
    replicaof(&mut at_old, "NO", "ONE").await;
    name.leads_to(old.address());
    connected(&far).await;
    let other = soon("another read", far.read("doc")).await.expect("beside the first");
    assert!(other.fencing_token() > read.fencing_token());
}
