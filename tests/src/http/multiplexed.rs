//! An HTTP/2 client: many requests on one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::BoxError;

use crate::LIMIT;
use crate::http::AnyBody;

/// An HTTP/2 connection. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Multiplexed {
    sender: SendRequest<AnyBody>,
    address: SocketAddr,
}

impl Multiplexed {
    /// Opens a connection to this server.
    pub async fn connect(address: SocketAddr) -> Self {
        Self { sender: Self::sender(address).await, address }
    }

    /// Opens a connection for requests with bodies of any one kind.
    pub async fn sender<B>(address: SocketAddr) -> SendRequest<B>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let shaken = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.expect("the server speaks HTTP/2");
        tokio::spawn(connection);
        sender
    }

    /// Sends a POST; returns the status and the body of the response.
    pub async fn post(&self, path: &str, body: AnyBody) -> (u16, String) {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::post(uri).body(body).expect("a path");
        let asked = async {
            let response = self.sender.clone().send_request(request).await.expect("an answer");
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            (parts.status.as_u16(), String::from_utf8(body.to_vec()).expect("text"))
        };
        timeout(LIMIT, asked).await.expect("an answer in time")
    }
}
