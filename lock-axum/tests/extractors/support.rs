//! Keys, clients, and handlers that wait to be let on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request};
use axum::response::Response;
use http::HeaderMap;
use lock_axum::{Cause, KeyError, Keys, Lockable, Locks};
use lock_tests::eventually;
use lock_tower::LockError;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// Generous: a machine that compiles next to the tests is slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// `order:{id}`; 400 is no good number.
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
    /// What rides in the extensions; none over a socket.
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

/// Calls the router, without a socket.
pub(crate) async fn ask(app: &Router, request: Request) -> Answer {
    let answer = async { Answer::read(app.clone().oneshot(request).await.unwrap()).await };
    tokio::time::timeout(LIMIT, answer).await.expect("the router answers")
}

/// The same from a task of its own, which drops the request when it is aborted.
pub(crate) fn send(app: &Router, request: Request) -> JoinHandle<Answer> {
    let app = app.clone();
    tokio::spawn(async move { ask(&app, request).await })
}

/// Serves on a port of its own, until the test's runtime ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The same request called directly and over a socket.
pub(crate) async fn both(app: &Router, request: impl Fn() -> Request) -> [Answer; 2] {
    let direct = ask(app, request()).await;
    let address = serve(app.clone()).await;
    let (parts, body) = request().into_parts();
    let url = format!("http://{address}{}", parts.uri);
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = client.request(parts.method, url).headers(parts.headers).body(body).send();
    let response = tokio::time::timeout(LIMIT, sent).await.expect("the server answers").unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let over_socket = Answer { status, headers, cause: None, body: response.text().await.unwrap() };
    [direct, over_socket]
}

/// A connection by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    /// `request` is method and path, `rest` the headers with their ends, and what is sent of the body.
    pub(crate) async fn send(address: SocketAddr, request: &str, rest: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("{request} HTTP/1.1\r\nhost: x\r\n{rest}");
        stream.write_all(text.as_bytes()).await.unwrap();
        Self { stream }
    }

    pub(crate) async fn get(address: SocketAddr, path: &str) -> Self {
        Self::send(address, &format!("GET {path}"), "\r\n").await
    }

    pub(crate) async fn chunk(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.stream.write_all(chunk.as_bytes()).await.unwrap();
    }

    /// The last chunk.
    pub(crate) async fn stream_end(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").await.unwrap();
    }

    /// Reads until `end` has come.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&bytes).contains(end) {
                let count = self.stream.read_buf(&mut bytes).await.unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
            }
        };
        tokio::time::timeout(LIMIT, read).await.expect("the server sends it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Lets handlers tell that they run, and go on when they may.
#[derive(Clone)]
pub(crate) struct Gate {
    entered: mpsc::UnboundedSender<()>,
    finished: mpsc::UnboundedSender<()>,
    open: Arc<Semaphore>,
}

pub(crate) struct Keeper {
    entered: mpsc::UnboundedReceiver<()>,
    finished: mpsc::UnboundedReceiver<()>,
    open: Arc<Semaphore>,
}

pub(crate) fn gate() -> (Gate, Keeper) {
    let open = Arc::new(Semaphore::new(0));
    let (entered, is_entered) = mpsc::unbounded_channel();
    let (finished, is_finished) = mpsc::unbounded_channel();
    let keeper = Keeper { entered: is_entered, finished: is_finished, open: Arc::clone(&open) };
    (Gate { entered, finished, open }, keeper)
}

impl Gate {
    pub(crate) async fn pass(&self) {
        let _ = self.entered.send(());
        self.open.acquire().await.unwrap().forget();
        let _ = self.finished.send(());
    }
}

impl Keeper {
    pub(crate) async fn entered(&mut self) {
        tokio::time::timeout(LIMIT, self.entered.recv()).await.expect("a handler runs").unwrap();
    }

    pub(crate) async fn finished(&mut self) {
        let finished = tokio::time::timeout(LIMIT, self.finished.recv()).await;
        finished.expect("a handler finishes").unwrap();
    }

    /// Nobody has come in that was not told of.
    pub(crate) fn is_alone(&mut self) -> bool {
        self.entered.try_recv().is_err()
    }

    pub(crate) fn has_finished(&mut self) -> bool {
        self.finished.try_recv().is_ok()
    }

    pub(crate) fn let_one_on(&self) {
        self.open.add_permits(1);
    }
}

pub(crate) async fn is_held(locks: &Locks, key: &str) -> bool {
    locks.inspect(key).await.unwrap().holder.is_some()
}

pub(crate) async fn queued(locks: &Locks, key: &str, count: usize) {
    eventually("the queue has this length", LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

pub(crate) async fn free(locks: &Locks, key: &str) {
    eventually("the lock is free", LIMIT, async || {
        let inspection = locks.inspect(key).await.unwrap();
        inspection.holder.is_none() && inspection.waiters.is_empty()
    })
    .await;
}
