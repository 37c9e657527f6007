//! `Bench`: a server of the test's own, one lock on it, and a plain look at its keys.

use std::time::Duration;

use lock_tests::{Proxy, Raw, RedisServer, eventually, eventually_some};
use lockcore::internals::{Label, LockName, Member, Party, new_node};
use redis::cmd;

use crate::node::Node;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The lock's name: a space and a colon are nothing special.
pub(crate) const LOCK: &str = "order: 42";

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
        Node::connect_as(&self.server.url(), &self.lock, true).await
    }

    pub(crate) async fn deaf_node(&mut self) -> Deaf {
        let proxy = Proxy::start(self.server.address());
        let node = Node::connect_as(&proxy.url(), &self.lock, true).await;
        proxy.refuse().await;
        assert_eq!(proxy.cut_subscriptions().await, 1);
        let redis = &mut self.redis;
        let channel = node.channel();
        let deaf = async || redis.subscribers(&channel).await == 0;
        eventually("the server notices a lost subscription", SOON, deaf).await;
        Deaf { node, _proxy: proxy }
    }

    pub(crate) fn hold_key(&self) -> String {
        LOCK.to_owned()
    }

    pub(crate) fn queue_key(&self) -> String {
        format!("redisson_lock_queue:{{{LOCK}}}")
    }

    pub(crate) fn deadlines_key(&self) -> String {
        format!("redisson_lock_timeout:{{{LOCK}}}")
    }

    pub(crate) fn alive_key(&self) -> String {
        format!("redisson_lock_alive:{{{LOCK}}}")
    }

    pub(crate) fn token_key(&self) -> String {
        format!("redisson_lock_token:{{{LOCK}}}")
    }

    pub(crate) fn tombstone_key(&self, member: &Member) -> String {
        format!("redisson_lock_gone:{{{LOCK}}}:{member}")
    }

    pub(crate) async fn now_ms(&mut self) -> u64 {
        self.redis.time_us().await / 1_000
    }

    pub(crate) async fn holder(&mut self) -> Option<Member> {
        let fields = self.redis.hash(LOCK).await;
        fields.first().map(|(member, _)| Member::parse(member).expect("a member of ours"))
    }

    pub(crate) async fn queue(&mut self) -> Vec<Party> {
        let parties = self.redis.list(&self.queue_key()).await;
        parties.iter().map(|party| Party::from(&**party)).collect()
    }

    /// Up to when a waiter of ours is believed alive, ms since the epoch.
    pub(crate) async fn deadline(&mut self, waiter: impl Into<Party>) -> Option<u64> {
        let mut score = cmd("ZSCORE");
        score.arg(self.alive_key()).arg(waiter.into().as_str());
        self.redis.ask(&score).await
    }

    pub(crate) async fn set_deadline(&mut self, waiter: impl Into<Party>, at_ms: u64) {
        let waiter = waiter.into();
        let key = if waiter.ours().is_some() { self.alive_key() } else { self.deadlines_key() };
        let mut add = cmd("ZADD");
        add.arg(key).arg(at_ms).arg(waiter.as_str());
        self.redis.ask(&add).await
    }

    /// As the waiter's deadline looks after a silence that was too long.
    pub(crate) async fn let_deadline_pass(&mut self, waiter: impl Into<Party>) {
        let past = self.now_ms().await - 1;
        self.set_deadline(waiter, past).await;
    }

    /// A waiter that some other program put there, or some other process that is gone by now.
    pub(crate) async fn plant(&mut self, waiter: impl Into<Party>, patience_ms: u64) {
        let waiter = waiter.into();
        let mut push = cmd("RPUSH");
        push.arg(self.queue_key()).arg(waiter.as_str());
        let () = self.redis.ask(&push).await;
        let at_ms = self.now_ms().await + patience_ms;
        let mut score = cmd("ZADD");
        score.arg(self.deadlines_key()).arg(at_ms + 300_000).arg(waiter.as_str());
        let () = self.redis.ask(&score).await;
        self.set_deadline(waiter, at_ms).await;
    }

    /// As many live waiters of one node that is not connected.
    pub(crate) async fn plant_dead(&mut self, count: u64) -> Vec<Member> {
        let node = new_node();
        let gone = Label::new("gone");
        let members: Vec<Member> =
            (0..count).map(|number| Member::redisson(&node, number, 30_000, &gone)).collect();
        for member in &members {
            self.plant(member, 15_000).await;
        }
        members
    }

    /// When the key expires, ms since the epoch; -1 without, -2 without the key.
    pub(crate) async fn expiry(&mut self, key: &str) -> i64 {
        self.redis.expiry(key).await
    }

    pub(crate) async fn until_free(&mut self) {
        let free = async || !self.redis.exists(LOCK).await;
        eventually("the lease ends", SOON, free).await;
    }

    pub(crate) async fn until_at_most_left(&mut self, ms: i64) -> i64 {
        let left = async || {
            let left = self.redis.pttl(LOCK).await;
            (left <= ms).then_some(left)
        };
        eventually_some("the lease runs down", SOON, left).await
    }

    /// Each key with its content and its expiry: equal before and after is unchanged.
    pub(crate) async fn everything(&mut self) -> Vec<(String, Vec<u8>, i64)> {
        let mut everything = Vec::new();
        for key in self.redis.keys("*").await {
            let type_of: String = self.redis.ask(cmd("TYPE").arg(&key)).await;
            let dump: Vec<u8> = match &*type_of {
                // A look at a large hash may move its fields about.
                "hash" => format!("{:?}", self.redis.hash(&key).await).into_bytes(),
                _ => self.redis.ask(cmd("DUMP").arg(&key)).await,
            };
            let expiry = self.expiry(&key).await;
            everything.push((key, dump, expiry));
        }
        everything
    }

    /// Whatever is ours alone goes by itself; a JVM expects its queue and its token not to.
    pub(crate) async fn everything_expires(&mut self) {
        let theirs = [self.queue_key(), self.deadlines_key(), self.token_key()];
        for key in self.redis.keys("*").await.into_iter().filter(|key| !theirs.contains(key)) {
            let left = self.redis.pttl(&key).await;
            assert!(left != -1, "{key} has no end");
            assert!(left <= 180_000, "{key} stays for {left} ms");
        }
    }
}
