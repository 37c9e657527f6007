//! Routers with separate `Locks`, as in separate processes, on one Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use lock_axum::{LockScopeLayer, Locked, Locks};
use lock_tests::http::{Gate, Keeper, gate};
use lock_tests::{Clustered, Raw, RedisServer, free, lock_key, queued};
use lockcore::MemoryStore;

use crate::support::{ByOrder, get, send};

/// Observes the handlers for a lock name: detects overlapping handlers and tokens that do not rise.
#[derive(Default)]
struct Witness {
    inside: AtomicUsize,
    served: AtomicUsize,
    highest: AtomicU64,
}

async fn witnessed(order: Locked<ByOrder>, State(witness): State<Arc<Witness>>) {
    assert_eq!(witness.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
    let token = order.fencing_token().get();
    assert!(witness.highest.swap(token, Ordering::SeqCst) < token, "tokens rise");
    tokio::time::sleep(Duration::from_millis(1)).await;
    witness.inside.fetch_sub(1, Ordering::SeqCst);
    witness.served.fetch_add(1, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_routers_on_two_nodes_serve_one_at_a_time() {
    let server = RedisServer::start();
    let one = Locks::connect(server.url()).await.unwrap();
    serve_one_at_a_time([one, Locks::connect(server.url()).await.unwrap()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_quorum_two_routers_on_two_nodes_serve_one_at_a_time() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let node = || Locks::builder().on_memory_quorum(&stores).unwrap();
    serve_one_at_a_time([node(), node()]).await;
}

async fn serve_one_at_a_time(nodes: [Locks; 2]) {
    let witness = Arc::new(Witness::default());
    let mut answers = Vec::new();
    for locks in &nodes {
        let app = Router::new()
            .route("/{id}", any(witnessed))
            .layer(LockScopeLayer::new(locks.clone()).wait_forever())
            .with_state(Arc::clone(&witness));
        answers.extend((0..40).map(|_| send(&app, get("/7"))));
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(witness.served.load(Ordering::SeqCst), 80);
    free(&nodes[0], "order:7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_two_routers_serve_one_at_a_time_for_each_name() {
    let clustered = Clustered::steady().await;
    let orders = [0, 1, 2].map(|primary| {
        let is_there = |id: &u64| clustered.primary_of(&format!("order:{id}")) == primary;
        (1..).find(is_there).unwrap()
    });
    // A witness for each name, because tokens rise only within a name.
    let witnesses = [(); 3].map(|()| Arc::new(Witness::default()));
    let mut answers = Vec::new();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let locks = Locks::connect(clustered.url()).await.unwrap();
        for (id, witness) in orders.iter().zip(&witnesses) {
            let app = Router::new()
                .route("/{id}", any(witnessed))
                .layer(LockScopeLayer::new(locks.clone()).wait_forever())
                .with_state(Arc::clone(witness));
            answers.extend((0..20).map(|_| send(&app, get(&format!("/{id}")))));
        }
        nodes.push(locks);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    for (id, witness) in orders.iter().zip(&witnesses) {
        assert_eq!(witness.served.load(Ordering::SeqCst), 40);
        free(&nodes[0], &format!("order:{id}")).await;
    }
}

async fn gated(_: Locked<ByOrder>, State(gate): State<Gate>) {
    gate.pass().await;
}

async fn node(server: &RedisServer, lease: Duration) -> (Router, Keeper, Locks) {
    let (gate, keeper) = gate();
    let locks = Locks::connect(server.url()).await.unwrap();
    let app = Router::new()
        .route("/{id}", any(gated))
        .layer(LockScopeLayer::new(locks.clone()).lease(lease))
        .with_state(gate);
    (app, keeper, locks)
}

#[tokio::test]
async fn the_watchdog_renews_a_handler_that_takes_longer_than_its_lease() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(2);
    let (one, mut keeper, locks) = node(&server, lease).await;
    let (other, mut other_keeper, _other_locks) = node(&server, lease).await;
    let first = send(&one, get("/7"));
    keeper.entered().await;
    let second = send(&other, get("/7"));
    queued(&locks, "order:7", 1).await;
    tokio::time::sleep(3 * lease).await; // longer than the lease, which must be renewed
    assert!(other_keeper.is_alone());
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 200);
    other_keeper.entered().await;
    other_keeper.let_one_on();
    assert_eq!(second.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_hold_that_redis_has_forgotten_stops_its_handler() {
    for flush in [true, false] {
        let server = RedisServer::start();
        let (app, mut keeper, _locks) = node(&server, Duration::from_secs(2)).await;
        let answer = send(&app, get("/7"));
        keeper.entered().await;
        let mut redis = Raw::connect(&server.url()).await;
        match flush {
            true => redis.flush_all().await,
            false => {
                let deleted: i64 = redis.ask(redis::cmd("DEL").arg(lock_key("order:7"))).await;
                assert_eq!(deleted, 1);
            }
        }
        let answer = answer.await.unwrap();
        assert!(answer.status == 500 && answer.body.contains("lock-lost"), "{answer:?}");
        assert!(!keeper.has_finished());
    }
}
