//! Requests that lock names on several primaries of a Redis Cluster.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use lock_tests::http::text;
use lock_tests::{Clustered, free};
use lock_tower::{HttpLockLayer, Keys};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};

#[tokio::test]
async fn requests_of_two_nodes_that_lock_names_of_three_primaries_run_one_at_a_time() {
    let clustered = Clustered::steady().await;
    let names = [0, 1, 2].map(|primary| clustered.key_of(primary, 0));
    let inside = Arc::new(AtomicUsize::new(0));
    let handler = service_fn(move |_: Request<_>| {
        let inside = Arc::clone(&inside);
        async move {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "another one is inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Response::new(text("served")))
        }
    });
    let mut nodes = Vec::new();
    let mut calls = Vec::new();
    for first in 0..2 {
        let locks = Locks::connect(clustered.url()).await.unwrap();
        // Each client lists the names in a different order.
        let mut names = names.clone();
        names.rotate_left(first);
        let [one, two, three] = names;
        let keys = Keys::one(one).and(two).and(three);
        let of = move |_: &Request<String>| keys.clone();
        let layer = HttpLockLayer::new(locks.clone(), of).wait(Duration::from_secs(60));
        let service = layer.layer(handler.clone());
        calls.extend(
            (0..20).map(|_| tokio::spawn(service.clone().oneshot(Request::new(String::new())))),
        );
        nodes.push(locks);
    }
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().unwrap().status(), 200);
    }
    for name in &names {
        free(&nodes[0], name).await;
    }
}
