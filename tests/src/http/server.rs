//! Servers on their own ports, until the test's runtime ends.

use std::net::SocketAddr;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tower::{BoxError, Service};

/// Opens a port, for servers that bring their own loop.
pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Serves HTTP/1, with upgrades.
pub async fn serve<S, R>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    accept(move |stream| {
        let service = TowerToHyperService::new(service.clone());
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection.with_upgrades());
    })
    .await
}

/// Serves HTTP/2, without the upgrade to it.
pub async fn serve_http2<S, R>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    accept(move |stream| {
        let service = TowerToHyperService::new(service.clone());
        let server = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    })
    .await
}

async fn accept(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream);
        }
    });
    address
}
