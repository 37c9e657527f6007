//! `Bus`: the connections between the servers of a Redis Cluster. Each goes through a relay, so
//! that a server can be cut off from all other servers but not from clients.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Port;

/// The offset of the sender's id in every message, and the length of an id.
const SENDER: usize = 40;
const ID: usize = 40;

/// A relay in front of each server's bus port.
#[derive(Debug)]
pub(super) struct Bus {
    relays: Vec<Port>,
    /// The index of the server that is cut off from all others; `None` if there is none.
    isolated: watch::Sender<Option<usize>>,
    /// The relays end with the bus.
    _tasks: JoinSet<()>,
}

impl Bus {
    /// Starts a relay to each of these addresses, in the order of the servers' ids.
    pub(super) async fn start(servers: impl Iterator<Item = SocketAddr>, ids: &[String]) -> Self {
        let isolated = watch::Sender::new(None);
        let (mut relays, mut tasks) = (Vec::new(), JoinSet::new());
        for (to, server) in servers.enumerate() {
            let port = Port::free();
            let listener = TcpListener::bind(port.address()).await.expect("the port is free");
            tasks.spawn(relay(listener, server, (to, ids.to_vec()), isolated.clone()));
            relays.push(port);
        }
        Self { relays, isolated, _tasks: tasks }
    }

    /// Returns the port that a server announces to the others.
    pub(super) fn port(&self, number: usize) -> u16 {
        self.relays[number].number()
    }

    /// Cuts a server off from all others, or reconnects it.
    pub(super) fn isolate(&self, number: Option<usize>) {
        self.isolated.send_replace(number);
    }
}

async fn relay(
    listener: TcpListener,
    server: SocketAddr,
    (to, ids): (usize, Vec<String>),
    isolated: watch::Sender<Option<usize>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("a connection can be accepted");
        while connections.try_join_next().is_some() {}
        let (ids, isolated) = (ids.clone(), isolated.subscribe());
        connections.spawn(async move {
            let _ = pass(client, server, (to, ids), isolated).await; // it has ended
        });
    }
}

/// Relays a connection until it ends, or either of its servers is cut off.
async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    (to, ids): (usize, Vec<String>),
    mut isolated: watch::Receiver<Option<usize>>,
) -> std::io::Result<()> {
    let mut begin = [0; SENDER + ID];
    client.read_exact(&mut begin).await?;
    let from = ids.iter().position(|id| id.as_bytes() == &begin[SENDER..]);
    let passed = async {
        let mut server = TcpStream::connect(server).await?;
        server.write_all(&begin).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        _ = isolated.wait_for(|number| number.is_some() && [from, Some(to)].contains(number)) => {}
        ended = passed => { ended?; }
    }
    Ok(())
}
