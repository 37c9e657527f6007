//! `cargo run -p lock-examples --bin hyper_server`: a hyper server; requests that change the same
//! path are served one at a time.
//!
//! Then run this twice at once: `curl -i -X POST http://127.0.0.1:3000/orders/42`. With a Redis URL
//! as the first argument, several such servers share the locks; the second argument is the address.
//! Ctrl-C ends the server once the requests in progress have their responses.
#![allow(clippy::print_stdout)]

use std::convert::Infallible;
use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use lock_tower::{ByPath, Cause, DetachLayer, ExtractKeyExt as _, HttpLockLayer, LockHandle};
use lockcore::Locks;
use tokio::net::TcpListener;
use tower::{BoxError, ServiceBuilder, service_fn};

async fn handle<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = match request.extensions().get::<LockHandle>() {
        Some(lock) => {
            tokio::time::sleep(Duration::from_secs(2)).await; // the work
            format!("changed under token {}\n", lock.fencing_token())
        }
        None => "read without a lock\n".to_owned(),
    };
    Ok(Response::new(Full::from(text)))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let locks = Locks::builder().namespace("example");
    let locks = match std::env::args().nth(1) {
        Some(url) => locks.connect(url).await?,
        None => locks.in_memory()?,
    };
    let key = ByPath::new().methods([Method::POST, Method::PUT, Method::DELETE]);
    let service = ServiceBuilder::new()
        .layer(
            HttpLockLayer::new(locks.clone(), key)
                .wait(Duration::from_secs(5))
                .queue_limit(20)
                .status(Cause::Busy, StatusCode::CONFLICT)
                .server_timing(true),
        )
        .layer(DetachLayer::new())
        .service(service_fn(handle));

    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let graceful = GracefulShutdown::new();
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            interrupted = &mut interrupt => break interrupted?,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue, // by the client
            Err(error) => {
                println!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await; // too many are open
                continue;
            }
        };
        let service = TowerToHyperService::new(service.clone());
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(graceful.watch(connection));
    }
    // The connections end before the locks, so that all responses in progress are sent.
    let _ = tokio::time::timeout(Duration::from_secs(18), graceful.shutdown()).await;
    println!("{:?}", locks.shutdown(Duration::from_secs(4)).await);
    Ok(())
}
