//! `HttpLockLayer::permits`: a limit of concurrent requests per key, until the end of the body.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use lock_tests::http::{Client, Pieces, get, piece, serve, streamed, text};
use lock_tests::{LIMIT, eventually};
use lock_tower::{ByPath, ExtractKeyExt as _, HttpLockLayer, ServiceBuilderExt as _};
use lockcore::Locks;
use tokio::sync::mpsc;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt as _, service_fn};

/// Starts a server that responds with streams, and passes each stream's sender to the test.
macro_rules! streaming {
    ($layer:expr) => {{
        let (streams, started) = mpsc::unbounded_channel::<Pieces>();
        let service = $layer.layer(service_fn(move |_: Request<_>| {
            let (pieces, body) = streamed();
            streams.send(pieces).unwrap();
            async move { Ok::<_, BoxError>(Response::new(body)) }
        }));
        (serve(service).await, started)
    }};
}

/// Begins a request. Returns the client, and the sender of the response's pieces.
async fn begin(
    address: SocketAddr,
    path: &str,
    started: &mut mpsc::UnboundedReceiver<Pieces>,
) -> (Client, Pieces) {
    let mut client = Client::send(address, &format!("GET {path}"), "").await;
    let pieces = tokio::time::timeout(LIMIT, started.recv()).await.expect("it is served").unwrap();
    pieces.send(piece("first")).unwrap();
    client.until("first").await;
    (client, pieces)
}

async fn held(locks: &Locks, key: &str) -> usize {
    locks.inspect(key).await.unwrap().holders.len()
}

#[tokio::test]
async fn a_permit_is_held_until_the_end_of_the_body_and_others_get_429_past_their_wait() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::permits(locks.clone(), ByPath::new(), 2);
    let (address, mut started) = streaming!(layer.wait(Duration::from_millis(50)));
    let one = begin(address, "/a", &mut started).await;
    let two = begin(address, "/a", &mut started).await;
    assert_eq!(held(&locks, "/a").await, 2, "both heads are out");

    let refused = get(address, "/a", "").await;
    assert_eq!(refused.status, 429, "{}", refused.head);
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&after), "{after} s");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains(r#""code":"lock-limit-reached""#), "{}", refused.body);
    let other = begin(address, "/b", &mut started).await; // another key
    drop(other);

    let (client, pieces) = one;
    drop(pieces); // the body ends
    client.answer().await;
    assert_eq!(held(&locks, "/a").await, 1, "released before the end was sent");
    let three = begin(address, "/a", &mut started).await;
    drop((two, three)); // disconnecting clients release as well
    eventually("all are back", LIMIT, async || held(&locks, "/a").await == 0).await;
}

#[tokio::test]
async fn requests_beyond_the_limit_wait_in_order_of_arrival() {
    let locks = Locks::in_memory();
    let (streams, mut started) = mpsc::unbounded_channel();
    let service = ServiceBuilder::new().http_permit(locks.clone(), ByPath::new(), 1).service(
        service_fn(move |request: Request<_>| {
            let number = request.headers()["x-number"].to_str().unwrap().to_owned();
            let (pieces, body) = streamed();
            streams.send((number, pieces)).unwrap();
            async move { Ok::<_, BoxError>(Response::new(body)) }
        }),
    );
    let address = serve(service).await;
    let mut clients = Vec::new();
    for number in 0..4 {
        let header = format!("x-number: {number}\r\n");
        clients.push(Client::send(address, "GET /a", &header).await);
        eventually("it holds or waits", LIMIT, async || {
            let seen = locks.inspect("/a").await.unwrap();
            seen.holders.len() + seen.waiters.len() == number + 1
        })
        .await;
    }
    for number in 0..4 {
        let (served, pieces) = started.recv().await.unwrap();
        assert_eq!(served, number.to_string());
        assert!(started.try_recv().is_err(), "one at a time");
        drop(pieces);
    }
    for client in clients {
        assert_eq!(client.answer().await.status, 200);
    }
}

#[tokio::test]
async fn a_closure_reads_the_limit_from_the_request() {
    let locks = Locks::in_memory();
    let limit = |request: &Request<String>| request.headers()["x-plan"].len() as u32;
    let layer = HttpLockLayer::permits(locks.clone(), |_: &Request<String>| "tenant", limit);
    let service = layer.wait(Duration::ZERO).layer(service_fn(|_: Request<_>| async {
        Ok::<_, Infallible>(Response::new(text("served")))
    }));
    let call = |plan: &str| {
        let request = Request::builder().header("x-plan", plan).body(String::new()).unwrap();
        service.clone().oneshot(request)
    };
    let one = call("three").await.unwrap(); // one of five: their bodies are not read yet
    let two = call("three").await.unwrap();
    assert_eq!([one.status(), two.status()], [200, 200]);
    assert_eq!(call("xx").await.unwrap().status(), 429, "two of two are taken");
    assert_eq!(call("xxx").await.unwrap().status(), 200, "of three there is one");
    drop((one, two));
    assert_eq!(call("").await.unwrap().status(), 500, "no limit");
}

#[tokio::test]
async fn a_permit_can_end_with_the_response() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new().permits(1, 1));
    let (address, mut started) = streaming!(layer.wait(Duration::ZERO));
    let one = begin(address, "/a", &mut started).await;
    assert_eq!(held(&locks, "/a").await, 0);
    let two = begin(address, "/a", &mut started).await;
    drop((one, two));
}

#[tokio::test]
async fn a_refused_permit_is_resource_exhausted_in_grpc() {
    let locks = Locks::in_memory();
    let _all = locks.key("/a").permits(3, 3).await.unwrap();
    let layer = HttpLockLayer::permits(locks.clone(), ByPath::new(), 3).wait(Duration::ZERO).grpc();
    let service = layer.layer(service_fn(|_: Request<_>| async {
        Ok::<_, Infallible>(Response::new(text("served")))
    }));
    let request = Request::builder().uri("/a").header("content-type", "application/grpc");
    let response = service.oneshot(request.body(String::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("grpc-status"), header("lock-code")),
        ("8".into(), "lock-limit-reached".into())
    );
    let hint: u64 = header("grpc-retry-pushback-ms").parse().unwrap();
    assert!((1_000..=2_000).contains(&hint), "{hint} ms");
}

#[tokio::test]
async fn a_refused_read_or_write_is_423_as_a_lock_is() {
    let locks = Locks::in_memory();
    let _write = locks.write("/a").await.unwrap();
    let key = ByPath::new().read_on([http::Method::GET]);
    let layer = HttpLockLayer::new(locks.clone(), key).wait(Duration::ZERO);
    let service = layer.layer(service_fn(|_: Request<_>| async {
        Ok::<_, Infallible>(Response::new(text("served")))
    }));
    for method in ["GET", "PUT"] {
        let request = Request::builder().method(method).uri("/a").body(String::new()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 423, "{method}");
    }
}
