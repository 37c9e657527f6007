//! A real tonic server behind the layer: its health service.

use std::time::Duration;

use http::Request;
use lock_tower::{HttpLockLayer, ServiceBuilderExt as _};
use lockcore::Locks;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceBuilder;

use crate::support::queued;

async fn start(locks: &Locks) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let key = |request: &Request<tonic::body::Body>| request.uri().path().to_owned();
    let layer = HttpLockLayer::new(locks.clone(), key)
        .wait(Duration::from_millis(50))
        .queue_limit(1)
        .grpc();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let router = Server::builder().layer(layer).add_service(health);
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await;
    HealthClient::new(channel.unwrap())
}

const METHOD: &str = "/grpc.health.v1.Health/Check";

fn question() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn a_tonic_server_serves_under_the_lock_and_refuses_as_grpc_does() {
    let locks = Locks::in_memory();
    let mut client = start(&locks).await;
    client.check(question()).await.expect("served");
    assert_eq!(locks.status().holding, 0);

    let guard = locks.lock(METHOD).await.unwrap();
    let refused = client.check(question()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("Try again"), "{}", refused.message());

    let waiter = tokio::spawn(locks.lock(METHOD)); // the queue is full with it
    queued(&locks, METHOD, 1).await;
    let refused = client.check(question()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(guard);
    drop(waiter.await);
    client.check(question()).await.expect("served again");
}

#[tokio::test]
async fn a_stack_of_tonic_can_be_built_with_the_extension() {
    let locks = Locks::in_memory();
    let key = |_: &Request<tonic::body::Body>| "all";
    let stack = ServiceBuilder::new().http_lock(locks, key).into_inner();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let _router = Server::builder().layer(stack).add_service(health);
}
