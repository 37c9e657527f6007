//! Waiting requests on one HTTP/2 connection, with bodies larger than its window, on servers with
//! default settings.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use lock_tests::http::{AnyBody, Multiplexed, Pieces, listen, piece, serve_http2, streamed, text};
use lock_tests::{LIMIT, queued};
use lock_tower::{ByPath, HttpLockLayer, Keys, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tower::service_fn;

/// A wait longer than any test: a test that waits for its end fails.
const WAIT: Duration = Duration::from_secs(120);

const MB: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
enum Server {
    Hyper,
    Axum,
    Tonic,
}

/// The code that acquires the lock: an `HttpLockLayer`, or the handler behind a `LockScopeLayer`.
#[derive(Debug, Clone, Copy)]
enum Taker {
    Layer,
    Handler,
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    server: Server,
    taker: Taker,
    /// The maximum wait for the lock; `None` waits forever.
    wait: Option<Duration>,
    read_ahead: usize,
    total: usize,
}

impl Setup {
    /// Returns every combination of server and taker, with default settings.
    fn all() -> impl Iterator<Item = Self> {
        let servers = [Server::Hyper, Server::Axum, Server::Tonic].into_iter();
        servers.flat_map(|server| {
            [Taker::Layer, Taker::Handler].map(|taker| Self {
                server,
                taker,
                wait: Some(WAIT),
                read_ahead: 4 << 20,
                total: 64 << 20,
            })
        })
    }
}

macro_rules! configured {
    ($layer:expr, $setup:expr) => {{
        let layer = $layer.read_ahead($setup.read_ahead).read_ahead_total($setup.total);
        match $setup.wait {
            Some(wait) => layer.wait(wait),
            None => layer.wait_forever(),
        }
    }};
}

/// A server, and the sizes of the body data received by its handler.
struct Started {
    locks: Locks,
    address: SocketAddr,
    received: mpsc::UnboundedReceiver<usize>,
}

async fn handle(State(sizes): State<mpsc::UnboundedSender<usize>>, request: Request) -> Response {
    if let Ok(locks) = RequestLocks::of(request.extensions())
        && let Err(error) = locks.lock(Keys::one(request.uri().path())).await
    {
        return locks.refusals().respond(&error).map(Body::from);
    }
    let mut body = request.into_body();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        size += frame.unwrap().data_ref().map_or(0, Bytes::len);
        let _ = sizes.send(size);
    }
    Response::new(Body::from(size.to_string()))
}

async fn start(setup: Setup) -> Started {
    let locks = Locks::in_memory();
    let (sizes, received) = mpsc::unbounded_channel();
    let app = Router::new().fallback(handle).with_state(sizes);
    let layer = configured!(HttpLockLayer::new(locks.clone(), ByPath::new()), setup);
    let scope = configured!(LockScopeLayer::new(locks.clone()), setup);
    let layered = match setup.taker {
        Taker::Layer => app.clone().layer(layer.clone()),
        Taker::Handler => app.clone().layer(scope.clone()),
    };
    let (listener, address) = listen().await;
    match setup.server {
        Server::Hyper => return Started { locks, address: serve_http2(layered).await, received },
        Server::Axum => drop(tokio::spawn(async move { axum::serve(listener, layered).await })),
        Server::Tonic => {
            let builder = tonic::transport::Server::builder();
            let routes = Routes::from(app);
            let incoming = TcpIncoming::from(listener);
            match setup.taker {
                Taker::Layer => {
                    let server = builder.layer(layer).add_routes(routes);
                    tokio::spawn(server.serve_with_incoming(incoming));
                }
                Taker::Handler => {
                    let server = builder.layer(scope).add_routes(routes);
                    tokio::spawn(server.serve_with_incoming(incoming));
                }
            }
        }
    }
    Started { locks, address, received }
}

async fn send(client: &Multiplexed, path: &str, size: usize) -> (u16, String) {
    client.post(path, of(size)).await
}

fn of(size: usize) -> AnyBody {
    text(vec![b'x'; size])
}

fn served(size: usize) -> (u16, String) {
    (200, size.to_string())
}

/// Starts a proxy that accepts many client connections, and opens a single connection to the
/// server.
async fn proxy(address: SocketAddr) -> SocketAddr {
    let upstream = Multiplexed::sender::<Incoming>(address).await;
    serve_http2(service_fn(move |request| upstream.clone().send_request(request))).await
}

#[tokio::test]
async fn calls_of_one_key_whose_bodies_do_not_fit_the_window_are_all_served() {
    for setup in Setup::all() {
        for wait in [setup.wait, None] {
            let Started { address, .. } = start(Setup { wait, ..setup }).await;
            let client = Multiplexed::connect(address).await;
            for (calls, size) in [(2, 3 * MB), (8, 300_000), (4, 3 * MB / 2), (8, 3 * MB)] {
                let answers = (0..calls).map(|_| send(&client, "/a", size));
                for answer in join_all(answers).await {
                    assert_eq!(answer, served(size), "{calls} of {size}, {setup:?}");
                }
            }
        }
    }
}

/// A call that holds the lock and receives its body piece by piece.
struct Holder {
    pieces: Pieces,
    call: tokio::task::JoinHandle<(u16, String)>,
}

async fn hold(client: &Multiplexed, started: &mut Started) -> Holder {
    let (pieces, body) = streamed();
    let client = client.clone();
    let call = tokio::spawn(async move { client.post("/a", body).await });
    pieces.send(piece("first")).unwrap();
    received(started, 5).await;
    Holder { pieces, call }
}

async fn received(started: &mut Started, size: usize) {
    let come = async { while started.received.recv().await.unwrap() < size {} };
    tokio::time::timeout(LIMIT, come).await.expect("the handler gets its body");
}

#[tokio::test]
async fn calls_that_wait_keep_neither_the_holder_nor_another_key_from_their_bodies() {
    for setup in Setup::all() {
        let mut started = start(setup).await;
        let client = Multiplexed::connect(started.address).await;
        let holder = hold(&client, &mut started).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { send(&client, "/a", 600_000).await })
            })
            .collect();
        queued(&started.locks, "/a", 4).await;
        assert_eq!(send(&client, "/b", 4).await, served(4), "{setup:?}");
        assert_eq!(send(&client, "/b", 2 * MB).await, served(2 * MB), "{setup:?}");
        holder.pieces.send(piece("second")).unwrap();
        holder.pieces.send(Ok(Frame::data(Bytes::from(vec![b'x'; 2 * MB])))).unwrap();
        received(&mut started, 11 + 2 * MB).await;
        drop(holder.pieces);
        assert_eq!(holder.call.await.unwrap(), served(11 + 2 * MB));
        for call in waiting {
            assert_eq!(call.await.unwrap(), served(600_000), "{setup:?}");
        }
    }
}

#[tokio::test]
async fn behind_a_proxy_with_one_connection_no_client_stops_another() {
    for setup in Setup::all() {
        let mut started = start(setup).await;
        let proxy = proxy(started.address).await;
        let holder = hold(&Multiplexed::connect(proxy).await, &mut started).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn(async move {
                    send(&Multiplexed::connect(proxy).await, "/a", 600_000).await
                })
            })
            .collect();
        queued(&started.locks, "/a", 4).await;
        let other = Multiplexed::connect(proxy).await;
        assert_eq!(send(&other, "/b", 2 * MB).await, served(2 * MB), "{setup:?}");
        holder.pieces.send(Ok(Frame::data(Bytes::from(vec![b'x'; 2 * MB])))).unwrap();
        received(&mut started, 5 + 2 * MB).await;
        drop(holder.pieces);
        assert_eq!(holder.call.await.unwrap(), served(5 + 2 * MB));
        for call in waiting {
            assert_eq!(call.await.unwrap(), served(600_000), "{setup:?}");
        }
    }
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_refused_by_its_own_name_and_the_others_go_on() {
    for setup in Setup::all() {
        let mut started = start(Setup { read_ahead: MB, ..setup }).await;
        let client = Multiplexed::connect(started.address).await;
        let holder = hold(&client, &mut started).await;
        let small = {
            let client = client.clone();
            tokio::spawn(async move { send(&client, "/a", MB / 2).await })
        };
        queued(&started.locks, "/a", 1).await;
        for _ in 0..5 {
            let (status, problem) = send(&client, "/a", 2 * MB).await;
            assert_eq!(status, 413, "{setup:?}");
            assert!(problem.ends_with(r#""code":"lock-body-limit"}"#), "{problem}");
        }
        queued(&started.locks, "/a", 1).await;
        drop(holder.pieces);
        assert_eq!(holder.call.await.unwrap(), served(5));
        assert_eq!(small.await.unwrap(), served(MB / 2), "{setup:?}");
        // A request that need not wait has no bound.
        assert_eq!(send(&client, "/a", 5 * MB).await, served(5 * MB), "{setup:?}");
    }
}

#[tokio::test]
async fn all_that_waits_has_a_bound_together_and_what_was_read_is_freed() {
    for setup in Setup::all() {
        let mut started = start(Setup { total: MB, ..setup }).await;
        let client = Multiplexed::connect(started.address).await;
        for _ in 0..3 {
            let holder = hold(&client, &mut started).await;
            let waiting = {
                let client = client.clone();
                tokio::spawn(async move { send(&client, "/a", 3 * MB / 4).await })
            };
            queued(&started.locks, "/a", 1).await;
            // The first request may also be the one without room.
            let (status, _) = send(&client, "/a", 3 * MB / 4).await;
            drop(holder.pieces);
            assert_eq!(holder.call.await.unwrap(), served(5));
            let statuses = [status, waiting.await.unwrap().0];
            assert!(statuses.contains(&503), "{statuses:?} {setup:?}");
        }
    }
}
