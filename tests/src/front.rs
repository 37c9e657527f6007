//! `Front`: a server where each new connection costs time, like a TLS server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Accepts connections in front of a server and processes them one after the other, including those
/// whose clients have given up: the front notices that only after the work.
///
/// It runs on the runtime that started it, and ends on drop.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    server: watch::Sender<SocketAddr>,
    cost_us: Arc<AtomicU64>,
    in_line: Arc<AtomicUsize>,
    cuts: watch::Sender<()>,
    _tasks: JoinSet<()>,
}

impl Front {
    /// Starts a front without any cost.
    ///
    /// # Panics
    ///
    /// If the front cannot listen.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let (cost_us, in_line) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let cuts = watch::Sender::new(());
        let server = watch::Sender::new(server);
        let (line, mut next) = mpsc::unbounded_channel::<TcpStream>();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let in_line = Arc::clone(&in_line);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    in_line.fetch_add(1, Ordering::Relaxed);
                    let _ = line.send(client); // received for as long as this runs
                }
            }
        });
        tasks.spawn({
            let (cost_us, in_line) = (Arc::clone(&cost_us), Arc::clone(&in_line));
            let (server, cuts) = (server.subscribe(), cuts.subscribe());
            async move {
                let mut served = JoinSet::new();
                while let Some(client) = next.recv().await {
                    sleep(Duration::from_micros(cost_us.load(Ordering::Relaxed))).await;
                    in_line.fetch_sub(1, Ordering::Relaxed);
                    let server = *server.borrow();
                    served.spawn(serve(client, server, cuts.clone()));
                    while served.try_join_next().is_some() {}
                }
            }
        });
        Self { address, server, cost_us, in_line, cuts, _tasks: tasks }
    }

    /// Returns the address to which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the front's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Returns the same URL with a database, so that the login of a connection has a reply to wait
    /// for.
    #[must_use]
    pub fn url_with_login(&self) -> String {
        format!("redis://{}/1", self.address)
    }

    /// Makes each new connection take this long from now on.
    pub fn costs(&self, each: Duration) {
        self.cost_us.store(each.as_micros() as u64, Ordering::Relaxed);
    }

    /// Makes new connections lead to another server from now on, like a changed host name.
    pub fn leads_to(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }

    /// Cuts all established connections.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// Returns the number of connections that the front has not processed yet.
    #[must_use]
    pub fn in_line(&self) -> usize {
        self.in_line.load(Ordering::Relaxed)
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, mut cuts: watch::Receiver<()>) {
    cuts.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = cuts.changed() => {}
    }
}
