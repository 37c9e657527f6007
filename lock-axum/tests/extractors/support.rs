//! The lock keys of the tests, and functions that send requests to a router.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request};
use axum::response::Response;
use http::HeaderMap;
use lock_axum::{Cause, KeyError, Keys, Lockable};
use lock_tests::LIMIT;
use lock_tests::http::listen;
use lock_tower::LockError;
use serde::Deserialize;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// An order, locked as `order:{id}`. An id that is not a number is refused with 400.
#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
}

pub(crate) type ByOrder = Path<Order>;

impl Lockable for Order {
    fn lock_key(&self) -> Keys {
        match self.id {
            400 => Keys::refused(KeyError::new("there is no order 400")),
            id => format!("order:{id}").into(),
        }
    }
}

pub(crate) fn get(path: &str) -> Request {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request {
    Request::post(path).header("content-type", "application/json").body(body.into()).unwrap()
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The cause of a refusal, from the response's extensions. `None` if the response came over a
    /// socket.
    pub(crate) cause: Option<Cause>,
    pub(crate) body: String,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Self {
            status: parts.status.as_u16(),
            cause: parts.extensions.get().map(LockError::cause),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Calls the router without a socket, and returns the response.
pub(crate) async fn ask(app: &Router, request: Request) -> Answer {
    let answer = async { Answer::read(app.clone().oneshot(request).await.unwrap()).await };
    tokio::time::timeout(LIMIT, answer).await.expect("the router answers")
}

/// Calls the router in a separate task. Aborting the task drops the request.
pub(crate) fn send(app: &Router, request: Request) -> JoinHandle<Answer> {
    let app = app.clone();
    tokio::spawn(async move { ask(&app, request).await })
}

/// Serves the router on a new port, until the test's runtime ends, and returns the address.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends the same request to the router directly and over a socket, and returns both responses.
pub(crate) async fn both(app: &Router, request: impl Fn() -> Request) -> [Answer; 2] {
    let direct = ask(app, request()).await;
    let address = serve(app.clone()).await;
    let (parts, body) = request().into_parts();
    let url = format!("http://{address}{}", parts.uri);
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = client.request(parts.method, url).headers(parts.headers).body(body).send();
    let response = tokio::time::timeout(LIMIT, sent).await.expect("the server answers").unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let over_socket = Answer { status, headers, cause: None, body: response.text().await.unwrap() };
    [direct, over_socket]
}
