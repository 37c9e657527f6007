//! `FakeServer`: speaks just enough of the Redis protocol to send replies that a real server cannot
//! be made to send.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A server that replies to every command with the raw reply from `answer`.
#[derive(Debug)]
pub struct FakeServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

type Answer = dyn Fn(&[String]) -> String + Send + Sync;

impl FakeServer {
    /// Starts on a free loopback port. `answer` receives the words of each command.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        Self::start_slow(Duration::ZERO, answer).await
    }

    /// Starts as in [`start`](Self::start), with a delay before each reply.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start_slow(
        pause: Duration,
        answer: impl Fn(&[String]) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let answer: Arc<Answer> = Arc::new(answer);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, Arc::clone(&answer), pause));
            }
        });
        Self { address, accepting }
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL, with a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:hunter2@{}/", self.address)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(client: TcpStream, answer: Arc<Answer>, pause: Duration) {
    let mut client = BufReader::new(client);
    while let Some(request) = read(&mut client).await {
        tokio::time::sleep(pause).await;
        if client.get_mut().write_all(answer(&request).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads an array of bulk strings, as sent by clients.
async fn read(client: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let count = number(client, '*').await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut bytes = vec![0; number(client, '$').await? + 2];
        client.read_exact(&mut bytes).await.ok()?;
        words.push(String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned());
    }
    Some(words)
}

async fn number(client: &mut BufReader<TcpStream>, sigil: char) -> Option<usize> {
    let mut line = String::new();
    client.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(sigil)?.parse().ok()
}
