//! Client disconnects, and handlers that panic.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use lock_tests::http::{AnyBody, Client, gate, get, serve, text};
use lock_tests::{free, queued};
use lock_tower::{ByPath, Cause, HttpLockLayer, LockError};
use lockcore::Locks;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

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

/// Reads the whole request body, and responds with its length, the last three bytes and the trailer
/// `x-sum`.
async fn drained<B>(request: Request<B>) -> Result<Response<AnyBody>, BoxError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let body = request.into_body().collect().await.map_err(Into::into)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text_of = |value: &HeaderValue| value.to_str().expect("text").to_owned();
    let trailer = trailers.get("x-sum").map(text_of).unwrap_or_default();
    let body = body.to_bytes();
    let end = String::from_utf8_lossy(&body[body.len().saturating_sub(3)..]).into_owned();
    Ok(Response::new(text(format!("{} {end} {trailer}", body.len()))))
}

async fn start(locks: &Locks) -> SocketAddr {
    serve(HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(drained))).await
}

#[tokio::test]
async fn a_client_that_goes_before_it_has_sent_its_body_leaves_the_queue() {
    let locks = Locks::in_memory();
    let address = start(&locks).await;
    let _held = locks.lock("/a").await.unwrap();
    let large = "content-length: 40000\r\n";
    for (headers, part) in [
        ("content-length: 2\r\n", "x".to_owned()),
        ("content-length: 2\r\n", String::new()),
        ("content-length: 2\r\nexpect: 100-continue\r\n", String::new()),
        ("transfer-encoding: chunked\r\n", "1\r\nx\r\n".to_owned()),
        (large, "x".repeat(30_000)),
        (large, "x".repeat(40_000)),
    ] {
        let mut gone = Client::send(address, "POST /a", headers).await;
        gone.write(&part).await;
        queued(&locks, "/a", 1).await;
        drop(gone);
        queued(&locks, "/a", 0).await;
    }
}

#[tokio::test]
async fn a_body_that_fails_while_its_request_waits_ends_the_wait() {
    let locks = Locks::in_memory();
    let _held = locks.lock("/a").await.unwrap();
    let service = HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(drained));
    let frames = [Ok(Frame::data(Bytes::from("x"))), Err(BoxError::from("cut off"))];
    let request = Request::post("/a").body(StreamBody::new(stream::iter(frames))).unwrap();
    let ended = timeout(Duration::from_secs(20), service.oneshot(request)).await;
    let response = ended.expect("it does not wait on").unwrap();
    let refusal = response.extensions().get::<LockError>().expect("a refusal");
    assert_eq!(refusal.cause(), Cause::BodyFailed);
    queued(&locks, "/a", 0).await;
}

#[tokio::test]
async fn a_body_that_is_sent_in_parts_while_its_request_waits_is_whole() {
    let locks = Locks::in_memory();
    let address = start(&locks).await;
    let held = locks.lock("/a").await.unwrap();

    let mut halves = Client::send(address, "POST /a", "content-length: 4\r\n").await;
    halves.write("ab").await;
    let expect = "content-length: 3\r\nexpect: 100-continue\r\n";
    let mut expects = Client::send(address, "POST /a", expect).await;
    // The client receives `100 Continue` although its request waits.
    expects.until("100 Continue\r\n\r\n").await;
    expects.write("xyz").await;
    let chunked = "transfer-encoding: chunked\r\ntrailer: x-sum\r\nte: trailers\r\n";
    let mut chunks = Client::send(address, "POST /a", chunked).await;
    chunks.chunk("12").await;
    queued(&locks, "/a", 3).await;
    halves.write("cd").await;
    chunks.chunk("34567").await;
    chunks.write("0\r\nx-sum: 28\r\n\r\n").await;
    held.release().await.unwrap();

    assert_eq!(halves.answer().await.body, "4 bcd ");
    assert_eq!(expects.answer().await.body, "3 xyz ");
    assert_eq!(chunks.answer().await.body, "7 567 28");
}

#[tokio::test]
async fn a_body_beyond_the_share_is_read_no_further_while_its_request_waits_and_is_not_refused() {
    const SIZE: usize = 8 << 20;
    let locks = Locks::in_memory();
    let address = start(&locks).await;
    let held = locks.lock("/a").await.unwrap();
    let headers = format!("content-length: {SIZE}\r\n");
    let mut client = Client::send(address, "POST /a", &headers).await;
    let body = vec![b'x'; SIZE - 3];
    // The body is larger than the buffers of server and socket, so the client has to stop.
    let stuck = timeout(Duration::from_secs(1), client.stream.write_all(&body)).await;
    assert!(stuck.is_err(), "all of it was taken");
    queued(&locks, "/a", 1).await;
    drop(client);
    // The disconnect is not detected, so the request still waits.
    sleep(Duration::from_millis(300)).await;
    queued(&locks, "/a", 1).await;
    drop(held);
    free(&locks, "/a").await;

    let held = locks.lock("/a").await.unwrap();
    let mut client = Client::send(address, "POST /a", &headers).await;
    let sent = tokio::spawn(async move {
        client.stream.write_all(&body).await.expect("taken");
        client.write("end").await;
        client.answer().await
    });
    queued(&locks, "/a", 1).await;
    held.release().await.unwrap();
    assert_eq!(sent.await.unwrap().body, format!("{SIZE} end "));
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
