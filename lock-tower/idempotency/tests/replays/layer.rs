//! The layer on Redis, used by two processes: each has its own node and pool.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use lock_idempotency::{IdempotencyLayer, MemoryReplays, ReadBody, RecordKey, Scope};
use lock_tests::http::{Gate, gate};
use lock_tests::{LIMIT, RedisServer, eventually};
use lockcore::Locks;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{key, payment, replays, text};

type Service = BoxCloneService<
    Request<Full<Bytes>>,
    Response<lock_idempotency::ResponseBody<Full<Bytes>>>,
    Infallible,
>;

/// Creates the locks and the service of a process. The handler counts its runs in `runs`, and waits
/// at the gate.
async fn process(server: &RedisServer, runs: &Arc<AtomicUsize>, gate: &Gate) -> (Locks, Service) {
    let locks = Locks::connect(&server.url()).await.unwrap();
    let layer = IdempotencyLayer::new(locks.clone(), replays(server), |_| Ok(Scope::new("ada")));
    let (runs, gate) = (Arc::clone(runs), gate.clone());
    let service = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
        let (run, gate) = (runs.fetch_add(1, Ordering::SeqCst) + 1, gate.clone());
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(Response::new(Full::from(format!("run {run}"))))
        }
    });
    (locks, BoxCloneService::new(layer.layer(service)))
}

// Once, the hold of the lock was at the key of the record, and each request got 500.
#[tokio::test]
async fn beside_redisson_a_record_has_another_redis_key_than_its_lock() {
    let server = RedisServer::start();
    let locks = Locks::builder().redisson_peers(true).connect(&server.url()).await.unwrap();
    let layer = IdempotencyLayer::new(locks, replays(&server).prefix("idempotency"), |_| {
        Ok(Scope::new("ada"))
    });
    let service = layer.layer(service_fn(async |_: Request<ReadBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("paid")))
    }));
    for is_replayed in [false, true] {
        let response = service.clone().oneshot(payment("a1")).await.unwrap();
        assert_eq!(text(response).await, (200, "paid".to_owned(), is_replayed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_over_two_processes_run_the_handler_once() {
    let server = RedisServer::start();
    let (runs, (gate, mut keeper)) = (Arc::new(AtomicUsize::new(0)), gate());
    let (one, first) = process(&server, &runs, &gate).await;
    let (other, second) = process(&server, &runs, &gate).await;
    let all = (0..64).map(|number| {
        let service = if number % 2 == 0 { first.clone() } else { second.clone() };
        tokio::spawn(async move { text(service.oneshot(payment("a1")).await.unwrap()).await })
    });
    let all = all.collect::<Vec<_>>();
    keeper.entered().await;
    eventually("the others wait in line", LIMIT, || {
        let waiting = one.status().waiting + other.status().waiting;
        async move { waiting == 63 }
    })
    .await;
    keeper.let_one_on();
    let answers = join_all(all).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert!(answers.iter().all(|(status, body, _)| *status == 200 && body == "run 1"));
    assert_eq!(answers.iter().filter(|(_, _, is_replayed)| *is_replayed).count(), 63);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let (_, body, is_replayed) = text(second.oneshot(payment("a1")).await.unwrap()).await;
    assert_eq!((body.as_str(), is_replayed), ("run 1", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_overtaken_by_another_process_stores_nothing() {
    let server = RedisServer::start();
    let (runs, (gate, mut keeper)) = (Arc::new(AtomicUsize::new(0)), gate());
    let (_, first) = process(&server, &runs, &gate).await;
    let (locks, second) = process(&server, &runs, &gate).await;
    let send = |service: &Service| {
        let service = service.clone();
        tokio::spawn(async move { text(service.oneshot(payment("a1")).await.unwrap()).await })
    };
    let first = send(&first);
    keeper.entered().await;
    assert!(locks.force_release(format!("idempotency:lock:{}", key("a1"))).await.unwrap());
    let second = send(&second);
    keeper.entered().await;
    keeper.let_one_on(); // the first request, in order of arrival
    let (status, body, _) = first.await.unwrap();
    assert!(status == 500 && body.contains("\"lock-lost\""), "{body}");
    keeper.let_one_on();
    assert_eq!(second.await.unwrap(), (200, "run 2".to_owned(), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_refuses_before_the_handler_and_is_told_after_it() {
    let mut server = RedisServer::start();
    let (runs, (gate, mut keeper)) = (Arc::new(AtomicUsize::new(0)), gate());
    let (_locks, service) = process(&server, &runs, &gate).await;
    let running = tokio::spawn(service.clone().oneshot(payment("a1")));
    keeper.entered().await;
    server.kill();
    keeper.let_one_on();
    let response = running.await.unwrap().unwrap();
    assert_eq!(response.headers()["idempotency-stored"], "no");
    assert_eq!(text(response).await.1, "run 1", "the work was done");
    let (status, body, _) = text(service.clone().oneshot(payment("a2")).await.unwrap()).await;
    assert_eq!(status, 503, "{body}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
#[should_panic = "in-memory locks need an in-memory store"]
async fn locks_in_memory_are_refused_with_records_on_redis() {
    let pool = deadpool_redis::Config::from_url("redis://127.0.0.1:1/");
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1)).unwrap();
    let store = lock_idempotency::RedisReplays::new(pool);
    drop(IdempotencyLayer::new(Locks::in_memory(), store, |_| Ok(Scope::new("ada"))));
}

#[tokio::test]
#[should_panic = "an in-memory store needs in-memory locks"]
async fn records_in_memory_are_refused_with_locks_on_redis() {
    let server = RedisServer::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    drop(IdempotencyLayer::new(locks, MemoryReplays::new(), |_| Ok(Scope::new("ada"))));
}

#[test]
fn a_record_has_one_name_for_good() {
    // If the name of the record changed with a new version, every request repeated after the update
    // would run again.
    let name = RecordKey::new(&Scope::new("tenant").and("user"), "a1").to_string();
    assert_eq!(name.len(), 64);
    assert_eq!(name, "849e39e3b351c3b64c535e877c03fa9c05cce5741b22c0c618742b48eb8a40b3");
}
