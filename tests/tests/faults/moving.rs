//! A move to another server, as described in `docs/deploy.md`.

use std::time::Duration;

use lock_tests::{Front, Raw, RedisServer, eventually};
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
