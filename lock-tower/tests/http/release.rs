//! The release before the response, on a Redis that replies late.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use lock_tests::free;
use lock_tests::http::{Client, gate, get, serve, text};
use lock_tests::{Proxy, RedisServer};
use lock_tower::{ByPath, HttpLockLayer, LockError, LockLayer};
use lockcore::Locks;
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

#[tokio::test]
async fn a_slow_release_delays_the_answer_for_half_a_second_and_goes_on() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let beside = Locks::connect(server.url()).await.unwrap();
    for in_background in [false, true] {
        let (gate, mut keeper) = gate();
        let layer = HttpLockLayer::new(locks.clone(), ByPath::new());
        let layer = layer.release_in_background(in_background);
        let service = layer.layer(service_fn(move |_: Request<_>| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
        let client = Client::send(serve(service).await, "GET /a", "").await;
        keeper.entered().await;
        proxy.hold_replies().await;
        let start = Instant::now();
        keeper.let_one_on();
        assert_eq!(client.answer().await.status, 200);
        if !in_background {
            let took = start.elapsed();
            assert!(took >= Duration::from_millis(490), "it waited for the release: {took:?}");
            assert!(took < Duration::from_millis(1_900), "not as long as the store: {took:?}");
        }
        proxy.release_replies();
        free(&beside, "/a").await;
    }
}

#[tokio::test]
async fn a_request_dropped_while_it_releases_its_lock_releases_it() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let beside = Locks::connect(server.url()).await.unwrap();
    let (gate, mut keeper) = gate();
    let layer = LockLayer::new(locks.clone(), |_: &()| "a");
    let answer = tokio::spawn(
        layer
            .layer(service_fn(move |()| {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    Ok::<_, LockError>(())
                }
            }))
            .oneshot(()),
    );
    keeper.entered().await;
    let release = proxy.hold_request(lock_tests::Request::is_script);
    keeper.let_one_on();
    release.struck().await;
    assert!(!answer.is_finished(), "it waits for the release");
    assert!(!beside.inspect("a").await.unwrap().holders.is_empty());
    answer.abort();
    assert!(answer.await.unwrap_err().is_cancelled());
    release.release();
    free(&beside, "a").await;
}

#[tokio::test]
async fn a_client_that_has_its_answer_never_meets_its_own_lock() {
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let layer = HttpLockLayer::new(locks, ByPath::new()).wait(Duration::ZERO);
    let service = layer.layer(service_fn(|_: Request<_>| async move {
        Ok::<_, Infallible>(Response::new(text("served")))
    }));
    let address = serve(service).await;
    for _ in 0..100 {
        assert_eq!(get(address, "/a", "").await.status, 200);
    }
}
