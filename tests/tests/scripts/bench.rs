//! `Bench`: a server of the test's own, one lock on it, and a plain look at its keys.

use std::time::Duration;

use lock_tests::{
    EXPIRY, Proxy, Raw, RedisServer, door_key, eventually, gone_key, holds_key, passed_key,
    patience_key,
};
use lockcore::NodeId;
use lockcore::internals::{Demand, Label, LockName, Member, Mode, new_node, wire};
use redis::{Value, cmd};

use crate::asking::acquire;
use crate::node::Node;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The lock's name: a space and a colon are nothing special.
pub(crate) const LOCK: &str = "order: 42";

/// A marked door outlives its lease by this.
const MARGIN_MS: i64 = 60_000;

/// In one step. A look at a large hash may move its fields about, so they are sorted.
const EVERYTHING: &str = "
local everything, keys = {}, redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local content
  if redis.call('TYPE', key).ok == 'hash' then
    local fields, texts = redis.call('HGETALL', key), {}
    for i = 1, #fields, 2 do
      texts[#texts + 1] = fields[i] .. '=' .. fields[i + 1]
    end
    table.sort(texts)
    content = table.concat(texts, ' ')
  else
    content = redis.call('DUMP', key)
  end
  everything[#everything + 1] = { key, content, expiry(key) }
end
return everything
";

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
        Self::on(RedisServer::start()).await
    }

    pub(crate) async fn on(server: RedisServer) -> Self {
        let redis = Raw::connect(&server.url()).await;
        Self { server, redis, lock: LockName::from(LOCK) }
    }

    pub(crate) async fn node(&self) -> Node {
        Node::connect_as(&self.server.url(), &self.lock, false).await
    }

    /// A node that shares queues with JVMs.
    pub(crate) async fn peer(&self) -> Node {
        Node::connect_as(&self.server.url(), &self.lock, true).await
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

    pub(crate) fn key(&self, which: &str) -> String {
        format!("{}:{which}", door_key(LOCK))
    }

    pub(crate) async fn now_ms(&mut self) -> u64 {
        self.redis.time_us().await / 1_000
    }

    pub(crate) async fn door(&mut self) -> Option<String> {
        self.redis.get(&door_key(LOCK)).await
    }

    /// The member that holds everything, and the milliseconds left of its lease. In two looks, not
    /// in a transaction: that is refused when memory is full.
    async fn hold(&mut self) -> Option<(Member, i64)> {
        let ends = self.redis.pttl(&door_key(LOCK)).await;
        let door = self.door().await?;
        let text = door.trim_start_matches(['+', '-']);
        let is_marked = text.len() < door.len();
        let left = if is_marked { ends - MARGIN_MS } else { ends };
        let member = Member::parse(text)?;
        // Without a mark it is held for as long as the door is there, to the last microsecond.
        (left > 0 || !is_marked).then_some((member, left))
    }

    /// The member that holds everything.
    pub(crate) async fn holder(&mut self) -> Option<Member> {
        self.hold().await.map(|(member, _)| member)
    }

    /// The milliseconds left of the lease of the hold of everything.
    pub(crate) async fn left(&mut self) -> i64 {
        self.hold().await.expect("somebody holds it").1
    }

    /// The members that hold parts, with the ends of their leases.
    pub(crate) async fn parts(&mut self) -> Vec<(Member, u64)> {
        let parts = self.redis.scores(&holds_key(LOCK)).await;
        parts.iter().map(|(text, ends)| (of(text), *ends as u64)).collect()
    }

    /// The waiting members, next first.
    pub(crate) async fn queue(&mut self) -> Vec<Member> {
        self.redis.queue(LOCK).await.iter().map(|text| of(text)).collect()
    }

    /// The members of the node that were passed over, by place.
    pub(crate) async fn passed(&mut self, node: &NodeId) -> Vec<Member> {
        let passed = self.redis.scores(&passed_key(LOCK, node.as_str())).await;
        passed.iter().map(|(text, _)| of(text)).collect()
    }

    /// The tombstones, by when they are forgotten.
    pub(crate) async fn gone(&mut self) -> Vec<Member> {
        let gone = self.redis.scores(&gone_key(LOCK)).await;
        gone.iter().map(|(text, _)| of(text)).collect()
    }

    /// The milliseconds for which waiting members of the node are believed alive; -2 if they are
    /// not.
    pub(crate) async fn patience(&mut self, node: &NodeId) -> i64 {
        self.redis.pttl(&patience_key(LOCK, node.as_str())).await
    }

    pub(crate) async fn set_patience(&mut self, node: &NodeId, ms: u64) {
        let key = patience_key(LOCK, node.as_str());
        self.redis.ask(cmd("PEXPIRE").arg(key).arg(ms)).await
    }

    /// As the node looks after a silence that was too long.
    pub(crate) async fn end_patience(&mut self, node: &NodeId) {
        self.redis.ask(cmd("DEL").arg(patience_key(LOCK, node.as_str()))).await
    }

    /// As the door looks when the lease of the hold of everything has just ended.
    pub(crate) async fn end_lease(&mut self) {
        let door = self.door().await.expect("somebody holds it");
        let left = if door.starts_with(['+', '-']) { MARGIN_MS } else { 0 };
        self.redis.ask(cmd("PEXPIRE").arg(door_key(LOCK)).arg(left)).await
    }

    /// As many live waiters of one node that is not connected, on a lock that is not free.
    pub(crate) async fn plant_dead(&mut self, count: u64) -> Vec<Member> {
        self.plant_dead_for(Demand::ALONE, count).await
    }

    pub(crate) async fn plant_dead_for(&mut self, demand: Demand, count: u64) -> Vec<Member> {
        let (node, label) = (new_node(), Label::new("gone"));
        let mut members = Vec::new();
        for number in 0..count {
            let member = Member::new(&node, number, 30_000, demand, &label);
            let command = acquire(&member, Mode::Wait, 1_000);
            let call = wire::queue::command(&self.lock, &node, "lockcore", &command, [0, 0]);
            let _: Value = self.redis.ask(&call).await;
            members.push(member);
        }
        let queue = self.queue().await;
        assert!(members.iter().all(|member| queue.contains(member)), "{queue:?}");
        members
    }

    /// The last number of the counter.
    pub(crate) async fn counter(&mut self) -> String {
        self.redis.get(lock_tests::COUNTER).await.expect("a number was drawn")
    }

    /// When the key expires, ms since the epoch; -1 without, -2 without the key.
    pub(crate) async fn expiry(&mut self, key: &str) -> i64 {
        self.redis.expiry(key).await
    }

    pub(crate) async fn until_free(&mut self) {
        let free = async || self.holder().await.is_none();
        eventually("the lease ends", SOON, free).await;
    }

    /// Each key with its content and its expiry: equal before and after is unchanged.
    pub(crate) async fn everything(&mut self) -> Vec<(String, Vec<u8>, i64)> {
        self.redis.ask(cmd("EVAL").arg(format!("{EXPIRY}{EVERYTHING}")).arg(0)).await
    }

    /// Whatever is left goes by itself, but for the counter.
    pub(crate) async fn everything_expires(&mut self) {
        for key in self.redis.keys("*").await {
            let left = self.redis.pttl(&key).await;
            if key == lock_tests::COUNTER {
                assert_eq!(left, -1, "the counter stays");
                continue;
            }
            assert!(left != -1, "{key} has no end");
            assert!(left <= 180_000, "{key} stays for {left} ms");
        }
    }
}

fn of(text: &str) -> Member {
    Member::parse(text).expect("a member")
}
