//! `fail_open`, on a real server: the errors in which requests are served without their lock, and
//! all other errors.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use lock_tests::http::{Answer, AnyBody, gate, get, serve, text};
use lock_tests::{Connections, Disk, Flow, Proxy, Raw, RedisServer, lock_key, queued};
use lock_tower::http::RequestBody;
use lock_tower::{ByHeader, DetachLayer, HttpLockLayer, LockHandle};
use lockcore::{LockErrorKind, Locks, MemoryStore};
use redis::cmd;
use tokio::time::Instant;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn};

const WAIT: Duration = Duration::from_millis(300);

/// Starts a server that locks the name in the header `x-order`, and responds whether the request
/// was served under its lock.
async fn start(locks: &Locks, wait: Duration) -> SocketAddr {
    let layer = HttpLockLayer::new(locks.clone(), ByHeader::new("x-order")).wait(wait);
    serve_with(layer.fail_open(true)).await
}

async fn serve_with(layer: HttpLockLayer<ByHeader>) -> SocketAddr {
    serve(layer.layer(service_fn(|request: Request<_>| async move {
        let is_locked = request.extensions().get::<LockHandle>().is_some();
        Ok::<_, Infallible>(Response::new(text(if is_locked { "locked" } else { "unlocked" })))
    })))
    .await
}

#[tokio::test]
async fn a_request_served_without_its_lock_has_no_handle_of_an_outer_layer_but_has_the_outer_lock()
{
    let store = MemoryStore::new();
    let away = Locks::builder().on_memory(&store).unwrap();
    store.refuse(Some(LockErrorKind::Unavailable));
    let locks = Locks::in_memory();
    let outer = HttpLockLayer::new(locks.clone(), |_: &Request<_>| "outer");
    let within = HttpLockLayer::new(locks, |_: &Request<_>| "outer").wait(Duration::ZERO);
    let handles = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handles);
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(HttpLockLayer::new(away, |_: &Request<_>| "inner").fail_open(true).wait(WAIT))
        .map_request(move |request: Request<RequestBody<RequestBody<AnyBody>>>| {
            let handle = request.extensions().get::<LockHandle>();
            counted.fetch_add(usize::from(handle.is_some()), Ordering::Relaxed);
            request
        })
        .layer(within)
        .service(service_fn(async |_: Request<_>| Ok::<_, Infallible>(Response::new(text("")))));
    let response = service.oneshot(Request::get("/").body(text("")).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "the outer layer's lock is shared");
    assert_eq!(handles.load(Ordering::Relaxed), 0);
}

async fn ask(address: SocketAddr, order: &str) -> Answer {
    get(address, "/", &format!("x-order: {order}\r\n")).await
}

#[tokio::test]
async fn a_request_served_without_its_lock_finishes_in_a_detach_layer_although_the_client_has_gone()
{
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).unwrap();
    store.refuse(Some(LockErrorKind::Unavailable));
    let (gate, mut keeper) = gate();
    let layer = HttpLockLayer::new(locks, ByHeader::new("x-order")).fail_open(true).wait(WAIT);
    let service = ServiceBuilder::new().layer(layer).layer(DetachLayer::new()).service(service_fn(
        move |request: Request<_>| {
            let gate = gate.clone();
            async move {
                assert!(request.extensions().get::<LockHandle>().is_none());
                gate.pass().await;
                Ok::<_, Infallible>(Response::new(text("")))
            }
        },
    ));
    let request = Request::get("/").header("x-order", "1").body(text("")).unwrap();
    keeper.abandon(Box::pin(service.oneshot(request))).await;
    keeper.finished().await;
}

#[tokio::test]
async fn a_lock_whose_key_another_program_has_written_is_not_served_without_the_lock() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();
    let address = start(&locks, WAIT).await;
    let lock_key = lock_key("session");
    raw.ask::<()>(cmd("SET").arg(&lock_key).arg("theirs")).await;
    let refused = ask(address, "session").await;
    assert_eq!(refused.status, 500, "{}", refused.body);
    assert!(refused.body.contains("lock-misconfigured"), "{}", refused.body);
    assert_eq!(refused.header("retry-after"), None, "trying again is no use");
    assert_eq!(raw.ask::<String>(cmd("GET").arg(&lock_key)).await, "theirs");
    assert_eq!(ask(address, "another").await.body, "locked");
}

#[tokio::test]
async fn a_server_that_is_slower_than_the_wait_opens_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let locks = Locks::connect(proxy.url()).await.unwrap();
    let address = start(&locks, WAIT).await;
    assert_eq!(ask(address, "1").await.body, "locked");
    proxy.freeze(Connections::Commands, Flow::Replies).await;
    // Sent while the client does not know about the outage yet: the connection is up, and the
    // request timeout ends only in two seconds.
    let asked = (0..4).map(|_| ask(address, "1"));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(
            (answer.status, answer.body.contains("lock-busy")),
            (423, true),
            "{}",
            answer.body
        );
    }
    proxy.thaw();
    assert_eq!(ask(address, "1").await.body, "locked");
}

#[tokio::test]
async fn a_server_that_is_silent_for_a_whole_request_timeout_opens_and_so_does_one_that_is_gone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let short = Locks::builder().request_timeout(Duration::from_millis(200));
    let locks = short.connect(proxy.url()).await.unwrap();
    let address = start(&locks, Duration::from_secs(1)).await;
    proxy.freeze(Connections::All, Flow::Both).await;
    assert_eq!(ask(address, "1").await.body, "unlocked");
    proxy.thaw();

    proxy.refuse().await;
    proxy.cut_all().await;
    assert_eq!(ask(address, "2").await.body, "unlocked");
}

/// The option `store_wait` in the tests below.
const STORE_WAIT: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_store_is_waited_for_once_and_then_requests_are_served_without_it_at_once() {
    let mut server = RedisServer::start();
    let short = Locks::builder().request_timeout(STORE_WAIT);
    let locks = short.connect(server.url()).await.unwrap();
    let address = start(&locks, Duration::from_secs(60)).await;
    let guard = locks.lock("held").await.unwrap();
    let waits = tokio::spawn(async move { ask(address, "held").await });
    queued(&locks, "held", 1).await;
    server.kill();

    let began = Instant::now();
    assert_eq!(ask(address, "1").await.body, "unlocked");
    assert!(began.elapsed() < 2 * STORE_WAIT, "{:?}", began.elapsed());
    assert_eq!(waits.await.unwrap().body, "unlocked", "the request that was queued");
    assert!(began.elapsed() < 3 * STORE_WAIT, "{:?}", began.elapsed());
    let mut times = Vec::new();
    for order in 0..9 {
        let began = Instant::now();
        assert_eq!(ask(address, &order.to_string()).await.body, "unlocked");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    assert!(times[4] < Duration::from_millis(50), "{times:?}");

    server.restart();
    let began = Instant::now();
    while ask(address, "1").await.body != "locked" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(began.elapsed() < Duration::from_secs(3), "the end of the outage is not found");
    }
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_served_without_the_lock_unless_its_layer_fails_open() {
    let mut server = RedisServer::start();
    let short = Locks::builder().request_timeout(STORE_WAIT);
    let locks = short.connect(server.url()).await.unwrap();
    let layer = HttpLockLayer::new(locks, ByHeader::new("x-order")).wait(Duration::from_secs(60));
    let address = serve_with(layer).await;
    let end = Instant::now() + Duration::from_secs(5);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..20 {
        clients.spawn(async move {
            let mut locked = 0;
            while Instant::now() < end {
                let answer = ask(address, &(client % 4).to_string()).await;
                match answer.status {
                    200 => assert_eq!(answer.body, "locked"),
                    _ => assert_eq!(answer.status, 503, "{}", answer.body),
                }
                locked += u32::from(answer.status == 200);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            locked
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart();
    let locked = clients.join_all().await;
    assert!(locked.iter().all(|locked| *locked > 10), "{locked:?}");
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn where_a_grant_waits_for_the_disk_no_request_is_served_without_the_lock() {
    let disk = Disk::new();
    let server = disk.options("always").start();
    let locks = Locks::builder().require_fsync(true).connect(server.url()).await.unwrap();
    let closed = HttpLockLayer::new(locks.clone(), ByHeader::new("x-order"));
    assert_eq!(ask(serve_with(closed).await, "42").await.body, "locked");
    let refused = ask(start(&locks, WAIT).await, "42").await;
    assert_eq!(refused.status, 500, "{}", refused.body);
    assert!(refused.body.contains("lock-misconfigured"), "{}", refused.body);
}
