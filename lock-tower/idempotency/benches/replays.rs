//! Measures a first request, a replay, and 64 concurrent duplicates, with a handler that responds
//! at once. One unit of time is a bare round trip to the same Redis. In the second row each network
//! direction takes 1 ms.
//!
//!     cargo bench -p lock-idempotency --bench replays
//!
//! Starts a separate `redis-server` (`$REDIS_SERVER`, otherwise the server on `PATH`).
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "the figures")]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use lock_idempotency::{IdempotencyLayer, ReadBody, RedisReplays, ResponseBody, Scope};
use lock_tests::{Delay, RedisServer};
use lockcore::Locks;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

type Service =
    BoxCloneService<Request<Full<Bytes>>, Response<ResponseBody<Full<Bytes>>>, Infallible>;

const ROUNDS: u32 = 300;

async fn service(url: &str) -> Service {
    let locks = Locks::connect(url).await.expect("the server is up");
    let pool = deadpool_redis::Config::from_url(url).create_pool(None).expect("a URL");
    let layer = IdempotencyLayer::new(locks, RedisReplays::new(pool), |_| Ok(Scope::new("ada")));
    BoxCloneService::new(layer.layer(service_fn(async |_: Request<ReadBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::from("paid")))
    })))
}

/// Sends a payment with this key, reads the whole response, and returns whether it is a replay.
async fn pay(service: Service, key: String) -> bool {
    let request = Request::post("/payments").header("idempotency-key", key);
    let request = request.body(Full::from(r#"{"amount":100}"#)).expect("a request");
    let Ok(response) = service.oneshot(request).await;
    assert_eq!(response.status(), 200);
    let is_replay = response.headers().contains_key("idempotency-replayed");
    response.into_body().collect().await.expect("a body in memory");
    is_replay
}

/// Runs a step [`ROUNDS`] times, with the round number, and returns the median time.
async fn median(mut step: impl AsyncFnMut(u32)) -> Duration {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let began = Instant::now();
        step(round).await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

async fn measure(name: &str, url: &str) {
    let service = service(url).await;
    let client = redis::Client::open(url).expect("a URL");
    let mut bare = client.get_multiplexed_async_connection().await.expect("the server is up");
    pay(service.clone(), "warm".to_owned()).await;
    let trip = median(async |_| {
        redis::cmd("PING").query_async::<()>(&mut bare).await.expect("the server is up");
    })
    .await;
    let first = median(async |round| {
        assert!(!pay(service.clone(), format!("first-{round}")).await);
    })
    .await;
    let replay = median(async |_| assert!(pay(service.clone(), "warm".to_owned()).await)).await;
    let duplicates = median(async |round| {
        let one = |_| tokio::spawn(pay(service.clone(), format!("many-{round}")));
        let all = join_all((0..64).map(one)).await;
        let replays = all.into_iter().map(|paid| paid.expect("no panic"));
        assert_eq!(replays.filter(|is_replay| *is_replay).count(), 63);
    })
    .await;
    let of = |time: Duration| time.as_secs_f64() / trip.as_secs_f64();
    let (trip, [first, replay, duplicates]) = (trip, [first, replay, duplicates].map(of));
    println!(
        "{name}: bare {trip:?}; first request {first:.1}, replay {replay:.1}, 64 duplicates at \
         once {duplicates:.1} bare round trips"
    );
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    // When it runs the tests, cargo also starts every benchmark, but without `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let server = RedisServer::start();
    measure("loopback", &server.url()).await;
    let server = RedisServer::start();
    let delay = Delay::start(server.address(), Duration::from_millis(1));
    measure("1 ms each way", &format!("redis://{}/", delay.address())).await;
}
