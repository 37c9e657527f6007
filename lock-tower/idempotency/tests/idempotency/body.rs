//! The request body, which the layer reads before the wait for the lock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use lock_tests::http::{AnyBody, gate, piece, streamed, text};
use lock_tower::http::DeadlineSource;
use lockcore::Locks;
use tokio::time::Instant;

use crate::support::{
    Asked, Spy, counted, gated, layer, payment, payment_of, send, serve, settle, spawn,
};

fn with(key: &str, body: AnyBody) -> Request<AnyBody> {
    let request = Request::post("/payments").header("x-user", "ada");
    request.header("idempotency-key", key).body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_limit_is_refused_unlocked() {
    let store = Spy::default();
    let (service, runs) = counted(&layer(&Locks::in_memory(), &store).body_limit(4));
    let refused = send(&service, payment("a1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (413, "idempotency-body-too-large"));
    let (pieces, body) = streamed();
    pieces.send(piece("123")).unwrap();
    pieces.send(piece("45")).unwrap();
    assert_eq!(send(&service, with("a1", body)).await.status, 413, "without a size, too");
    assert_eq!((runs.load(Ordering::SeqCst), store.count("look_up")), (0, 0));
    assert_eq!(send(&service, with("a1", text("1234"))).await.status, 200, "the limit itself fits");
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_all_requests_share_one_room() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let layer = layer(&locks, &Spy::default()).body_total(9);
    let service = serve(&layer, move |request: Asked| {
        let gate = gate.clone();
        async move {
            let _body = request.into_body();
            gate.pass().await;
            Response::new(text("paid"))
        }
    });
    let first = spawn(&service, payment("a1")); // nine bytes
    keeper.entered().await;
    let refused = send(&service, payment_of("ada", "a2", "1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "idempotency-body-room-full"));
    assert!(refused.headers.contains_key("retry-after"));
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 200);
    let next = spawn(&service, payment("a2"));
    keeper.entered().await;
    keeper.let_one_on();
    assert_eq!(next.await.unwrap().status, 200, "the room is free again");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_or_stalls_ends_its_request_unlocked() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let (service, runs) = counted(&layer(&locks, &store).body_within(Duration::from_secs(3)));
    let (pieces, body) = streamed();
    pieces.send(piece("500")).unwrap();
    let stalled = spawn(&service, with("a1", body));
    settle().await;
    assert_eq!((locks.status().waiting, locks.status().holding), (0, 0), "it has no place yet");
    let stalled = stalled.await.unwrap();
    assert_eq!((stalled.status, stalled.code().as_str()), (408, "idempotency-body-timeout"));
    drop(pieces);
    let (pieces, body) = streamed();
    pieces.send(Err("reset".into())).unwrap();
    let failed = send(&service, with("a1", body)).await;
    assert_eq!((failed.status, failed.code().as_str()), (400, "idempotency-body-failed"));
    assert_eq!((runs.load(Ordering::SeqCst), store.count("look_up")), (0, 0));
}

// Once, the time in the header was counted from the end of the body.
#[tokio::test(start_paused = true)]
async fn the_deadline_of_the_caller_is_counted_from_the_head_of_the_request() {
    let budget = HeaderName::from_static("x-budget-ms");
    let layer = layer(&Locks::in_memory(), &Spy::default());
    let layer = layer.locking(|locks| locks.deadline_from([DeadlineSource::Header(budget)]));
    let (service, mut keeper) = gated(&layer);
    let _first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let (pieces, body) = streamed();
    let mut request = payment("a1").map(|_| body);
    request.headers_mut().insert("x-budget-ms", "2000".parse().unwrap());
    let began = Instant::now();
    let refused = spawn(&service, request);
    tokio::time::sleep(Duration::from_millis(1_500)).await; // the client is slow
    pieces.send(piece("500 cents")).unwrap();
    drop(pieces);
    assert_eq!(refused.await.unwrap().status, 423);
    assert_eq!(began.elapsed().as_millis() / 100, 20);
}

#[tokio::test(start_paused = true)]
async fn trailers_go_on() {
    let service = serve(&layer(&Locks::in_memory(), &Spy::default()), async |request: Asked| {
        let body = request.into_body().collect().await.unwrap();
        let trailer = body.trailers().unwrap()["x-checksum"].to_str().unwrap().to_owned();
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        Response::new(text(format!("{body} {trailer}")))
    });
    let (pieces, body) = streamed();
    pieces.send(piece("50")).unwrap();
    pieces.send(piece("0")).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "7".parse().unwrap());
    pieces.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(pieces);
    assert_eq!(send(&service, with("a1", body)).await.body, "500 7");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_passes_is_not_read() {
    let service = serve(
        &layer(&Locks::in_memory(), &Spy::default()).body_limit(1),
        async |request: Asked| {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(text(body))
        },
    );
    let mut request = payment("a1");
    request.headers_mut().remove("idempotency-key");
    assert_eq!(send(&service, request).await.body, "500 cents");
}
