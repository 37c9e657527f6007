//! A server on a socket, a client that sees every byte, and a handler that waits to be let on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use lock_tests::eventually;
use lockcore::Locks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tower::{BoxError, Service};

/// Generous: a machine that compiles next to the tests is slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) fn text(text: &'static str) -> AnyBody {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(Into::into).boxed_unsync()
}

/// Serves HTTP/1 on a port of its own, until the test's runtime ends.
pub(crate) async fn serve<S, R>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

/// A connection on which one request was sent.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
    /// The body as it came.
    pub(crate) bytes: Vec<u8>,
}

impl Client {
    /// `request` is method and path, `headers` are lines with their ends.
    pub(crate) async fn send(address: SocketAddr, request: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Self { stream }
    }

    /// Reads until the server closes.
    pub(crate) async fn answer(mut self) -> Answer {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(LIMIT, self.stream.read_to_end(&mut bytes)).await;
        let _ = read.expect("the server answers"); // a reset ends it too
        Answer::parse(&bytes)
    }

    /// Reads until `end` has come.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&bytes).contains(end) {
                assert!(self.stream.read_buf(&mut bytes).await.unwrap() > 0, "{bytes:?}");
            }
        };
        tokio::time::timeout(LIMIT, read).await.expect("the server sends it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let whole = end.map(|end| bytes[end + 4..].to_vec()).unwrap_or_default();
        Self { status, head: head.to_lowercase(), body: body.to_owned(), bytes: whole }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str, headers: &str) -> Answer {
    Client::send(address, &format!("GET {path}"), headers).await.answer().await
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
        tokio::time::timeout(LIMIT, self.entered.recv()).await.expect("a handler runs");
    }

    pub(crate) async fn finished(&mut self) {
        tokio::time::timeout(LIMIT, self.finished.recv()).await.expect("a handler finishes");
    }

    pub(crate) fn let_one_on(&self) {
        self.open.add_permits(1);
    }

    pub(crate) fn has_finished(&mut self) -> bool {
        self.finished.try_recv().is_ok()
    }
}

pub(crate) async fn queued(locks: &Locks, key: &str, count: usize) {
    eventually("the queue has this length", LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

pub(crate) async fn free(locks: &Locks, key: &str) {
    eventually("the lock is free", LIMIT, async || {
        locks.inspect(key).await.unwrap().holder.is_none()
    })
    .await;
}
