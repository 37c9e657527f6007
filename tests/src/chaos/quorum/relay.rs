//! `Relay`: relays several nodes to a server; each node can be cut off.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::Port;

/// How much of the begin of a connection is searched for the node id. More would take all the time
/// of a relay, while the node of a busy connection is not known yet.
const BEGIN: usize = 4_096;

/// A node as seen by a relay.
#[derive(Debug, Clone, Default)]
struct Node {
    /// The node id, which is in the name that each connection sends first.
    id: Option<String>,
    is_cut: bool,
}

/// Relays several nodes to a server; each node can be cut off.
#[derive(Debug)]
pub struct Relay {
    port: Port,
    nodes: watch::Sender<Vec<Node>>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    /// Listens for `nodes` nodes, on the caller's runtime.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub fn start(server: SocketAddr, nodes: usize) -> Self {
        let port = Port::free();
        let nodes = watch::Sender::new(vec![Node::default(); nodes]);
        let listener = std::net::TcpListener::bind(port.address()).expect("the port is free");
        listener.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(listener).expect("a socket");
        let task = tokio::spawn(accept(listener, server, nodes.clone()));
        Self { port, nodes, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the address for the nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.port.address())
    }

    /// Records a node's id.
    pub fn know(&self, node: usize, id: &str) {
        self.nodes.send_modify(|nodes| nodes[node].id = Some(id.to_owned()));
    }

    /// Cuts a node off.
    pub fn cut(&self, node: usize) {
        self.nodes.send_modify(|nodes| nodes[node].is_cut = true);
    }

    /// Lets all nodes through again.
    pub fn mend(&self) {
        self.nodes.send_modify(|nodes| nodes.iter_mut().for_each(|node| node.is_cut = false));
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, nodes: watch::Sender<Vec<Node>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let nodes = nodes.subscribe();
        connections.spawn(async move {
            let _ = pass(client, server, nodes).await; // it has ended
        });
    }
}

/// Relays a connection until it ends, or its node is cut off.
async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    mut nodes: watch::Receiver<Vec<Node>>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut begin, mut sent, mut answer) = (Vec::new(), [0; 4_096], [0; 4_096]);
    let node = loop {
        let known = nodes.borrow_and_update().iter().position(|node| {
            let id = node.id.as_deref().unwrap_or_default().as_bytes();
            !id.is_empty() && begin.windows(id.len()).any(|part| part == id)
        });
        if let Some(node) = known {
            break node;
        }
        tokio::select! {
            read = client.read(&mut sent) => {
                let sent = &sent[..read?];
                if sent.is_empty() {
                    return Ok(());
                }
                server.write_all(sent).await?;
                begin.extend_from_slice(&sent[..sent.len().min(BEGIN - begin.len())]);
            }
            read = server.read(&mut answer) => {
                match read? {
                    0 => return Ok(()),
                    length => client.write_all(&answer[..length]).await?,
                }
            }
            changed = nodes.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
        }
    };
    tokio::select! {
        biased;
        _ = nodes.wait_for(|nodes| nodes[node].is_cut) => {}
        ended = copy_bidirectional(&mut client, &mut server) => { ended?; }
    }
    Ok(())
}
