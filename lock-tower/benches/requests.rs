//! The workload whose instructions `scripts/instructions --requests` counts: concurrent requests
//! from many tasks, on a single thread, to a router whose handler yields once, without a server or
//! a socket.
//!
//!     requests free|many|one TASKS REQUESTS
//!
//! `free` runs without the layer, `many` behind it with a separate path for each task, and `one`
//! behind it with the same path for all. The locks are in memory.
#![allow(missing_docs)]

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use lock_tower::{ByPath, HttpLockLayer};
use lockcore::Locks;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower::Service;

async fn request(app: &mut Router, path: &str) {
    let request = Request::get(path).body(Body::empty()).expect("a path");
    let response = app.call(request).await.expect("a router refuses nothing");
    assert_eq!(response.status(), StatusCode::OK);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, tasks, requests] = arguments.as_slice() else {
        // Cargo starts every bench once without arguments.
        return;
    };
    let [tasks, requests]: [u32; 2] =
        [tasks, requests].map(|number| number.parse().expect("a number"));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let handler = async || {
            tokio::task::yield_now().await;
            "done"
        };
        let free = Router::new().route("/orders/{id}", get(handler));
        let app = match what.as_str() {
            "free" => free,
            _ => free.layer(HttpLockLayer::new(Locks::in_memory(), ByPath::new())),
        };
        // As in `axum::serve`. Otherwise the layer is applied to its route once per request.
        let app = app.with_state(());
        let mut working = JoinSet::new();
        for task in 0..tasks {
            let mut app = app.clone();
            let order = if what == "one" { 42 } else { 1_000 + task };
            working.spawn(async move {
                let path = format!("/orders/{order}");
                for _ in 0..requests {
                    request(&mut app, &path).await;
                }
            });
        }
        while let Some(done) = working.join_next().await {
            done.expect("no task panics");
        }
    });
}
