//! The server of a worker's sequences, its nodes, whose subscriptions come and go, and an ear for
//! all messages.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use lock_tests::protocol::redisson::poke_channel;
use lock_tests::protocol::{self, PREFIX};
use lock_tests::{Raw, RedisServer};
use proto::wire::{Wire, keys};
use proto::{NodeId, Topology};
use redis::aio::PubSub;
use redis::cmd;
use tokio::time::timeout;

use crate::layout::Message;

/// The lock of all sequences but those of several.
pub(crate) const LOCK: &str = "a lock";
/// A thread of a JVM that listens for that lock.
pub(crate) const LISTENING: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";
/// A key of another program, and no lock.
pub(crate) const PERSON: &str = "person:1";
const NODES: u128 = 4;
const SOON: Duration = Duration::from_secs(20);

pub(crate) struct World {
    _server: RedisServer,
    pub(crate) redis: Raw,
    pub(crate) nodes: Vec<Node>,
    /// The texts of the nodes that are connected.
    pub(crate) connected: BTreeSet<String>,
    _thread: PubSub,
    /// It has subscribed to everything, which makes no node a connected one.
    ear: PubSub,
    marks: u64,
}

pub(crate) struct Node {
    pub(crate) wire: Wire,
    subscription: PubSub,
}

impl World {
    pub(crate) async fn start(peers: bool) -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).expect("a URL");
        let connect = async || client.get_async_pubsub().await.expect("a connection");
        let mut nodes = Vec::new();
        for number in 1..=NODES {
            let (node, prefix) = (NodeId::from(number), PREFIX.into());
            let (layout, of_error) = (protocol::layout(peers), protocol::error_of);
            let wire = Wire { node, prefix, layout, topology: Topology::Single, of_error };
            nodes.push(Node { wire, subscription: connect().await });
        }
        let (mut thread, mut ear) = (connect().await, connect().await);
        let channel = poke_channel(LOCK, LISTENING);
        thread.subscribe(channel).await.expect("subscribed");
        ear.psubscribe("*").await.expect("subscribed");
        let redis = Raw::connect(&server.url()).await;
        let connected = BTreeSet::new();
        Self { _server: server, redis, nodes, connected, _thread: thread, ear, marks: 0 }
    }

    /// An empty server, at which all nodes but the last are connected.
    pub(crate) async fn begin(&mut self) {
        self.redis.flush_all().await;
        self.redis.ask::<()>(cmd("HSET").arg(PERSON).arg("name").arg("Ada")).await;
        for node in 0..self.nodes.len() {
            self.connect(node, node + 1 < self.nodes.len()).await;
        }
        // Of a sequence that ended with a difference, something may not have been heard yet.
        self.heard().await;
    }

    /// Confirmed by the server when this returns.
    pub(crate) async fn connect(&mut self, node: usize, is_connected: bool) {
        let Node { wire, subscription } = &mut self.nodes[node];
        let (id, channel) = (wire.node.as_str(), grants_channel(&wire.node));
        if is_connected && self.connected.insert(id.to_owned()) {
            subscription.subscribe(channel).await.expect("subscribed");
        } else if !is_connected && self.connected.remove(id) {
            subscription.unsubscribe(channel).await.expect("unsubscribed");
        }
    }

    /// All messages since the last call, to all. Exact: one that is sent now arrives behind all
    /// others.
    pub(crate) async fn heard(&mut self) -> Vec<Message> {
        self.marks += 1;
        let end = ("end".to_owned(), self.marks.to_string());
        self.redis.publish(&end.0, &end.1).await;
        let (mut stream, mut heard) = (self.ear.on_message(), Vec::new());
        loop {
            let message = timeout(SOON, stream.next()).await.expect("a message arrives");
            let message = message.expect("connected");
            let text = message.get_payload().expect("text");
            let message = (message.get_channel_name().to_owned(), text);
            if message == end {
                return heard;
            }
            heard.push(message);
        }
    }
}

pub(crate) fn grants_channel(node: &NodeId) -> String {
    keys::grants_channel(PREFIX, node.as_str())
}
