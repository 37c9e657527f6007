//! Requests that wait on one HTTP/2 connection, with bodies that do not fit its window, on servers as they come.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use lock_tower::{ByPath, HttpLockLayer, Keys, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tower::service_fn;

use crate::body_end::{Pieces, piece, streamed};
use crate::support::{AnyBody, LIMIT, queued};

/// Longer than any test: whoever waits for its end fails.
const WAIT: Duration = Duration::from_secs(120);

const MB: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
enum Server {
    Hyper,
    Axum,
    Tonic,
}

/// Who takes the lock.
#[derive(Debug, Clone, Copy)]
enum Taker {
    Layer,
    Handler,
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    server: Server,
    taker: Taker,
    /// For ever if it is none.
    wait: Option<Duration>,
    read_ahead: usize,
    total: usize,
}

impl Setup {
    /// Every server, with its defaults and ours.
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

macro_rules! told {
    ($layer:expr, $setup:expr) => {{
        let layer = $layer.read_ahead($setup.read_ahead).read_ahead_total($setup.total);
        match $setup.wait {
            Some(wait) => layer.wait(wait),
            None => layer.wait_forever(),
        }
    }};
}

/// A server, and what its handler has received of the body that it reads.
struct Started {
    locks: Locks,
    address: SocketAddr,
    received: mpsc::UnboundedReceiver<usize>,
}

async fn handle(State(tell): State<mpsc::UnboundedSender<usize>>, request: Request) -> Response {
    if let Ok(locks) = RequestLocks::of(request.extensions())
        && let Err(error) = locks.lock(Keys::one(request.uri().path())).await
    {
        return locks.refusals().respond(&error).map(Body::from);
    }
    let mut body = request.into_body();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        size += frame.unwrap().data_ref().map_or(0, Bytes::len);
        let _ = tell.send(size);
    }
    Response::new(Body::from(size.to_string()))
}

async fn start(setup: Setup) -> Started {
    let locks = Locks::in_memory();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, received) = mpsc::unbounded_channel();
    let app = Router::new().fallback(handle).with_state(tell);
    let layer = told!(HttpLockLayer::new(locks.clone(), ByPath::new()), setup);
    let scope = told!(LockScopeLayer::new(locks.clone()), setup);
    let layered = match setup.taker {
        Taker::Layer => app.clone().layer(layer.clone()),
        Taker::Handler => app.clone().layer(scope.clone()),
    };
    match setup.server {
        Server::Axum => drop(tokio::spawn(async move { axum::serve(listener, layered).await })),
        Server::Hyper => drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(layered.clone());
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        })),
        Server::Tonic => {
            let (builder, routes) = (tonic::transport::Server::builder(), Routes::from(app));
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

/// One connection.
struct Client<B = AnyBody> {
    sender: SendRequest<B>,
    address: SocketAddr,
}

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), address: self.address }
    }
}

impl<B> Client<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<tower::BoxError>,
{
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, address }
    }
}

impl Client {
    /// Status, code of the refusal, and body of the answer.
    async fn post(&self, path: &str, body: AnyBody) -> (u16, String) {
        let uri = format!("http://{}{path}", self.address);
        let request = http::Request::post(uri).body(body).unwrap();
        let asked = async {
            let response = self.sender.clone().send_request(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            (parts.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
        };
        tokio::time::timeout(LIMIT, asked).await.expect("an answer, long before the wait ends")
    }

    async fn send(&self, path: &str, size: usize) -> (u16, String) {
        self.post(path, of(size)).await
    }
}

fn of(size: usize) -> AnyBody {
    Full::new(Bytes::from(vec![b'x'; size])).map_err(Into::into).boxed_unsync()
}

fn served(size: usize) -> (u16, String) {
    (200, size.to_string())
}

/// Takes connections of many clients, and has a single one to the server.
async fn proxy(address: SocketAddr) -> SocketAddr {
    let upstream = Client::<Incoming>::connect(address).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let upstream = upstream.sender.clone();
            let service = service_fn(move |request| upstream.clone().send_request(request));
            let server = http2::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service);
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    proxy
}

#[tokio::test]
async fn calls_of_one_key_whose_bodies_do_not_fit_the_window_are_all_served() {
    for setup in Setup::all() {
        for wait in [setup.wait, None] {
            let Started { address, .. } = start(Setup { wait, ..setup }).await;
            let client = Client::connect(address).await;
            for (calls, size) in [(2, 3 * MB), (8, 300_000), (4, 3 * MB / 2), (8, 3 * MB)] {
                let answers = (0..calls).map(|_| client.send("/a", size));
                for answer in join_all(answers).await {
                    assert_eq!(answer, served(size), "{calls} of {size}, {setup:?}");
                }
            }
        }
    }
}

/// A call that holds the lock and gets its body piece by piece.
struct Holder {
    pieces: Pieces,
    call: tokio::task::JoinHandle<(u16, String)>,
}

async fn hold(client: &Client, started: &mut Started) -> Holder {
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
        let client = Client::connect(started.address).await;
        let holder = hold(&client, &mut started).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.send("/a", 600_000).await })
            })
            .collect();
        queued(&started.locks, "/a", 4).await;
        assert_eq!(client.send("/b", 4).await, served(4), "{setup:?}");
        assert_eq!(client.send("/b", 2 * MB).await, served(2 * MB), "{setup:?}");
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
        let holder = hold(&Client::connect(proxy).await, &mut started).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn(async move { Client::connect(proxy).await.send("/a", 600_000).await })
            })
            .collect();
        queued(&started.locks, "/a", 4).await;
        let other = Client::connect(proxy).await;
        assert_eq!(other.send("/b", 2 * MB).await, served(2 * MB), "{setup:?}");
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
        let client = Client::connect(started.address).await;
        let holder = hold(&client, &mut started).await;
        let small = {
            let client = client.clone();
            tokio::spawn(async move { client.send("/a", MB / 2).await })
        };
        queued(&started.locks, "/a", 1).await;
        for _ in 0..5 {
            let (status, problem) = client.send("/a", 2 * MB).await;
            assert_eq!(status, 413, "{setup:?}");
            assert!(problem.ends_with(r#""code":"lock-body-limit"}"#), "{problem}");
        }
        queued(&started.locks, "/a", 1).await;
        drop(holder.pieces);
        assert_eq!(holder.call.await.unwrap(), served(5));
        assert_eq!(small.await.unwrap(), served(MB / 2), "{setup:?}");
        // Whoever need not wait has no bound.
        assert_eq!(client.send("/a", 5 * MB).await, served(5 * MB), "{setup:?}");
    }
}

#[tokio::test]
async fn all_that_waits_has_a_bound_together_and_what_was_read_is_given_back() {
    for setup in Setup::all() {
        let mut started = start(Setup { total: MB, ..setup }).await;
        let client = Client::connect(started.address).await;
        for _ in 0..3 {
            let holder = hold(&client, &mut started).await;
            let waiting = {
                let client = client.clone();
                tokio::spawn(async move { client.send("/a", 3 * MB / 4).await })
            };
            queued(&started.locks, "/a", 1).await;
            // It may also be the first one that does not find room.
            let (status, _) = client.send("/a", 3 * MB / 4).await;
            drop(holder.pieces);
            assert_eq!(holder.call.await.unwrap(), served(5));
            let statuses = [status, waiting.await.unwrap().0];
            assert!(statuses.contains(&413), "{statuses:?} {setup:?}");
        }
    }
}
