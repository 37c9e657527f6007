//! Every row in the table of refusals, over a socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use hyper::body::Incoming;
use lock_tests::http::{Answer, AnyBody, Client, gate, get, serve, text};
use lock_tests::{LIMIT, eventually, is_held, queued};
use lock_tower::{ByExtension, ByHeader, ByPath, ExtractKeyExt as _, HttpLockLayer};
use lockcore::{LockErrorKind, Locks, MemoryStore};
use tower::{Layer as _, ServiceExt as _, service_fn};

async fn start<K>(layer: HttpLockLayer<K>) -> SocketAddr
where
    K: lock_tower::ExtractKey<Request<Incoming>> + Send + Sync + 'static,
{
    serve(layer.layer(service_fn(|_: Request<_>| async move {
        Ok::<_, Infallible>(Response::new(text("served")))
    })))
    .await
}

/// Checks the parts of a response that all refusals have.
fn check(answer: &Answer, status: u16, code: &str, retries: bool) {
    assert_eq!(answer.status, status, "{}", answer.head);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(answer.body.contains(&format!(r#""status":{status},"#)), "{}", answer.body);
    assert!(answer.body.ends_with(&format!(r#""code":"{code}"}}"#)), "{}", answer.body);
    // What only the developer understands, and the key.
    for unsaid in ["secret", "ByPath", "hash", "lock's", "extension"] {
        assert!(!answer.body.contains(unsaid), "{unsaid}: {}", answer.body);
    }
    let after = answer.header("retry-after").map(|after| after.parse::<u64>().unwrap());
    assert_eq!(after.is_some(), retries, "{}", answer.head);
    assert!(after.is_none_or(|after| (1..=4).contains(&after)), "{after:?}");
}

#[tokio::test]
async fn a_request_with_the_lock_is_served() {
    let answer = get(start(HttpLockLayer::new(Locks::in_memory(), ByPath::new())).await, "/a", "");
    let answer = answer.await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "served"));
    assert_eq!(answer.header("content-length"), Some("6"));
}

#[tokio::test]
async fn a_lock_that_is_lost_before_the_inner_service_is_ready_is_503() {
    let locks = Locks::in_memory();
    let (inner, mut handle) = tower_test::mock::pair::<Request<_>, Response<AnyBody>>();
    handle.allow(0);
    let service = HttpLockLayer::new(locks.clone(), ByPath::new()).layer(inner);
    let request = Request::get("/secret").body(text("")).unwrap();
    let answer = tokio::spawn(service.oneshot(request));
    eventually("the lock is held", LIMIT, async || is_held(&locks, "/secret").await).await;
    locks.force_release("/secret").await.unwrap();
    assert_eq!(answer.await.unwrap().unwrap().status(), 503);
    assert!(handle.next_request().now_or_never().flatten().is_none(), "the handler was called");
}

#[tokio::test]
async fn busy_is_423_without_waiting() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::ZERO);
    let address = start(layer).await;
    let _guard = locks.lock("/secret").await.unwrap();
    check(&get(address, "/secret", "").await, 423, "lock-busy", true);
}

#[tokio::test]
async fn waited_too_long_is_423() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::from_millis(50));
    let address = start(layer).await;
    let _guard = locks.lock("/secret").await.unwrap();
    check(&get(address, "/secret", "").await, 423, "lock-busy", true);
    queued(&locks, "/secret", 0).await;
}

#[tokio::test]
async fn a_full_queue_is_429() {
    let locks = Locks::in_memory();
    let address = start(HttpLockLayer::new(locks.clone(), ByPath::new()).queue_limit(1)).await;
    let _guard = locks.lock("/secret").await.unwrap();
    let _waiting = Client::send(address, "GET /secret", "").await;
    queued(&locks, "/secret", 1).await;
    check(&get(address, "/secret", "").await, 429, "lock-queue-full", true);
}

#[tokio::test]
async fn an_unreachable_store_is_503() {
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).unwrap();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::from_millis(50));
    let address = start(layer).await;
    store.refuse(Some(LockErrorKind::Unavailable));
    check(&get(address, "/secret", "").await, 503, "lock-unavailable", true);
    store.refuse(Some(LockErrorKind::Denied)); // a retry is useless
    check(&get(address, "/secret", "").await, 503, "lock-unavailable", false);
    store.refuse(None);
    locks.shutdown(Duration::ZERO).await;
    check(&get(address, "/secret", "").await, 503, "lock-unavailable", true);
}

#[tokio::test]
async fn a_hold_lost_once_the_handler_has_begun_is_500_and_not_the_503_that_gateways_repeat() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let service =
        HttpLockLayer::new(locks.clone(), ByPath::new()).layer(service_fn(move |_: Request<_>| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    let client = Client::send(serve(service).await, "GET /secret", "").await;
    keeper.entered().await;
    locks.force_release("/secret").await.unwrap();
    check(&client.answer().await, 500, "lock-lost", false);
}

#[tokio::test]
async fn a_bad_key_is_400_and_leaves_nothing_behind() {
    let locks = Locks::in_memory();
    let address = start(HttpLockLayer::new(locks.clone(), ByHeader::new("x-order"))).await;
    let huge = format!("x-order: {}\r\n", "secret".repeat(100));
    let headers =
        ["", &huge, "x-order: \u{e4}\r\n", "x-order: \r\n", "x-order: 1\r\nx-order: 2\r\n"];
    for headers in headers {
        check(&get(address, "/", headers).await, 400, "lock-key-invalid", false);
    }
    // Once, all requests with an empty value had the key `order:`.
    let prefixed = ByHeader::new("x-order").prefix("order").prefix("shop");
    let address = start(HttpLockLayer::new(locks.clone(), prefixed)).await;
    for headers in headers {
        check(&get(address, "/", headers).await, 400, "lock-key-invalid", false);
    }
    let address = start(HttpLockLayer::new(locks.clone(), ByPath::new())).await;
    let huge = format!("/{}", "secret/x".repeat(100));
    for path in [&huge, "/secret%ff", "/secret%0a", "/a/../secret", "//secret", "/secret%4"] {
        check(&get(address, path, "").await, 400, "lock-key-invalid", false);
    }
    check(&get(address, "/orders/07", "").await, 400, "lock-key-spelling", false);
    let by_user = ByExtension::new(|user: &u64| user.to_string());
    let address = start(HttpLockLayer::new(locks.clone(), by_user)).await;
    check(&get(address, "/", "").await, 400, "lock-key-invalid", false);
    let status = locks.status();
    assert_eq!((status.waiting, status.holding, status.releasing), (0, 0, 0));
}

#[tokio::test]
async fn a_missing_header_passes_where_it_is_optional() {
    let layer = HttpLockLayer::new(Locks::in_memory(), ByHeader::new("x-order").optional());
    assert_eq!(get(start(layer).await, "/", "").await.status, 200);
}

#[tokio::test]
async fn a_server_set_up_wrongly_is_500() {
    let layer = HttpLockLayer::new(Locks::in_memory(), ByPath::new()).lease(Duration::ZERO);
    check(&get(start(layer).await, "/secret", "").await, 500, "lock-misconfigured", false);
}

#[tokio::test]
async fn two_spellings_of_one_path_meet_in_one_queue() {
    let locks = Locks::in_memory();
    let address =
        start(HttpLockLayer::new(locks.clone(), ByPath::new()).wait(Duration::ZERO)).await;
    let _guard = locks.lock("/orders/42").await.unwrap();
    for path in ["/orders/42", "/orders/4%32", "/%6frders/42/", "/orders/42?x=1"] {
        assert_eq!(get(address, path, "").await.status, 423, "{path}");
    }
    assert_eq!(get(address, "/orders/43", "").await.status, 200);
}
