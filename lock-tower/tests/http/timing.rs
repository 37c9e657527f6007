//! `server_timing`: the response header `Server-Timing`.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use lock_tests::http::{Client, get, serve, text};
use lock_tests::queued;
use lock_tower::{ByPath, HttpLockLayer};
use lockcore::Locks;
use tower::{Layer as _, service_fn};

#[tokio::test]
async fn the_wait_is_told_where_it_was_asked_for() {
    for is_wanted in [false, true] {
        let locks = Locks::in_memory();
        let layer = HttpLockLayer::new(locks.clone(), ByPath::new());
        let layer = layer.server_timing(is_wanted);
        let service = layer.layer(service_fn(|_: Request<_>| async move {
            let response = Response::builder().header("server-timing", "db;dur=1");
            Ok::<_, Infallible>(response.body(text("served")).unwrap())
        }));
        let address = serve(service).await;
        let guard = locks.lock("/a").await.unwrap();
        let client = Client::send(address, "GET /a", "").await;
        queued(&locks, "/a", 1).await;
        tokio::time::sleep(Duration::from_millis(20)).await; // the reported wait
        drop(guard);
        let answer = client.answer().await;
        assert!(answer.head.contains("db;dur=1"), "the handler's own stays");
        let timing = answer.head.split("lock;dur=").nth(1).map(|rest| rest.lines().next().unwrap());
        let (wait_ms, position) = timing.and_then(|timing| timing.split_once(", ")).unzip();
        assert_eq!(position, is_wanted.then_some("lock-queue;desc=0"));
        let wait_ms = wait_ms.map(|ms| ms.parse::<f64>().unwrap());
        assert_eq!(wait_ms.is_some(), is_wanted);
        assert!(wait_ms.is_none_or(|ms| ms >= 20.0), "{wait_ms:?}");
        if is_wanted {
            let refusal = get(address, "//", "").await.head;
            assert!(refusal.contains("lock;dur="), "also a refusal's");
            assert!(!refusal.contains("lock-queue"), "it was not queued");
        }
    }
}
