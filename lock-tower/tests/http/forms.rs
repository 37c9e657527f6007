//! Reads, exclusive locks and permits of two nodes on one Redis.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, Request, Response};
use lock_tests::RedisServer;
use lock_tests::http::text;
use lock_tower::{ByPath, ExtractKeyExt as _, HttpLockLayer};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};

/// The number of reads or writes inside the handler now, and the maximum so far.
#[derive(Default)]
struct Gauge {
    now: AtomicI64,
    most: AtomicI64,
}

impl Gauge {
    fn enter(&self) -> i64 {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        now
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn two_nodes(server: &RedisServer) -> [Locks; 2] {
    [Locks::connect(server.url()).await.unwrap(), Locks::connect(server.url()).await.unwrap()]
}

#[tokio::test]
async fn on_redis_reads_of_two_nodes_run_together_and_writes_alone() {
    let server = RedisServer::start();
    let nodes = two_nodes(&server).await;
    let gauges = Arc::new((Gauge::default(), Gauge::default()));
    let seen = Arc::clone(&gauges);
    let handler = service_fn(move |request: Request<_>| {
        let gauges = Arc::clone(&seen);
        async move {
            let (reads, writes) = &*gauges;
            let is_read = request.method() == Method::GET;
            let own = if is_read { reads } else { writes };
            own.enter();
            for _ in 0..20 {
                let reads = reads.now.load(Ordering::SeqCst);
                let writes = writes.now.load(Ordering::SeqCst);
                assert!(writes == 0 || (writes, reads) == (1, 0), "{reads} reads, {writes} writes");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            own.leave();
            Ok::<_, Infallible>(Response::new(text("served")))
        }
    });
    let services = nodes.map(|locks| {
        let layer = HttpLockLayer::new(locks, ByPath::new().read_on([Method::GET, Method::HEAD]));
        layer.wait(Duration::from_secs(60)).layer(handler.clone())
    });
    let calls = (0..60).map(|number| {
        let method = if number % 6 == 5 { Method::PUT } else { Method::GET };
        let request = Request::builder().method(method).uri("/doc").body(String::new()).unwrap();
        tokio::spawn(services[number % 2].clone().oneshot(request))
    });
    for answer in join_all(calls.collect::<Vec<_>>()).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    assert!(gauges.0.most.load(Ordering::SeqCst) > 1, "reads ran together");
    assert_eq!(gauges.1.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn on_redis_two_nodes_together_have_no_more_permits_than_the_limit() {
    let server = RedisServer::start();
    let nodes = two_nodes(&server).await;
    let gauge = Arc::new(Gauge::default());
    let seen = Arc::clone(&gauge);
    let handler = service_fn(move |_: Request<_>| {
        let gauge = Arc::clone(&seen);
        async move {
            assert!(gauge.enter() <= 3, "more than there are permits");
            tokio::time::sleep(Duration::from_millis(5)).await;
            gauge.leave();
            Ok::<_, Infallible>(Response::new(text("served")))
        }
    });
    let services = nodes.map(|locks| {
        let layer = HttpLockLayer::new(locks, ByPath::new().permits(1, 3));
        layer.wait(Duration::from_secs(60)).layer(handler.clone())
    });
    let calls = (0..60).map(|number| {
        let request = Request::builder().uri("/upstream").body(String::new()).unwrap();
        tokio::spawn(services[number % 2].clone().oneshot(request))
    });
    for answer in join_all(calls.collect::<Vec<_>>()).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    assert_eq!(gauge.most.load(Ordering::SeqCst), 3, "and no fewer");
}
