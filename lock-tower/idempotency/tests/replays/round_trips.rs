//! The cost of a request: in round trips to the server, which a proxy makes so slow that other time
//! is negligible, and in requests to the server, counted by a proxy.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use lock_idempotency::{IdempotencyLayer, ReadBody, Scope};
use lock_tests::http::{Gate, gate};
use lock_tests::{Connections, Delay, LIMIT, Proxy, RedisServer, eventually};
use lockcore::Locks;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{payment, replays_at, text};

/// The time of a round trip to the server.
const TRIP: Duration = Duration::from_millis(100);

type Service = BoxCloneService<
    Request<Full<Bytes>>,
    Response<lock_idempotency::ResponseBody<Full<Bytes>>>,
    Infallible,
>;

/// Connects locks and a service to the server at this URL. The handler of the service waits at the
/// gate.
async fn process(url: &str, gate: Gate) -> (Locks, Service) {
    // A long lease, so that no renewal is counted.
    let builder = Locks::builder().lease(Duration::from_secs(300));
    let locks = builder.connect(url).await.unwrap();
    let layer = IdempotencyLayer::new(locks.clone(), replays_at(url), |_| Ok(Scope::new("ada")));
    let service = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(Response::new(Full::from("paid")))
        }
    });
    (locks, BoxCloneService::new(layer.layer(service)))
}

/// Sends a payment with this key, and returns whether the response is a replay.
fn pay(service: &Service, key: &str) -> impl Future<Output = bool> + use<> {
    let paying = service.clone().oneshot(payment(key));
    async move {
        let (status, body, is_replayed) = text(paying.await.unwrap()).await;
        assert_eq!((status, body.as_str()), (200, "paid"));
        is_replayed
    }
}

/// Returns the shortest of eight times of the step, in round trips, because a busy machine makes
/// single runs longer. The step receives the number of the run.
async fn trips(mut step: impl AsyncFnMut(usize)) -> f64 {
    let mut shortest = Duration::MAX;
    for number in 0..8 {
        let began = Instant::now();
        step(number).await;
        shortest = shortest.min(began.elapsed());
    }
    shortest.as_secs_f64() / TRIP.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_request_waits_for_three_round_trips_and_a_replay_for_one() {
    let server = RedisServer::start();
    let delay = Delay::start(server.address(), TRIP / 2);
    let (gate, keeper) = gate();
    let (_locks, service) = process(&format!("redis://{}/", delay.address()), gate).await;
    // After these two requests, the connections are open and the scripts are loaded.
    keeper.let_one_on();
    pay(&service, "warm").await;
    assert!(pay(&service, "warm").await);
    let first = trips(async |number| {
        keeper.let_one_on();
        assert!(!pay(&service, &format!("a{number}")).await);
    })
    .await;
    // One each for queueing together with the lookup, for the start, and for the finish. The
    // release is not awaited.
    assert!((3.0..4.0).contains(&first), "{first} round trips");
    let replay = trips(async |_| assert!(pay(&service, "a0").await)).await;
    // One for the lookup, even if the lock is granted before the lookup's reply.
    assert!((1.0..2.0).contains(&replay), "{replay} round trips");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_at_once_have_their_answer_three_round_trips_after_the_handler() {
    let server = RedisServer::start();
    let delay = Delay::start(server.address(), TRIP / 2);
    let (gate, mut keeper) = gate();
    let (locks, service) = process(&format!("redis://{}/", delay.address()), gate).await;
    keeper.let_one_on();
    pay(&service, "warm").await;
    keeper.entered().await;
    let mut shortest = f64::INFINITY;
    for round in 0..4 {
        let all = (0..64).map(|_| {
            let paying = pay(&service, &format!("a{round}"));
            tokio::spawn(async move { (paying.await, Instant::now()) })
        });
        let all: Vec<_> = all.collect();
        keeper.entered().await;
        eventually("the others wait", LIMIT, async || locks.status().waiting == 63).await;
        let began = Instant::now();
        keeper.let_one_on();
        let all = join_all(all).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(all.iter().filter(|(is_replayed, _)| *is_replayed).count(), 63);
        let last = all.iter().map(|(_, at)| *at - began).max().unwrap();
        shortest = shortest.min(last.as_secs_f64() / TRIP.as_secs_f64());
    }
    // Two for the finish, and for the lookups of all requests at once. The request that is granted
    // the lock meanwhile sends one more. No request waits for another request's lock.
    assert!((2.0..4.0).contains(&shortest), "{shortest} round trips");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_sends_four_scripts_and_a_transaction_and_a_replay_two() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let (gate, keeper) = gate();
    let (locks, service) = process(&proxy.url(), gate).await;
    keeper.let_one_on();
    pay(&service, "warm").await;
    assert!(pay(&service, "warm").await);
    let mut counts = [u64::MAX; 2];
    for round in 0..4 {
        for (count, is_replay) in counts.iter_mut().zip([false, true]) {
            idle(&locks).await;
            let before = proxy.requests();
            if !is_replay {
                keeper.let_one_on();
            }
            assert_eq!(pay(&service, &format!("a{round}")).await, is_replay);
            idle(&locks).await;
            // The minimum of the rounds, because occasionally the node also publishes its process
            // or checks a silent connection.
            *count = (*count).min(proxy.requests() - before);
        }
    }
    // The acquire sends five commands at once. A first request also sends the lookup, the start,
    // the finish and the release. A replay also sends the lookup and the release.
    assert_eq!(counts, [5 + 4, 5 + 2]);
}

/// Waits until this process holds no lock, waits for none, and has released all.
async fn idle(locks: &Locks) {
    eventually("nothing is held", LIMIT, async || {
        let status = locks.status();
        (status.holding, status.waiting, status.releasing) == (0, 0, 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_stored_although_the_connection_has_ended_meanwhile() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let (gate, mut keeper) = gate();
    let (_locks, service) = process(&proxy.url(), gate).await;
    let running = tokio::spawn(service.clone().oneshot(payment("a1")));
    keeper.entered().await;
    assert!(proxy.cut(Connections::All).await > 0);
    keeper.let_one_on();
    let response = running.await.unwrap().unwrap();
    assert!(!response.headers().contains_key("idempotency-stored"), "{response:?}");
    assert!(pay(&service, "a1").await);
}
