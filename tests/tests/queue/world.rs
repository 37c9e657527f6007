//! The nodes of all cases: their subscriptions come and go, and a tool that watches everything is
//! always about.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use lock_tests::{Raw, RedisServer, Watcher};
use lockcore::NodeId;
use lockcore::internals::protocol::queue::{Bounds, Message};
use lockcore::internals::{LockName, new_node};
use redis::aio::{PubSubSink, PubSubStream};
use tokio::time::timeout;

use crate::server::{PREFIX, Scripts};

const SOON: Duration = Duration::from_secs(20);

pub(crate) struct World {
    _server: RedisServer,
    /// It makes no node a connected one.
    _watcher: Watcher,
    pub(crate) redis: Raw,
    pub(crate) nodes: Vec<Node>,
    /// The scripts as they are, and with small bounds.
    pub(crate) scripts: [(Bounds, Scripts); 2],
    pub(crate) lock: LockName,
    marks: u64,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) is_connected: bool,
    sink: PubSubSink,
    stream: PubSubStream,
    heard: Vec<String>,
}

/// The messages that each node heard, or is to hear.
pub(crate) type Heard = BTreeMap<String, Vec<String>>;

fn channel(node: &str) -> String {
    format!("{PREFIX}:grants:{node}")
}

impl World {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let mut redis = Raw::connect(&server.url()).await;
        let watcher = Watcher::start(&server.url()).await;
        let mut nodes = Vec::new();
        for _ in 0..4 {
            let client = redis::Client::open(server.url()).expect("a URL");
            let pubsub = client.get_async_pubsub().await.expect("a connection");
            let (sink, stream) = pubsub.split();
            let (id, heard) = (new_node(), Vec::new());
            nodes.push(Node { id, is_connected: false, sink, stream, heard });
        }
        let small = Bounds { granted: 2, looked_at: 5, reclaimed: 2 };
        let usual = Bounds::default();
        let scripts = [
            (usual, Scripts::load(&mut redis, usual).await),
            (small, Scripts::load(&mut redis, small).await),
        ];
        let lock = LockName::from("a lock");
        Self { _server: server, _watcher: watcher, redis, nodes, scripts, lock, marks: 0 }
    }

    pub(crate) async fn begin(&mut self) {
        self.redis.flush_all().await;
        for node in 0..self.nodes.len() {
            self.connect(node, true).await;
        }
        // Of a sequence that ended with a difference, something may not have been heard yet.
        self.heard().await;
    }

    /// Confirmed by the server when this returns.
    pub(crate) async fn connect(&mut self, node: usize, is_connected: bool) {
        let node = &mut self.nodes[node];
        if node.is_connected == is_connected {
            return;
        }
        let channel = channel(node.id.as_str());
        if is_connected {
            node.sink.subscribe(&channel).await.expect("subscribed");
        } else {
            node.sink.unsubscribe(&channel).await.expect("unsubscribed");
        }
        node.is_connected = is_connected;
    }

    pub(crate) fn is_connected(&self, node: &str) -> bool {
        self.nodes.iter().any(|one| one.is_connected && one.id.as_str() == node)
    }

    /// The messages since the last call. Exact: a message sent now arrives behind all others.
    pub(crate) async fn heard(&mut self) -> Heard {
        let mut heard = Heard::new();
        for at in 0..self.nodes.len() {
            let was_connected = self.nodes[at].is_connected;
            self.connect(at, true).await;
            self.marks += 1;
            let mark = format!("end {}", self.marks);
            let node = &mut self.nodes[at];
            self.redis.publish(&channel(node.id.as_str()), &mark).await;
            loop {
                let message = timeout(SOON, node.stream.next()).await.expect("a message arrives");
                let text: String = message.expect("connected").get_payload().expect("text");
                if text == mark {
                    break;
                }
                node.heard.push(text);
            }
            let texts = std::mem::take(&mut node.heard);
            if !texts.is_empty() {
                heard.insert(node.id.to_string(), texts);
            }
            self.connect(at, was_connected).await;
        }
        heard
    }

    /// Adds what these messages cause where somebody listens.
    pub(crate) fn expect(&self, heard: &mut Heard, messages: &[Message]) {
        for message in messages {
            let (node, text) = match message {
                Message::Grants { node, token, grants } => {
                    let mut text = format!("p {token}");
                    for (number, left_ms) in grants {
                        text += &format!(" {number} {left_ms}");
                    }
                    (node, text)
                }
                Message::Revoked { node, numbers } => {
                    let mut text = "r".to_owned();
                    for number in numbers {
                        text += &format!(" {number}");
                    }
                    (node, text)
                }
            };
            if self.is_connected(node.as_str()) {
                heard.entry(node.to_string()).or_default().push(text);
            }
        }
    }
}
