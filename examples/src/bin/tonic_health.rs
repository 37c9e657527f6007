//! `cargo run -p lock-examples --bin tonic_health --features tonic`: a gRPC server that queues
//! calls with the same name.
//!
//! The key comes from the message, so the method acquires the lock; the layer around the server
//! keeps it until the response or the stream has ended. A client in the same process receives the
//! gRPC refusal while another request holds the lock.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use lock_tower::{Keys, LockError, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// A service for which the example needs no code generation. Replace this with your service.
struct Checks;

/// Converts a lock error to a gRPC status with code and sentence. The metadata are `lock-code` and,
/// if a retry is useful, a hint when.
fn refused(error: LockError) -> Status {
    Status::from_header_map(&error.grpc_trailers()).expect("it has a status")
}

/// Acquires the lock for the service named in the message. The layer keeps the lock until the
/// response or the stream has ended.
async fn locked(request: &Request<HealthCheckRequest>) -> Result<(), Status> {
    let locks = RequestLocks::of(request.extensions()).map_err(refused)?;
    let key = format!("service:{}", request.get_ref().service);
    locks.lock(Keys::one(key)).await.map_err(refused)?;
    Ok(())
}

fn healthy() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::Serving.into() }
}

#[tonic::async_trait]
impl Health for Checks {
    type WatchStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Responds to a check. The lock is held until the response has been sent.
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        locked(&request).await?;
        Ok(Response::new(healthy()))
    }

    /// Responds with a stream. The lock is held until the stream has ended. If the lock is lost
    /// earlier, the stream ends with ABORTED.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        locked(&request).await?;
        let states = stream::iter([Ok(healthy()), Ok(healthy())]);
        Ok(Response::new(states.chain(stream::pending()).boxed()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let layer = LockScopeLayer::new(locks.clone())
        .wait(Duration::from_millis(200))
        .hold_until_body_end(true)
        .max_hold(Duration::from_secs(60))
        .grpc();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // tonic's own `concurrency_limit_per_connection` applies outside this layer: waiting calls
    // would use it up.
    let server = Server::builder().layer(layer).add_service(HealthServer::new(Checks));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    let question = || HealthCheckRequest { service: "orders".to_owned() };

    let mut watch = client.watch(question()).await?.into_inner();
    watch.message().await?;
    match client.check(question()).await {
        Ok(_) => println!("served while the lock was held elsewhere: this is a bug"),
        Err(refused) => {
            let code = refused.metadata().get("lock-code").and_then(|code| code.to_str().ok());
            println!(
                "while it is held: {:?}, {}",
                refused.code(),
                code.unwrap_or("without a code")
            );
        }
    }
    locks.force_release("service:orders").await?; // an operator releases it by force
    let ended = loop {
        if let Err(status) = watch.message().await {
            break status;
        }
    };
    println!("the stream: {:?}, {}", ended.code(), ended.message());

    let served = client.check(question()).await?;
    println!("after that: status {:?}", served.into_inner().status());
    Ok(())
}
