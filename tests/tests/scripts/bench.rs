//! `Bench`: a server of the test's own, one lock on it, and a plain look at the keys of its queue.

use std::time::Duration;

use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::internals::{LockName, Member};
use redis::cmd;

use crate::node::Node;

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const COUNTER: &str = "lock:tokens";
/// How long a marked door outlives its lease.
const MARGIN_MS: i64 = 60_000;

/// The lock's name: a space and a colon are nothing special.
pub(crate) const LOCK: &str = "order: 42";
pub(crate) const DOOR: &str = "lock:{order: 42}";

pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) redis: Raw,
    pub(crate) lock: LockName,
}

/// A node whose commands arrive and whose subscription does not, as after a failover. The proxy
/// between must live as long as it.
pub(crate) struct Deaf {
    pub(crate) node: Node,
    _proxy: Proxy,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let redis = Raw::connect(&server.url()).await;
        Self { server, redis, lock: LockName::from(LOCK) }
    }

    pub(crate) async fn node(&self) -> Node {
        Node::connect_as(&self.server.url(), &self.lock, false).await
    }

    pub(crate) async fn deaf_node(&mut self) -> Deaf {
        let proxy = Proxy::start(self.server.address());
        let node = Node::connect_as(&proxy.url(), &self.lock, false).await;
        proxy.refuse().await;
        assert_eq!(proxy.cut_subscriptions().await, 1);
        let redis = &mut self.redis;
        let channel = node.channel();
        let deaf = async || redis.subscribers(&channel).await == 0;
        eventually("the server notices a lost subscription", SOON, deaf).await;
        Deaf { node, _proxy: proxy }
    }

    pub(crate) fn key(&self, kind: &str) -> String {
        format!("{DOOR}:{kind}")
    }

    /// The holder of everything, and the ms left of its lease.
    pub(crate) async fn hold(&mut self) -> Option<(Member, i64)> {
        let door = self.redis.get(DOOR).await?;
        let left = self.redis.pttl(DOOR).await;
        let body = door.trim_start_matches(['+', '-']);
        let left = if body == door { left } else { left - MARGIN_MS };
        (left > 0).then(|| Member::parse(body).map(|member| (member, left))).flatten()
    }

    pub(crate) async fn holder(&mut self) -> Option<Member> {
        self.hold().await.map(|(member, _)| member)
    }

    pub(crate) async fn queue(&mut self) -> Vec<Member> {
        let scores = self.redis.scores(&self.key("queue")).await;
        scores.iter().map(|(text, _)| Member::parse(text).expect("a member")).collect()
    }

    /// As if the node had been silent for too long.
    pub(crate) async fn let_patience_end(&mut self, node: &Node) {
        let key = self.key(&format!("patience:{}", node.id));
        let () = self.redis.ask(cmd("DEL").arg(key)).await;
    }

    pub(crate) async fn until_free(&mut self) {
        let free = async || self.hold().await.is_none();
        eventually("the lease ends", SOON, free).await;
    }

    /// Each key with its content and its expiry: equal before and after is unchanged.
    pub(crate) async fn everything(&mut self) -> Vec<(String, Vec<u8>, i64)> {
        let mut everything = Vec::new();
        for key in self.redis.keys("*").await {
            let type_of: String = self.redis.ask(cmd("TYPE").arg(&key)).await;
            let content: Vec<u8> = match &*type_of {
                // A look at a large hash may move its fields about.
                "hash" => format!("{:?}", self.redis.hash(&key).await).into_bytes(),
                _ => self.redis.ask(cmd("DUMP").arg(&key)).await,
            };
            let expiry = self.redis.expiry(&key).await;
            everything.push((key, content, expiry));
        }
        everything
    }

    /// Whatever is left of a lock goes by itself; the counter is no lock's.
    pub(crate) async fn everything_expires(&mut self) {
        for key in self.redis.keys("*").await.into_iter().filter(|key| key != COUNTER) {
            let left = self.redis.pttl(&key).await;
            assert!(left != -1, "{key} has no end");
            assert!(left <= 240_000, "{key} stays for {left} ms");
        }
    }
}
