//! Locks that are held until the response body has been sent.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get as on_get;
use futures_util::stream;
use http::{Method, StatusCode};
use lock_axum::{LockScopeLayer, Locked, Locks};
use lock_tests::http::Client;
use lock_tests::{LIMIT, free, is_held};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use crate::support::{ByOrder, ask, get, serve};

type Pieces = mpsc::UnboundedSender<&'static str>;

/// Creates a router whose responses stream the pieces that the test sends. The receiver returns the
/// sender of pieces for each request.
fn app(locks: &Locks, until_body_end: bool) -> (Router, mpsc::UnboundedReceiver<Pieces>) {
    let (streams, started) = mpsc::unbounded_channel();
    let stream = |State(streams): State<mpsc::UnboundedSender<Pieces>>, _: Locked<ByOrder>| async move {
        let (pieces, received) = mpsc::unbounded_channel();
        streams.send(pieces).unwrap();
        Body::from_stream(stream::unfold(received, async |mut received| {
            Some((Ok::<_, Infallible>(received.recv().await?), received))
        }))
    };
    let layer = LockScopeLayer::new(locks.clone());
    let layer = layer.hold_until_body_end(until_body_end);
    let app = Router::new()
        .route("/stream/{id}", on_get(stream))
        .route("/none/{id}", on_get(async |_: Locked<ByOrder>| StatusCode::NO_CONTENT))
        .route("/text/{id}", on_get(async |_: Locked<ByOrder>| "text"))
        .layer(layer)
        .with_state(streams);
    (app, started)
}

#[tokio::test]
async fn the_lock_lasts_until_the_last_piece_of_the_body_or_until_the_head() {
    for until_body_end in [true, false] {
        let locks = Locks::in_memory();
        let (app, mut streams) = app(&locks, until_body_end);
        let mut client = Client::send(serve(app).await, "GET /stream/7", "").await;
        let pieces = streams.recv().await.unwrap();
        pieces.send("first").unwrap();
        client.until("first").await;
        assert_eq!(is_held(&locks, "order:7").await, until_body_end);
        pieces.send("second").unwrap();
        client.until("second").await;
        assert_eq!(is_held(&locks, "order:7").await, until_body_end);
        drop(pieces);
        client.until("0\r\n\r\n").await;
        free(&locks, "order:7").await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_the_lock() {
    let locks = Locks::in_memory();
    let (app, mut streams) = app(&locks, true);
    let mut client = Client::send(serve(app).await, "GET /stream/7", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send("first").unwrap();
    client.until("first").await;
    drop(client);
    tokio::time::timeout(LIMIT, pieces.closed()).await.expect("the server drops the body");
    free(&locks, "order:7").await;
}

#[tokio::test]
async fn a_lost_hold_breaks_the_stream() {
    let locks = Locks::in_memory();
    let (app, mut streams) = app(&locks, true);
    let mut client = Client::send(serve(app).await, "GET /stream/7", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send("first").unwrap();
    client.until("first").await;
    assert!(locks.force_release("order:7").await.unwrap());
    tokio::time::timeout(LIMIT, pieces.closed()).await.expect("the body is dropped");
}

#[tokio::test]
async fn a_response_without_a_body_holds_nothing() {
    let locks = Locks::in_memory();
    let (app, _streams) = app(&locks, true);
    for (method, path) in
        [(Method::GET, "/none/7"), (Method::HEAD, "/text/7"), (Method::HEAD, "/stream/7")]
    {
        let mut request = get(path);
        *request.method_mut() = method;
        let unread = app.clone().oneshot(request).await.unwrap();
        free(&locks, "order:7").await; // the response is not read yet
        assert!(unread.status().is_success());
    }
}

#[tokio::test]
async fn a_whole_body_is_read_under_the_lock_and_a_dropped_one_frees_it() {
    let locks = Locks::in_memory();
    let (app, _streams) = app(&locks, true);
    let unread = app.clone().oneshot(get("/text/7")).await.unwrap();
    assert!(is_held(&locks, "order:7").await);
    drop(unread);
    free(&locks, "order:7").await;
    assert_eq!(ask(&app, get("/text/7")).await.body, "text");
    assert!(!is_held(&locks, "order:7").await, "the last piece is kept until the lock is free");
}
