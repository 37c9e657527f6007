//! The bounds for reading bodies of waiting requests: in measured memory, and between clients.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{poll, stream};
use http::{HeaderMap, HeaderName, Request, Response, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use lock_tests::http::{AnyBody, Multiplexed, serve_http2, streamed, text};
use lock_tests::{LIMIT, Leash, queued};
use lock_tower::http::RequestBody;
use lock_tower::{ByPath, Cause, HttpLockLayer, Keys, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::{BoxError, Layer as _, Service as _, ServiceExt as _, service_fn};

const CHILD: &str = "LOCK_TOWER_TEST_READ_AHEAD";
const ITSELF: &str = "read_ahead::what_is_read_ahead_takes_as_much_memory_as_is_counted";
const KB: usize = 1_000;

async fn start(locks: &Locks, total: usize) -> SocketAddr {
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::from_secs(120));
    let layer = layer.read_ahead_total(total);
    serve_http2(layer.layer(service_fn(drain))).await
}

async fn drain<B>(request: Request<B>) -> Result<Response<AnyBody>, BoxError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let body = request.into_body().collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::new(text(body.len().to_string())))
}

/// How long a request whose body exceeds the bounds may still wait: `GRACE` in the sources.
const GRACE: Duration = Duration::from_millis(100);

/// Sends `pieces` of 2 kB to a handler whose waits may read 1 kB ahead, over HTTP/2. The body does
/// not end.
async fn scoped<F, R>(locks: &Locks, pieces: usize, handler: F) -> R
where
    F: AsyncFnOnce(RequestLocks, RequestBody<AnyBody>) -> R,
{
    let layer = LockScopeLayer::new(locks.clone()).read_ahead(KB);
    sent(layer, &vec![2 * KB; pieces], handler).await
}

/// Sends pieces of these sizes to a handler behind the layer, over HTTP/2. The body does not end.
async fn sent<F, R>(layer: LockScopeLayer, sizes: &[usize], handler: F) -> R
where
    F: AsyncFnOnce(RequestLocks, RequestBody<AnyBody>) -> R,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (pieces_of, body) = streamed();
    for size in sizes {
        pieces_of.send(Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).unwrap();
    }
    let mut sender = Some(sender);
    let mut service = layer.layer(service_fn(move |request: Request<_>| {
        sender.take().unwrap().send(request).ok().unwrap();
        std::future::pending::<Result<Response<AnyBody>, BoxError>>()
    }));
    let request = Request::post("/").version(Version::HTTP_2).body(body).unwrap();
    let _response = service.call(request);
    let request = receiver.await.unwrap();
    let handled = handler(RequestLocks::of(request.extensions()).unwrap(), request.into_body());
    let handled = handled.await;
    drop(pieces_of);
    handled
}

#[tokio::test(start_paused = true)]
async fn a_second_wait_has_its_own_time_to_be_granted_a_lock_before_a_large_body_is_refused() {
    let locks = Locks::in_memory();
    let held = locks.lock("a").await.unwrap();
    scoped(&locks, 1, async |of_request, _body| {
        let mut first = pin!(of_request.lock(Keys::one("a")));
        assert!(poll!(&mut first).is_pending()); // the body exceeds the bound from now on
        drop(held);
        first.await.unwrap();
        tokio::time::sleep(2 * GRACE).await;
        let busy = locks.lock("b").await.unwrap();
        let mut second = pin!(of_request.lock(Keys::one("b")));
        assert!(poll!(&mut second).is_pending());
        drop(busy);
        second.await.unwrap();

        let _busy = locks.lock("c").await.unwrap();
        let began = Instant::now();
        let refused = of_request.lock(Keys::one("c")).await.unwrap_err();
        assert_eq!((refused.cause(), began.elapsed().as_millis() / 10), (Cause::BodyLimit, 10));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_handler_reads_during_the_wait_has_its_time_anew() {
    let locks = Locks::in_memory();
    let _held = locks.lock("a").await.unwrap();
    scoped(&locks, 3, async |of_request, mut body| {
        let mut wait = pin!(of_request.lock(Keys::one("a")));
        let began = Instant::now();
        for _ in 0..2 {
            assert!(tokio::time::timeout(GRACE * 3 / 4, &mut wait).await.is_err());
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(wait.await.unwrap_err().cause(), Cause::BodyLimit);
        assert_eq!(began.elapsed().as_millis() / 10, 25);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_handler_has_dropped_refuses_no_later_wait() {
    let locks = Locks::in_memory();
    let held = locks.lock("a").await.unwrap();
    let layer = LockScopeLayer::new(locks.clone()).read_ahead_total(0);
    sent(layer, &[70 * KB], async |of_request, body| {
        let mut first = pin!(of_request.lock(Keys::one("a")));
        assert!(poll!(&mut first).is_pending()); // the body exceeds the total from now on
        drop(held);
        first.await.unwrap();
        drop(body);
        let busy = locks.lock("b").await.unwrap();
        let mut second = pin!(of_request.lock(Keys::one("b")));
        assert!(tokio::time::timeout(10 * GRACE, &mut second).await.is_err());
        drop(busy);
        second.await.unwrap();
    })
    .await;
}

/// A server in a separate process, in which requests to `/a` wait for their lock.
struct Server {
    child: Child,
    _leash: Leash,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", ITSELF])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let leash = Leash::new(child.id(), None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
            .expect("the process says where it listens");
        Self { child, _leash: leash, address }
    }

    /// Returns the server's memory in bytes, without the program's own pages, which are loaded on
    /// first use.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP/2 client that writes its frames by hand.
struct Frames(TcpStream);

impl Frames {
    async fn post(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut frames = Self(stream);
        let mut head = vec![0x83, 0x86, 0x04, path.len() as u8]; // POST, http, a path
        head.extend_from_slice(path.as_bytes());
        head.extend_from_slice(b"\x01\x01x"); // an authority
        let mut begin = frame(4, 0, 0, &[]);
        begin.extend(frame(1, 4, 1, &head)); // the head is complete, the body follows
        frames.0.write_all(&begin).await.unwrap();
        frames
    }

    /// Sends these frames, and waits until the server has read them.
    async fn send(&mut self, mut frames: Vec<u8>) {
        frames.extend(frame(6, 0, 0, &[7; 8])); // a ping
        self.0.write_all(&frames).await.unwrap();
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.unwrap();
            let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; size as usize];
            self.0.read_exact(&mut payload).await.unwrap();
            match (head[3], head[4]) {
                (6, 1) if payload == [7; 8] => return,
                (1 | 3 | 7, _) => panic!("the request is refused: {head:?}"),
                _ => {}
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn what_is_read_ahead_takes_as_much_memory_as_is_counted() {
    if std::env::var(CHILD).is_ok() {
        let locks = Locks::in_memory();
        let _held = locks.lock("/a").await.unwrap();
        let address = start(&locks, 64 << 20).await;
        writeln!(std::io::stdout().lock(), "\nlistening on {address}").unwrap();
        return std::future::pending().await;
    }
    // The allowance for connections, requests and timers, and for memory reserved for their
    // buffers.
    let allowance = 4 << 20;

    // Each byte of data is followed by a frame of an unknown type, which fills the server's read
    // buffer: 16 KiB that count.
    let server = Server::start();
    let before = server.memory();
    let mut client = Frames::post(server.address, "/a").await;
    let pair = [frame(0, 0, 1, b"x"), frame(0xfa, 0, 1, &[0; 8_000])].concat();
    for _ in 0..160 {
        client.send(pair.repeat(50)).await;
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < allowance, "8000 bytes take {grown} bytes");
    drop((client, server));

    // Frames of the usual size: the memory of each body is close to its content.
    let server = Server::start();
    let before = server.memory();
    let sizes = [3_500 * KB; 8];
    let counted: usize = sizes.iter().sum();
    let calls = sizes.map(|size| {
        let address = server.address;
        tokio::spawn(async move {
            let client = Multiplexed::connect(address).await;
            let (pieces, body) = streamed();
            pieces.send(Ok(Frame::data(Bytes::from(vec![b'x'; size])))).unwrap();
            let answer = client.post("/a", body).await; // `pieces` lives: the body does not end
            drop(pieces);
            answer
        })
    });
    let grow = async {
        while server.memory() - before < counted - counted / 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, grow).await.expect("the bodies are read");
    tokio::time::sleep(Duration::from_millis(500)).await; // it may take more meanwhile
    let grown = server.memory() - before;
    assert!(grown < counted + counted / 4 + allowance, "{counted} bytes take {grown}");
    assert!(calls.iter().all(|call| !call.is_finished()), "none is refused");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_client_that_fills_the_room_of_the_layer_leaves_others_their_share() {
    let locks = Locks::in_memory();
    let held = [locks.lock("/a").await.unwrap(), locks.lock("/b").await.unwrap()];
    let address = start(&locks, 64 << 20).await;
    let clients = [Multiplexed::connect(address).await, Multiplexed::connect(address).await];
    // Bodies that do not end, then bodies of one final frame.
    let mut open = Vec::new();
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..315 {
        let client = clients[call % 2].clone();
        let body = match call < 15 {
            true => {
                let (pieces, body) = streamed();
                pieces.send(Ok(Frame::data(Bytes::from(vec![b'x'; 4_100 * KB])))).unwrap();
                open.push(pieces);
                body
            }
            false => text(vec![b'x'; 200 * KB]),
        };
        calls.spawn(async move { client.post("/a", body).await });
    }
    // Once the total is used up, requests are refused, with a separate code.
    let refused = tokio::time::timeout(LIMIT, calls.join_next()).await.expect("no room");
    let (status, problem) = refused.unwrap().unwrap();
    assert_eq!(status, 503, "{problem}");
    assert!(problem.ends_with(r#""code":"lock-read-ahead-full"}"#), "{problem}");

    let honest = Multiplexed::connect(address).await;
    let honest = tokio::spawn(async move { honest.post("/b", text(vec![b'x'; KB])).await });
    queued(&locks, "/b", 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await; // it would be refused meanwhile
    assert!(!honest.is_finished());
    let [_, other] = held;
    other.release().await.unwrap();
    assert_eq!(honest.await.unwrap(), (200, KB.to_string()));
    drop(open);
}

#[tokio::test]
async fn a_body_that_goes_beyond_the_total_is_refused_although_it_has_ended() {
    let locks = Locks::in_memory();
    let held = locks.lock("/a").await.unwrap();
    let address = start(&locks, KB).await;
    let client = Multiplexed::connect(address).await;
    let share = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/a", text(vec![b'x'; 60 * KB])).await })
    };
    queued(&locks, "/a", 1).await;
    // The last frame of this body is the fifth, and the first beyond the bound.
    let (status, problem) = client.post("/a", text(vec![b'x'; 70 * KB])).await;
    assert_eq!(status, 503, "{problem}");
    held.release().await.unwrap();
    assert_eq!(share.await.unwrap(), (200, (60 * KB).to_string()));
}

#[tokio::test]
async fn trailers_count_with_their_names_and_values() {
    let locks = Locks::in_memory();
    let _held = locks.lock("/a").await.unwrap();
    let layer = HttpLockLayer::new(locks, ByPath::new()).read_ahead_total(KB);
    let mut trailers = HeaderMap::new();
    for number in 0..100 {
        let name = HeaderName::try_from(format!("x-{number}")).unwrap();
        trailers.insert(name, "x".repeat(KB).parse().unwrap());
    }
    let frames = [Ok::<_, BoxError>(Frame::<Bytes>::trailers(trailers))];
    let request = Request::post("/a").version(Version::HTTP_2);
    let request = request.body(StreamBody::new(stream::iter(frames))).unwrap();
    let answer = layer.layer(service_fn(drain)).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 503);
}
