//! A router with a dashboard at `/admin/locks`, and requests to it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use http_body_util::BodyExt as _;
use lock_dashboard::Dashboard;
use lock_tests::eventually;
use lockcore::{LockError, LockGuard, Locks};
use serde_json::Value;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Pages(Router);

impl Pages {
    pub(crate) fn of(locks: &Locks) -> Self {
        Self::with(Dashboard::new(locks.clone()))
    }

    pub(crate) fn with(dashboard: Dashboard) -> Self {
        Self(Router::new().nest_service("/admin/locks", dashboard.into_router()))
    }

    pub(crate) async fn ask(&self, request: Request) -> Response {
        self.0.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str, accept: &str) -> Response {
        let request = Request::get(format!("/admin/locks/{path}")).header("accept", accept);
        self.ask(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn html(&self, path: &str) -> String {
        let (status, text) = read(self.get(path, "text/html,*/*;q=0.8").await).await;
        assert_eq!(status, 200, "{text}");
        text
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let (status, text) = read(self.get(path, "application/json").await).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

pub(crate) async fn read(response: Response) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Starts a wait for this key, and returns when the waiter is the last in a queue of `length`.
pub(crate) async fn wait(
    locks: &Locks,
    key: &str,
    label: &str,
    length: u64,
) -> JoinHandle<Result<LockGuard, LockError>> {
    let waiting = tokio::spawn(locks.key(key).label(label).lock());
    eventually("it waits", SOON, async || {
        locks.inspect_part(key, 0, 1).await.unwrap().waiting == length
    })
    .await;
    waiting
}
