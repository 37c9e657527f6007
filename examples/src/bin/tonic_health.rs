//! `cargo run -p lock-examples --bin tonic_health --features tonic`: a gRPC server whose calls of one method queue.
//!
//! The server is tonic's health service, which needs no code generation; a client in the same process calls it, and is
//! refused as gRPC does while somebody else has the lock.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use lock_tower::HttpLockLayer;
use lockcore::Locks;
use tokio::net::TcpListener;
use tonic::codegen::http::Request;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory(); // or .connect("redis://127.0.0.1/").await?

    // The path of a gRPC request is its method. For a key from the message, lock in the method itself.
    let method = |request: &Request<tonic::body::Body>| request.uri().path().to_owned();
    let layer = HttpLockLayer::new(locks.clone(), method).wait(Duration::from_millis(200)).grpc();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    let question = || HealthCheckRequest { service: String::new() };

    let guard = locks.lock("/grpc.health.v1.Health/Check").await?;
    match client.check(question()).await {
        Ok(_) => println!("served beside the lock: that is a bug"),
        Err(refused) => println!("while it is held: {:?}, {}", refused.code(), refused.message()),
    }
    guard.release().await?;
    let served = client.check(question()).await?;
    println!("after that: status {:?}", served.into_inner().status());
    Ok(())
}
