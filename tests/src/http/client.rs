//! An HTTP/1 client that sees every byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::LIMIT;

/// A connection, which is closed on drop.
#[derive(Debug)]
pub struct Client {
    /// The stream, for tests that read or write by hand.
    pub stream: TcpStream,
}

/// The bytes sent by a server until it closed the connection.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status; 0 if there is no head.
    pub status: u16,
    /// The head in lower case.
    pub head: String,
    /// The body as text.
    pub body: String,
    /// The body as received.
    pub bytes: Vec<u8>,
}

impl Client {
    /// Opens a connection without sending anything.
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("the server listens") }
    }

    /// Opens a connection and sends its only request: `request` is method and path, `headers` are
    /// lines with their ends.
    pub async fn send(address: SocketAddr, request: &str, headers: &str) -> Self {
        let mut client = Self::connect(address).await;
        let head = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        client.write(&head).await;
        client
    }

    /// Sends this text as it is.
    pub async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("the server takes it");
    }

    /// Sends a piece of a chunked body.
    pub async fn chunk(&mut self, text: &str) {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    /// Ends a chunked body.
    pub async fn end_chunks(&mut self) {
        self.write("0\r\n\r\n").await;
    }

    /// Reads until the server closes the connection.
    pub async fn answer(mut self) -> Answer {
        let mut bytes = Vec::new();
        let read = timeout(LIMIT, self.stream.read_to_end(&mut bytes)).await;
        let _ = read.expect("the server answers"); // a reset ends it too
        Answer::parse(&bytes)
    }

    /// Reads up to and including `end`.
    pub async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&bytes).contains(end) {
                let count = self.stream.read_buf(&mut bytes).await.expect("no reset");
                assert!(count > 0, "closed before {end:?}: {}", String::from_utf8_lossy(&bytes));
            }
        };
        timeout(LIMIT, read).await.expect("the server sends it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Answer {
    /// Parses a response from all bytes of a connection.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let whole = end.map(|end| bytes[end + 4..].to_vec()).unwrap_or_default();
        Self { status, head: head.to_lowercase(), body: body.to_owned(), bytes: whole }
    }

    /// Returns the value of the header with this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

/// Sends a GET with these headers, which are lines with their ends; returns the response.
pub async fn get(address: SocketAddr, path: &str, headers: &str) -> Answer {
    Client::send(address, &format!("GET {path}"), headers).await.answer().await
}
