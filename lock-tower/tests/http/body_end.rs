//! `hold_until_body_end`: locks held until the response body ends.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use lock_tests::http::{AnyBody, Client, Pieces, get, piece, serve, streamed, text};
use lock_tests::{LIMIT, Raw, RedisServer, free, is_held, lock_key};
use lock_tower::{ByPath, HttpLockLayer, LockHandle, OnLost};
use lockcore::Locks;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

/// Starts a server that locks the path, and streams the response to `/stream`. Returns the address,
/// and the senders of the streams.
async fn start(
    locks: &Locks,
    change: impl FnOnce(HttpLockLayer<ByPath>) -> HttpLockLayer<ByPath>,
) -> (SocketAddr, mpsc::UnboundedReceiver<Pieces>) {
    let (streams, started) = mpsc::unbounded_channel();
    let layer = change(HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true));
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let streams = streams.clone();
        async move {
            let mut response = Response::new(match request.uri().path() {
                "/stream" => {
                    let (pieces, body) = streamed();
                    streams.send(pieces).unwrap();
                    body
                }
                "/empty" => Empty::new().map_err(Into::into).boxed_unsync(),
                "/big" => {
                    let frames = (0..64).map(|_| Ok(Frame::data(Bytes::from(vec![b'x'; 1 << 20]))));
                    StreamBody::new(stream::iter(frames)).boxed_unsync()
                }
                _ => text("whole"),
            });
            if request.uri().path() == "/empty" {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            Ok::<_, BoxError>(response)
        }
    }));
    (serve(service).await, started)
}

#[tokio::test]
async fn the_lock_is_held_until_the_last_frame() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer).await;
    let mut client = Client::send(address, "GET /stream", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    assert!(is_held(&locks, "/stream").await);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    pieces.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(pieces);
    let rest = client.answer().await; // only the end: it has no head
    assert!(rest.head.starts_with("0"), "{}", rest.head);
    assert!(!is_held(&locks, "/stream").await, "given back before the end was sent");
}

#[tokio::test]
async fn whole_empty_and_head_answers_free_the_lock_before_or_with_their_end() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer.wait(Duration::from_secs(5))).await;
    for _ in 0..20 {
        let answer = get(address, "/whole", "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "whole"));
        assert_eq!(answer.header("content-length"), Some("5"), "{}", answer.head);
        assert!(!is_held(&locks, "/whole").await, "given back before the last frame was sent");
        assert_eq!(get(address, "/empty", "").await.status, 204);
        assert!(!is_held(&locks, "/empty").await);
    }
    let answer = Client::send(address, "HEAD /stream", "").await.answer().await;
    assert_eq!(answer.status, 200);
    let _pieces = streams.recv().await.unwrap();
    free(&locks, "/stream").await; // the server has dropped the body
}

#[tokio::test]
async fn a_client_that_goes_while_its_body_streams_frees_the_lock() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer).await;
    let mut client = Client::send(address, "GET /stream", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    drop(client);
    free(&locks, "/stream").await;
}

#[tokio::test]
async fn a_body_that_fails_frees_the_lock() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer).await;
    let mut client = Client::send(address, "GET /stream", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    pieces.send(Err("broken".into())).unwrap();
    free(&locks, "/stream").await;
    assert_eq!(client.answer().await.head.trim(), "", "cut, not ended");
}

#[tokio::test]
async fn a_reader_that_stalls_keeps_the_lock_for_the_longest_hold_only() {
    let locks = Locks::in_memory();
    let (address, _) = start(&locks, |layer| layer.max_hold(Duration::from_millis(400))).await;
    let mut client = Client::send(address, "GET /big", "").await;
    client.until("xxxx").await; // the client stops reading
    assert!(is_held(&locks, "/big").await);
    free(&locks, "/big").await;
    let mut received = Vec::new();
    let read = tokio::time::timeout(LIMIT, client.stream.read_to_end(&mut received)).await;
    let _ = read.expect("the server closes");
    assert!(received.len() < 64 << 20, "the body was cut: the client can tell");
    assert!(!received.ends_with(b"0\r\n\r\n"));
}

// Once, the next waiter waited for the lease, too, which had been renewed shortly before.
#[tokio::test(start_paused = true)]
async fn a_body_that_the_server_no_longer_polls_keeps_no_waiter_beyond_the_longest_hold() {
    for on_lost in [OnLost::Stop, OnLost::Continue] {
        let locks = Locks::in_memory();
        let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
        let layer = layer.max_hold(Duration::from_secs(60)).wait_forever().on_lost(on_lost);
        let service = layer.layer(service_fn(|_: Request<_>| async {
            let frames = stream::repeat_with(|| Ok::<_, BoxError>(Frame::data(Bytes::from("x"))));
            Ok::<_, BoxError>(Response::new(StreamBody::new(frames)))
        }));
        let request = || Request::get("/a").body(Empty::<Bytes>::new()).unwrap();
        let began = Instant::now();
        let response = service.clone().oneshot(request()).await.unwrap();
        let mut body = response.into_body();
        assert!(body.frame().await.unwrap().is_ok()); // the client stops reading
        service.oneshot(request()).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 60, "{on_lost:?}");
        let is_cut = body.frame().await.unwrap().is_err();
        assert_eq!(is_cut, on_lost == OnLost::Stop);
    }
}

#[tokio::test]
async fn a_body_whose_hold_is_lost_goes_on_if_told_so() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer.on_lost(OnLost::Continue)).await;
    let mut client = Client::send(address, "GET /stream", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    locks.force_release("/stream").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await; // the loss is reported meanwhile
    pieces.send(piece("second")).unwrap();
    client.until("second").await;
    drop(pieces);
    client.until("0\r\n\r\n").await;
}

#[tokio::test]
async fn a_body_whose_hold_is_lost_is_cut() {
    let locks = Locks::in_memory();
    let (address, mut streams) = start(&locks, |layer| layer).await;
    let mut client = Client::send(address, "GET /stream", "").await;
    let pieces = streams.recv().await.unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    locks.force_release("/stream").await.unwrap();
    let rest = client.answer().await;
    assert!(!rest.head.contains("0\r\n\r\n"), "{}", rest.head);
    drop(pieces);
}

#[tokio::test]
async fn a_body_is_not_polled_after_the_loss_although_it_was_never_pending() {
    let locks = Locks::in_memory();
    let polls = Arc::new(AtomicUsize::new(0));
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
    let counter = Arc::clone(&polls);
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let counter = Arc::clone(&counter);
        let frames = stream::repeat_with(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(Frame::data(Bytes::from("x")))
        });
        let mut response = Response::new(StreamBody::new(frames));
        let lock = request.extensions().get::<LockHandle>().unwrap().clone();
        response.extensions_mut().insert(lock);
        async { Ok::<_, BoxError>(response) }
    }));
    let request = Request::get("/a").body(Empty::<Bytes>::new()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let lock = response.extensions().get::<LockHandle>().unwrap().clone();
    let mut body = response.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    locks.force_release("/a").await.unwrap();
    lock.lost().await;
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

/// A body that records whether the lock was still held when it was dropped.
struct Owned {
    inner: AnyBody,
    lock: LockHandle,
    seen: mpsc::UnboundedSender<bool>,
}

impl Body for Owned {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.seen.send(!self.lock.is_lost());
    }
}

#[tokio::test]
async fn what_the_body_has_is_dropped_before_the_next_has_the_lock() {
    let locks = Locks::in_memory();
    let (seen, mut was_held) = mpsc::unbounded_channel();
    let (streams, mut started) = mpsc::unbounded_channel();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let lock = request.extensions().get::<LockHandle>().unwrap().clone();
        let (pieces, inner) = streamed();
        streams.send(pieces).unwrap();
        let body = Owned { inner, lock, seen: seen.clone() };
        async move { Ok::<_, BoxError>(Response::new(body)) }
    }));
    let address = serve(service).await;
    for how in ["end", "failure", "hang-up"] {
        let mut client = Client::send(address, "GET /a", "").await;
        let pieces = started.recv().await.unwrap();
        pieces.send(piece("first")).unwrap();
        client.until("first").await;
        match how {
            "failure" => pieces.send(Err("broken".into())).unwrap(),
            "hang-up" => drop(client),
            _ => drop(pieces),
        }
        assert_eq!(was_held.recv().await, Some(true), "{how}");
        free(&locks, "/a").await;
    }
}

#[tokio::test]
async fn an_upgrade_frees_the_lock_with_its_head() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
    let service = layer.layer(service_fn(|request: Request<_>| async move {
        tokio::spawn(async move {
            let _open = hyper::upgrade::on(request).await;
            std::future::pending::<()>().await;
        });
        let response = Response::builder().status(101).header("upgrade", "chat");
        let response = response.header("connection", "upgrade").body(Empty::<Bytes>::new());
        Ok::<_, BoxError>(response.unwrap())
    }));
    let address = serve(service).await;
    let mut client = Client::send(address, "GET /chat", "upgrade: chat\r\n").await;
    assert!(client.until("\r\n\r\n").await.contains("101"));
    assert!(!is_held(&locks, "/chat").await);
}

/// Returns a response body of data and trailers that does not report its end in advance.
async fn with_trailers(locks: &Locks) -> lock_tower::http::LockBody<AnyBody> {
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
    let service = layer.layer(service_fn(|_: Request<_>| async {
        let frames = [Frame::data(Bytes::from_static(b"data")), Frame::trailers(HeaderMap::new())];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, BoxError>)));
        Ok::<_, BoxError>(Response::new(body.boxed_unsync()))
    }));
    let request = Request::get("/a").body(Empty::<Bytes>::new()).unwrap();
    let mut body = service.oneshot(request).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert!(is_held(locks, "/a").await);
    body
}

#[tokio::test]
async fn trailers_wait_for_the_release_also_of_a_body_that_does_not_know_its_end() {
    let locks = Locks::in_memory();
    for _ in 0..20 {
        let mut body = with_trailers(&locks).await;
        assert!(body.frame().await.unwrap().unwrap().is_trailers());
        assert!(!is_held(&locks, "/a").await, "a client without a wait would meet its own lock");
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_loss_that_the_release_finds_takes_the_place_of_trailers() {
    let server = RedisServer::start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let mut body = with_trailers(&locks).await;
    Raw::connect(&server.url()).await.ask::<i64>(redis::cmd("DEL").arg(lock_key("/a"))).await;
    assert!(body.frame().await.unwrap().is_err(), "the release says that the hold was lost");
}

/// Sends a request with this method and version, directly and not over a socket. The handler
/// responds with this `content-length`, and a stream that does not report its end. Returns whether
/// the lock is held with the response, and after each frame.
async fn held_until(method: Method, version: Version, length: usize) -> Vec<bool> {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).hold_until_body_end(true);
    let service = layer.layer(service_fn(move |_: Request<_>| async move {
        let frames = ["who", "le"].map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from(piece))));
        let frames = stream::iter(frames).chain(stream::pending());
        let response = Response::builder().header("content-length", length);
        Ok::<_, BoxError>(response.body(StreamBody::new(frames)).unwrap())
    }));
    let request = Request::builder().method(method).version(version).uri("/a");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let mut body = service.oneshot(request).await.unwrap().into_body();
    let mut held = vec![is_held(&locks, "/a").await];
    for _ in 0..2 {
        assert!(body.frame().await.unwrap().unwrap().is_data());
        held.push(is_held(&locks, "/a").await);
        if body.is_end_stream() {
            break;
        }
    }
    held
}

#[tokio::test]
async fn a_body_ends_where_the_server_takes_no_more_of_it() {
    let (http1, http2) = (Version::HTTP_11, Version::HTTP_2);
    for _ in 0..20 {
        assert_eq!(held_until(Method::GET, http1, 5).await, [true, true, false]);
        assert_eq!(held_until(Method::GET, http1, 3).await, [true, false]);
        assert!(!held_until(Method::GET, http1, 0).await[0]);
        assert_eq!(held_until(Method::GET, http2, 5).await, [true; 3], "trailers may follow");
        assert!(!held_until(Method::HEAD, http1, 5).await[0]);
    }
}
