//! `Relay`: a relay to a server where each reply arrives a fixed time after its request.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

pub(crate) struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr, trip: Duration) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        let listener = TcpListener::from_std(listener).expect("a socket");
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).expect("a socket");
                }
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, Duration::ZERO));
                tokio::spawn(pass(from_server, to_client, trip));
            }
        });
        Self { address, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes everything on after a delay.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, later: Duration) {
    let (sender, mut parts) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, part)) = parts.recv().await {
            sleep_until(at).await;
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + later, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}
