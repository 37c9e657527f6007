//! A real tonic server, with the standard health service behind the layer.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use lock_tests::http::{Client, get, listen, piece, serve, streamed, text};
use lock_tests::{LIMIT, free, queued};
use lock_tower::{ByPath, HttpLockLayer, ServiceBuilderExt as _};
use lockcore::Locks;
use tokio::sync::mpsc;
use tonic::service::LayerExt as _;
use tonic::service::interceptor::{InterceptedService, InterceptorLayer};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer as _, ServiceBuilder, service_fn};

/// Starts a server for this router, and returns a client connected to it.
macro_rules! client {
    ($router:expr) => {{
        let (listener, address) = listen().await;
        tokio::spawn($router.serve_with_incoming(TcpIncoming::from(listener)));
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await;
        HealthClient::new(channel.unwrap())
    }};
}

async fn start(locks: &Locks) -> HealthClient<Channel> {
    start_with(locks, |layer| layer).await
}

type Tonic = Request<tonic::body::Body>;

async fn start_with<F>(locks: &Locks, change: F) -> HealthClient<Channel>
where
    F: FnOnce(HttpLockLayer<fn(&Tonic) -> String>) -> HttpLockLayer<fn(&Tonic) -> String>,
{
    let key: fn(&Tonic) -> String = |request| request.uri().path().to_owned();
    let layer = HttpLockLayer::new(locks.clone(), key)
        .wait(Duration::from_millis(50))
        .queue_limit(1)
        .grpc();
    let layer = change(layer);
    let (_reporter, health) = tonic_health::server::health_reporter();
    client!(Server::builder().layer(layer).add_service(health))
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
    assert_eq!(refused.metadata().get("lock-code").unwrap(), "lock-busy");
    let hint = refused.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    assert!((1_000..=2_000).contains(&hint.parse::<u64>().unwrap()), "{hint} ms");

    let waiter = tokio::spawn(locks.lock(METHOD)); // the queue is full with it
    queued(&locks, METHOD, 1).await;
    let refused = client.check(question()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.metadata().get("lock-code").unwrap(), "lock-queue-full");
    drop(guard);
    drop(waiter.await);
    client.check(question()).await.expect("served again");
}

#[tokio::test]
async fn a_stream_whose_hold_is_lost_or_too_long_ends_with_aborted() {
    const WATCH: &str = "/grpc.health.v1.Health/Watch";
    for max_hold in [None, Some(Duration::from_millis(400))] {
        let locks = Locks::in_memory();
        let mut client = start_with(&locks, |layer| match max_hold {
            Some(max_hold) => layer.hold_until_body_end(true).max_hold(max_hold),
            None => layer.hold_until_body_end(true),
        })
        .await;
        let mut stream = client.watch(question()).await.unwrap().into_inner();
        stream.message().await.unwrap().expect("the first one is sent at once");
        assert!(!locks.inspect(WATCH).await.unwrap().holders.is_empty());
        if max_hold.is_none() {
            locks.force_release(WATCH).await.unwrap();
        }
        let ended = tokio::time::timeout(LIMIT, stream.message()).await.expect("it ends");
        let status = ended.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status:?}");
        assert!(status.message().starts_with("The lock was lost"), "{status:?}");
        assert_eq!(status.metadata().get("lock-code").unwrap(), "lock-lost");
        assert!(
            status.metadata().get("grpc-retry-pushback-ms").is_none(),
            "its effects are unknown"
        );
        free(&locks, WATCH).await;
    }
}

#[tokio::test]
async fn a_stream_of_grpc_web_whose_hold_is_lost_ends_with_trailers_in_its_body() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).grpc().hold_until_body_end(true);
    let (streams, mut started) = mpsc::unbounded_channel();
    let service = layer.layer(service_fn(move |_: Request<_>| {
        let (pieces, body) = streamed();
        streams.send(pieces).unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let headers = "content-type: application/grpc-web+proto\r\n";
    let mut client = Client::send(serve(service).await, "POST /a", headers).await;
    let pieces = started.recv().await.unwrap();
    pieces.send(piece("message")).unwrap();
    client.until("message").await;
    locks.force_release("/a").await.unwrap();
    let rest = client.answer().await;
    assert!(rest.head.contains("grpc-status:10\r\n"), "{}", rest.head);
    drop(pieces);
}

/// Returns the trailers of a gRPC-Web body. They are one frame, marked by the highest bit of the
/// first byte.
fn trailers(body: &[u8]) -> String {
    assert_eq!(body[0], 0x80, "{body:?}");
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!(length as usize, body.len() - 5);
    String::from_utf8(body[5..].to_vec()).unwrap()
}

#[tokio::test]
async fn a_browser_that_speaks_grpc_web_is_refused_in_its_own_format() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("/a").await.unwrap();
    let layer = HttpLockLayer::new(locks, ByPath::new()).wait(Duration::ZERO).grpc();
    let service =
        service_fn(
            |_: Request<_>| async move { Ok::<_, Infallible>(Response::new(text("served"))) },
        );
    let address = serve(layer.layer(service)).await;
    let formats = [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpc-web-text+proto",
    ];
    for format in formats {
        let answer = get(address, "/a", &format!("content-type: {format}\r\n")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(format)));
        let body = match format.contains("text") {
            true => STANDARD.decode(&answer.body).unwrap(),
            false => answer.bytes.clone(),
        };
        let trailers = trailers(&body);
        assert!(trailers.starts_with("grpc-status:14\r\n"), "{trailers:?}");
        assert!(trailers.contains("\r\ngrpc-message:Another request"), "{trailers:?}");
        assert!(trailers.ends_with("\r\n"), "{trailers:?}");
    }
    let answer = get(address, "/a", "content-type: application/grpc+proto\r\n").await;
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert_eq!((answer.header("grpc-status"), answer.body.as_str()), (Some("14"), ""));
}

#[tokio::test]
async fn a_stack_of_tonic_can_be_built_with_the_extension() {
    let locks = Locks::in_memory();
    let key = |_: &Request<tonic::body::Body>| "all";
    let stack = ServiceBuilder::new().http_lock(locks, key).into_inner();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let _router = Server::builder().layer(stack).add_service(health);
}

fn authenticate(call: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    match call.metadata().contains_key("authorization") {
        true => Ok(call),
        false => Err(Status::unauthenticated("who are you?")),
    }
}

#[tokio::test]
async fn one_service_has_a_layer_and_an_interceptor_is_where_its_own_layer_is() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::ZERO).grpc();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let inside = InterceptedService::new(health.clone(), authenticate);
    let inside = client!(Server::builder().add_service(layer.named_layer(inside)));
    let mut outside = Server::builder().layer(InterceptorLayer::new(authenticate));
    let outside = client!(outside.add_service(layer.named_layer(health)));

    let known = || {
        let mut call = tonic::Request::new(question());
        call.metadata_mut().insert("authorization", "yes".parse().unwrap());
        call
    };
    for (mut client, first) in [(inside, Code::Unavailable), (outside, Code::Unauthenticated)] {
        let guard = locks.lock(METHOD).await.unwrap();
        assert_eq!(client.check(question()).await.unwrap_err().code(), first);
        assert_eq!(client.check(known()).await.unwrap_err().code(), Code::Unavailable);
        guard.release().await.unwrap();
        assert_eq!(client.check(question()).await.unwrap_err().code(), Code::Unauthenticated);
        client.check(known()).await.expect("served");
    }
}
