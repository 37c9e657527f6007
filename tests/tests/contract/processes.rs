//! The process of a node, which an operator finds by the node id of a holder or waiter.

use std::time::Duration;

use lock_tests::{Raw, eventually};
use lockcore::Locks;
use redis::cmd;

use crate::backend::{Backend, LONG, SOON, granted, ms, wait_as};

on_every_store!(nodes_that_hold_and_wait_are_found_by_host_and_pid);

fn key(locks: &Locks) -> String {
    format!("lock:node:{}", locks.node())
}

async fn nodes_that_hold_and_wait_are_found_by_host_and_pid(backend: &Backend) {
    let [one, two, idle] = backend.nodes().await;
    let guard = one.key("key").label("Buyer 3").lease(LONG).lock().await.expect("free");
    let waiting = wait_as(1, &two, "key").await;
    let seen = idle.inspect("key").await.expect("an inspection");
    let participants = seen.holders.iter().chain(&seen.waiters);
    let mut nodes: Vec<_> =
        participants.filter_map(|who| who.node.as_ref().map(ToString::to_string)).collect();
    nodes.extend([idle.node().to_string(), "another program's".to_owned()]);
    if matches!(backend, Backend::Memory(_) | Backend::MemoryQuorum(_)) {
        assert!(idle.processes(&nodes).await.is_empty(), "all are of this process");
    } else {
        let both_found = async || idle.processes(&nodes).await.len() == 2;
        eventually("both are told", SOON, both_found).await;
        let processes = idle.processes(&nodes).await;
        let ends = format!(":{}", std::process::id());
        for node in [one.node(), two.node()] {
            let process = &processes[node.as_str()];
            assert!(process.ends_with(&ends) && process.len() > ends.len(), "{process}");
        }
        assert!(!processes.contains_key(idle.node().as_str()), "it neither holds nor waits");
    }
    drop(guard);
    granted(waiting).await.release().await.expect("held until now");
}

#[tokio::test]
async fn a_node_is_told_while_it_is_in_use_and_forgotten_within_a_minute() {
    let Backend::Redis(server) = Backend::redis() else { unreachable!() };
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("a node connects");
    let left = async |redis: &mut Raw| -> i64 { redis.ask(cmd("PTTL").arg(key(&locks))).await };
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(left(&mut redis).await, -2, "it was never in use");
    let guard = locks.key("key").lease(LONG).lock().await.expect("free");
    eventually("it is told", SOON, async || left(&mut redis).await > 0).await;
    assert!(left(&mut redis).await <= 60_000, "it ends by itself");
    // The next write restores the key on an emptied server.
    redis.ask::<()>(cmd("DEL").arg(key(&locks))).await;
    eventually("it is told again", 2 * SOON, async || left(&mut redis).await > 0).await;
    guard.release().await.expect("held until now");
    let before = left(&mut redis).await;
    tokio::time::sleep(Duration::from_secs(22)).await;
    let after = left(&mut redis).await;
    assert!(after <= before - 21_000, "an idle node told it: {before} ms, then {after} ms");
}

#[tokio::test]
async fn the_key_of_another_program_is_no_process() {
    let Backend::Redis(server) = Backend::redis() else { unreachable!() };
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("a node connects");
    redis.ask::<()>(cmd("HSET").arg("lock:node:a").arg("field").arg("value")).await;
    redis.ask::<()>(cmd("SET").arg("lock:node:b").arg(b"\xff".as_slice())).await;
    redis.ask::<()>(cmd("SET").arg("lock:node:c").arg("x".repeat(513))).await;
    redis.ask::<()>(cmd("SET").arg("lock:node:d").arg("vm:7")).await;
    let processes = locks.processes(["a", "b", "c", "d", "e"]).await;
    assert_eq!(processes.into_iter().collect::<Vec<_>>(), [("d".to_owned(), "vm:7".to_owned())]);
}
