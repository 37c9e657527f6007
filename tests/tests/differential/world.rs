//! The nodes of all cases: three that hear, one that does not, and foreign members.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use lock_tests::{Proxy, Raw, RedisServer, Watcher, eventually};
use lockcore::internals::protocol::redisson::Message;
use lockcore::internals::{Answer, Command, Event, LockName, StoreError};
use redis::aio::PubSub;
use redis::cmd;

use crate::company;
use crate::node::Node;

/// The lock of all cases but those of several.
pub(crate) const LOCK: &str = "a lock";
/// How long what is on its way may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Threads of two JVMs.
pub(crate) const FOREIGN: [&str; 3] = [
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:42",
    "7F0E4D1A-0B8E-4C3F-9A51-0E7C9B1D2F3A:1",
];
/// What other programs may write in a member's place; two only look like ours.
pub(crate) const STRANGE: [&str; 4] =
    ["name", "~1AAAAAAAAAAAAAAAAAAAAAA:1:0:no lease", "~1short:1:30000:x", "another:1"];

/// How many of the nodes are connected; the one after them is not.
const CONNECTED: usize = 3;
pub(crate) const DEAF: usize = CONNECTED;

pub(crate) struct World {
    server: RedisServer,
    _proxy: Proxy,
    /// It makes no node a connected one.
    _watcher: Watcher,
    pub(crate) redis: Raw,
    pub(crate) nodes: Vec<Node>,
    poked: Arc<Mutex<Vec<String>>>,
    marks: u64,
}

impl World {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let mut redis = Raw::connect(&server.url()).await;
        let proxy = Proxy::start(server.address());
        let lock = LockName::from(LOCK);
        let mut nodes = Vec::new();
        for _ in 0..CONNECTED {
            nodes.push(Node::connect_as(&server.url(), &lock, true).await);
        }
        let deaf = Node::connect_as(&proxy.url(), &lock, true).await;
        proxy.refuse().await;
        assert_eq!(proxy.cut_subscriptions().await, 1);
        let channel = deaf.channel();
        let unheard = async || redis.subscribers(&channel).await == 0;
        eventually("the server notices a lost subscription", SOON, unheard).await;
        nodes.push(deaf);
        let poked = listen_to_pokes(&server).await;
        let watcher = Watcher::start(&server.url()).await;
        Self { server, _proxy: proxy, _watcher: watcher, redis, nodes, poked, marks: 0 }
    }

    pub(crate) async fn begin(&mut self, lock: &LockName) {
        self.redis.flush_all().await;
        self.redis.ask::<()>(cmd("HSET").arg(company::STRANGE).arg("name").arg("Ada")).await;
        // Of a sequence that ended with a difference, something may not have been heard yet.
        self.heard().await;
        for node in &mut self.nodes {
            node.lock = lock.clone();
        }
    }

    pub(crate) fn is_connected(&self, node: &str) -> bool {
        self.nodes[..CONNECTED].iter().any(|connected| connected.id.as_str() == node)
    }

    /// A subscription to a channel, until it is dropped.
    pub(crate) async fn subscribe(&self, channel: &str) -> PubSub {
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let mut subscription = client.get_async_pubsub().await.expect("a subscription");
        subscription.subscribe(channel).await.expect("a channel");
        subscription
    }

    pub(crate) async fn run(
        &mut self,
        node: usize,
        command: &Command,
    ) -> Result<Answer, StoreError> {
        self.marks += 1;
        let by = self.marks as usize;
        let node = &self.nodes[node];
        match command {
            Command::Renew { .. } | Command::Touch { .. } => company::run(node, command, by).await,
            _ => node.run(command.clone()).await,
        }
    }

    /// What was received since the last call: by each node, and by foreign members.
    pub(crate) async fn heard(&mut self) -> Heard {
        let mut heard = Heard::default();
        for node in &self.nodes[..CONNECTED] {
            let events = node.heard(&mut self.redis).await;
            if !events.is_empty() {
                heard.by_node.insert(node.id.to_string(), events);
            }
        }
        self.marks += 1;
        let mark = format!("redisson_lock__channel:end {}", self.marks);
        self.redis.publish(&mark, "0").await;
        let poked = Arc::clone(&self.poked);
        let lines = move || poked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let arrived = async || lines().contains(&mark);
        eventually("a poke that was received arrives", SOON, arrived).await;
        heard.pokes =
            std::mem::take(&mut *self.poked.lock().unwrap_or_else(PoisonError::into_inner));
        heard.pokes.pop();
        heard
    }
}

/// Messages by who received them, each in its order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    by_node: BTreeMap<String, Vec<Event>>,
    /// The channels of foreign members.
    pub(crate) pokes: Vec<String>,
}

impl Heard {
    pub(crate) fn starts_with(&self, earlier: &Self) -> bool {
        let heard = |node| self.by_node.get(node).map_or(&[][..], |events| events);
        earlier.by_node.iter().all(|(node, events)| heard(node).starts_with(events))
            && self.pokes.starts_with(&earlier.pokes)
    }

    /// What `messages` of a lock cause where a client listens.
    pub(crate) fn add(&mut self, world: &World, lock: &LockName, messages: Vec<Message>) {
        for message in messages {
            let (node, event) = match message {
                Message::Grant { node, member, token, left_ms } => {
                    (node, Event::Granted { token, grants: vec![(member.number(), left_ms)] })
                }
                Message::Revoked { node, member } => {
                    (node, Event::Revoked { numbers: vec![member.number()] })
                }
                Message::Poke { member } => {
                    self.pokes.push(poke_channel(lock, member.as_str()));
                    continue;
                }
            };
            if world.is_connected(node.as_str()) {
                self.by_node.entry(node.to_string()).or_default().push(event);
            }
        }
    }
}

pub(crate) fn poke_channel(lock: &LockName, member: &str) -> String {
    format!("redisson_lock__channel:{{{}}}:{member}", lock.as_str())
}

async fn listen_to_pokes(server: &RedisServer) -> Arc<Mutex<Vec<String>>> {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut subscription = client.get_async_pubsub().await.expect("a subscription");
    subscription.psubscribe("redisson_lock__channel:*").await.expect("a pattern");
    let poked = Arc::new(Mutex::new(Vec::new()));
    let pokes = Arc::clone(&poked);
    tokio::spawn(async move {
        let mut messages = subscription.into_on_message();
        while let Some(message) = messages.next().await {
            assert_eq!(message.get_payload_bytes(), b"0");
            let channel = message.get_channel_name().to_owned();
            pokes.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
        }
    });
    poked
}
