//! Clients that go away, and handlers that panic.

use std::convert::Infallible;

use http::{Request, Response};
use lock_tests::http::{Client, gate, get, serve, text};
use lock_tests::{free, queued};
use lock_tower::{ByPath, HttpLockLayer};
use lockcore::Locks;
use tower::{Layer as _, service_fn};

#[tokio::test]
async fn a_client_that_goes_while_it_waits_leaves_the_queue_at_once() {
    let locks = Locks::in_memory();
    let service = HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(
        |_: Request<_>| async move { Ok::<_, Infallible>(Response::new(text("served"))) },
    ));
    let address = serve(service).await;
    let guard = locks.lock("/a").await.unwrap();
    let gone = Client::send(address, "GET /a", "").await;
    queued(&locks, "/a", 1).await;
    let stays = Client::send(address, "GET /a", "").await;
    queued(&locks, "/a", 2).await;
    drop(gone);
    queued(&locks, "/a", 1).await;
    drop(guard);
    assert_eq!(stays.answer().await.status, 200);
}

#[tokio::test]
async fn a_client_that_goes_while_its_handler_runs_ends_it_and_frees_the_lock() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let service =
        HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(move |_: Request<_>| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    let client = Client::send(serve(service).await, "GET /a", "").await;
    keeper.entered().await;
    drop(client);
    free(&locks, "/a").await;
    assert!(!keeper.has_finished());
}

#[tokio::test]
async fn a_handler_that_panics_frees_the_lock() {
    let locks = Locks::in_memory();
    let service = HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(
        |request: Request<_>| async move {
            assert_ne!(request.uri().path(), "/panic", "on purpose");
            Ok::<_, Infallible>(Response::new(text("served")))
        },
    ));
    let address = serve(service).await;
    assert_eq!(get(address, "/panic", "").await.status, 0, "the connection breaks");
    free(&locks, "/panic").await;
    assert_eq!(get(address, "/a", "").await.status, 200);
}
