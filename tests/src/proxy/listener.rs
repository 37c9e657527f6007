//! `Listener`: accepts connections for a proxy until they must be refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::shared::Shared;

pub(super) struct Listener {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Listener {
    /// Starts to listen; the port is open when this returns. Must be called in a runtime's context.
    pub(super) fn start(address: SocketAddr, shared: Arc<Shared>) -> Self {
        // This does not block, because binding does not wait.
        let socket = std::net::TcpListener::bind(address).expect("the port is ours");
        socket.set_nonblocking(true).expect("a socket takes options");
        let socket = TcpListener::from_std(socket).expect("the runtime takes a socket");
        let stop = CancellationToken::new();
        let task = tokio::spawn(accept_all(socket, shared, stop.clone()));
        Self { address, stop, task }
    }

    /// Stops listening. Connections are refused when this returns.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("accepting does not panic");
        // A child that another thread is starting holds copies of our sockets until its exec, and
        // with a copy the kernel keeps accepting: closed is not yet refused.
        while TcpStream::connect(self.address).await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn accept_all(socket: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let client = tokio::select! {
            () = stop.cancelled() => return, // and the socket is closed with this task
            accepted = socket.accept() => accepted,
        };
        match client {
            // Listed before anything else can happen, so that a cut finds it.
            Ok((client, _)) => Connection::start(&shared, client),
            // A client that has gone already, or no free file descriptor: other tasks may free one.
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}
