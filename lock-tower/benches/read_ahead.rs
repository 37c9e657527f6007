//! The time that requests with bodies take behind the layers, which read the bodies of waiting
//! requests: over a socket, on one HTTP/2 connection.
//!
//! `cargo bench -p lock-tower --bench read_ahead`. Compare figures only within one run. Nothing is
//! asserted.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use lock_tower::{ByPath, HttpLockLayer, LockScopeLayer};
use lockcore::Locks;
use tokio::net::{TcpListener, TcpStream};
use tower::{BoxError, Layer as _, Service, service_fn};

/// Reads the whole request body, and responds with its length.
async fn drain<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Full::from(body.len().to_string())))
}

async fn serve<S, R>(service: S) -> Client
where
    S: Service<Request<Incoming>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let service = TowerToHyperService::new(service);
        let server = http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    });
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Client { sender, address }
}

struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

impl Client {
    async fn post(&self, path: &str, body: Bytes) {
        let request = Request::post(format!("http://{}{path}", self.address));
        let request = request.body(Full::new(body)).unwrap();
        let response = self.sender.clone().send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
    }

    /// Returns the median time of `calls` concurrent requests with bodies of `size` bytes, over
    /// `rounds` repetitions. With `one_key` they wait for each other.
    async fn time(&self, rounds: usize, calls: usize, size: usize, one_key: bool) -> Duration {
        let body = Bytes::from(vec![b'x'; size]);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            let paths = (0..calls).map(|n| if one_key { "/a".to_owned() } else { format!("/{n}") });
            let paths: Vec<_> = paths.collect();
            join_all(paths.iter().map(|path| self.post(path, body.clone()))).await;
            times.push(begun.elapsed());
        }
        times.sort();
        times[rounds / 2]
    }
}

async fn row(name: &str, client: &Client) {
    let small = client.time(200, 1, 1_000, true).await;
    let large = client.time(50, 1, 3_000_000, true).await;
    let apart = client.time(20, 8, 3_000_000, false).await;
    let queue = client.time(20, 8, 3_000_000, true).await;
    println!("{name:<28} {small:>12.1?} {large:>12.1?} {apart:>12.1?} {queue:>12.1?}");
}

#[tokio::main]
async fn main() {
    println!("{:<28} {:>12} {:>12} {:>12} {:>12}", "", "1 kB", "3 MB", "8 x 3 MB", "same key");
    row("no layer", &serve(service_fn(drain)).await).await;
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new());
    row("HttpLockLayer", &serve(layer.layer(service_fn(drain))).await).await;
    row(
        "LockScopeLayer, no lock",
        &serve(LockScopeLayer::new(locks).layer(service_fn(drain))).await,
    )
    .await;
    let mut arguments = std::env::args().skip_while(|argument| argument != "--redis");
    if let Some(url) = arguments.nth(1) {
        let locks = Locks::connect(url).await.unwrap();
        let layer = HttpLockLayer::new(locks, ByPath::new());
        row("HttpLockLayer, on Redis", &serve(layer.layer(service_fn(drain))).await).await;
    }
}
