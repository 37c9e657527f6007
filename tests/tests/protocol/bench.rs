//! `Bench`: a lock on one side, the nodes that use it, and a view of everything stored about it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_tests::protocol::{queue, redisson};
use lock_tests::{COUNTER, EXPIRY, Raw, RedisServer};
use proto::queue::Mark;
use proto::wire::keys::Counter;
use proto::{Demand, LockName, Member, Mode, NodeId, Party, Topology};
use redis::cmd;

use crate::function::Function;
use crate::node::{Node, lock};
use crate::state::State;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The lock name: a space and a colon have no special meaning.
pub(crate) const LOCK: &str = "order: 42";

/// A layout, and who runs its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    QueueFunction,
    QueueScripts,
    RedissonFunction,
    RedissonScripts,
}

impl Side {
    /// Whether queues are shared with JVMs.
    pub(crate) fn has_peers(self) -> bool {
        matches!(self, Self::RedissonFunction | Self::RedissonScripts)
    }

    /// Whether the function runs the commands, instead of scripts.
    pub(crate) fn is_function(self) -> bool {
        matches!(self, Self::QueueFunction | Self::RedissonFunction)
    }

    /// A dedicated server, for scripts.
    fn server(self) -> Option<RedisServer> {
        (!self.is_function()).then(RedisServer::start)
    }
}

/// Every key with its content and its expiry: equal before and after means unchanged.
pub(crate) type Everything = Vec<(String, Vec<u8>, i64)>;

/// In one step. Reading a large hash may reorder its fields, so they are sorted.
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
    pub(crate) side: Side,
    pub(crate) lock: LockName,
    function: Arc<Mutex<Function>>,
    scripts: Option<(RedisServer, Raw)>,
    nodes: u128,
    counter: Counter,
}

impl Bench {
    pub(crate) async fn start(side: Side) -> Self {
        Self::on(side, side.server()).await
    }

    /// A bench on this server, for scripts.
    pub(crate) async fn on(side: Side, server: Option<RedisServer>) -> Self {
        let mut scripts = None;
        if let Some(server) = server {
            let redis = Raw::connect(&server.url()).await;
            scripts = Some((server, redis));
        }
        let function = Arc::new(Mutex::new(Function::new(side.has_peers())));
        Self {
            side,
            lock: LockName::from(LOCK),
            function,
            scripts,
            nodes: 0,
            counter: Counter::Server,
        }
    }

    pub(crate) fn counter_key(&self) -> String {
        self.counter.to_string()
    }

    /// Becomes a quorum primary, in the epoch that began at this time.
    pub(crate) fn become_primary(&mut self, epoch_us: u64) {
        self.counter = Counter::Epoch(epoch_us);
        lock(&self.function).topology = Topology::Quorum;
    }

    /// The same side, empty again.
    pub(crate) async fn restart(&mut self) {
        match &mut self.scripts {
            Some((_, redis)) => redis.flush_all().await,
            None => {
                let function = &mut *lock(&self.function);
                function.locks.clear();
                function.counter = None;
            }
        }
    }

    /// The server of the scripts.
    pub(crate) fn server(&self) -> &RedisServer {
        &self.scripts.as_ref().expect("the side has a server").0
    }

    /// A connection to the server of the scripts.
    pub(crate) fn redis(&mut self) -> &mut Raw {
        &mut self.scripts.as_mut().expect("the side has a server").1
    }

    /// A connected node.
    pub(crate) async fn node(&mut self) -> Node {
        self.nodes += 1;
        let id = NodeId::from(self.nodes);
        let of = (self.side.has_peers(), lock(&self.function).topology);
        match &self.scripts {
            Some((server, _)) => Node::on_scripts(&server.url(), id, &self.lock, of).await,
            None => Node::on_function(&self.function, id, &self.lock),
        }
    }

    /// A node whose commands arrive but whose messages do not, as after a failover.
    pub(crate) async fn deaf_node(&mut self) -> Node {
        let node = self.node().await;
        node.connect(false).await;
        node
    }

    /// The server's time, ms since the epoch.
    pub(crate) async fn now_ms(&mut self) -> u64 {
        match &mut self.scripts {
            Some((_, redis)) => redis.time_us().await / 1_000,
            None => lock(&self.function).now_us / 1_000,
        }
    }

    /// Everything stored about the lock, and the server's time in ms.
    pub(crate) async fn state(&mut self) -> (State, u64) {
        let name = self.lock.clone();
        match &mut self.scripts {
            Some((_, redis)) if self.side.has_peers() => {
                let seen = redisson::Snapshot::take(redis, name.as_str()).await;
                (State::Redisson(seen.state), seen.at_us / 1_000)
            }
            Some((_, redis)) => {
                let seen = queue::Snapshot::take(redis, name.as_str()).await;
                (State::Queue(seen.state), seen.at_us / 1_000)
            }
            None => {
                let function = &mut *lock(&self.function);
                let now_ms = function.now_us / 1_000;
                let state = function.lock(&name);
                state.expire(now_ms);
                (state.clone(), now_ms)
            }
        }
    }

    /// Changes the lock's keys from outside.
    pub(crate) async fn change(&mut self, change: impl FnOnce(&mut State, u64)) {
        let (mut state, now_ms) = self.state().await;
        change(&mut state, now_ms);
        let name = self.lock.clone();
        match (&mut self.scripts, state) {
            (Some((_, redis)), State::Queue(state)) => {
                queue::put(redis, name.as_str(), &state).await;
            }
            (Some((_, redis)), State::Redisson(state)) => {
                redisson::put(redis, name.as_str(), &state).await;
            }
            (None, state) => *lock(&self.function).lock(&name) = state,
        }
    }

    /// Lets `ms` pass for the lock.
    pub(crate) async fn pass(&mut self, ms: u64) {
        self.change(|state, _| state.pass(ms)).await;
    }

    /// The party with an exclusive hold.
    pub(crate) async fn holding(&mut self) -> Option<Party> {
        let (state, now_ms) = self.state().await;
        state.hold(now_ms).map(|(party, _)| party)
    }

    /// Our member with an exclusive hold.
    pub(crate) async fn holder(&mut self) -> Option<Member> {
        self.holding().await.map(|party| party.ours().expect("one of ours").clone())
    }

    /// The flag of the lock key, if any.
    pub(crate) async fn mark(&mut self) -> Option<Mark> {
        self.state().await.0.of_queue().lock_key.as_ref().map(|lock_key| lock_key.mark)
    }

    /// The remaining lease of the exclusive hold, in ms.
    pub(crate) async fn left(&mut self) -> u64 {
        let (state, now_ms) = self.state().await;
        let (_, ends_ms) = state.hold(now_ms).expect("the lock is held");
        ends_ms.expect("the hold has an end") - now_ms
    }

    /// The members that hold parts, with their remaining leases in ms.
    pub(crate) async fn parts(&mut self) -> Vec<(Member, u64)> {
        let (state, now_ms) = self.state().await;
        let left = |(member, ends_ms): (Member, u64)| (member, ends_ms.saturating_sub(now_ms));
        state.parts().into_iter().map(left).collect()
    }

    /// The waiting parties, next first.
    pub(crate) async fn parties(&mut self) -> Vec<Party> {
        self.state().await.0.queue()
    }

    /// The waiting members if all are ours, next first.
    pub(crate) async fn queue(&mut self) -> Vec<Member> {
        let ours = |party: &Party| party.ours().expect("one of ours").clone();
        self.parties().await.iter().map(ours).collect()
    }

    /// The skipped members of the node, by position.
    pub(crate) async fn aside(&mut self, node: &NodeId) -> Vec<Member> {
        self.state().await.0.aside(node)
    }

    /// The members that gave up, sorted.
    pub(crate) async fn tombstones(&mut self) -> Vec<Member> {
        self.state().await.0.tombstones().into_iter().map(|(member, _)| member).collect()
    }

    /// How many ms the waiting member is still assumed alive.
    pub(crate) async fn patience(&mut self, member: impl Into<Party>) -> Option<u64> {
        let (state, now_ms) = self.state().await;
        Some(state.alive_until(&member.into())?.saturating_sub(now_ms))
    }

    /// Sets how long the waiting member is assumed alive.
    pub(crate) async fn set_patience(&mut self, member: impl Into<Party>, ms: u64) {
        let member = member.into();
        self.change(|state, now_ms| state.set_alive_until(&member, now_ms + ms)).await;
    }

    /// As if the waiting member had been silent for too long.
    pub(crate) async fn end_patience(&mut self, member: impl Into<Party>) {
        let member = member.into();
        self.change(|state, now_ms| state.set_alive_until(&member, now_ms - 1)).await;
    }

    /// As if the lease of the exclusive hold had just ended.
    pub(crate) async fn end_lease(&mut self) {
        self.change(|state, now_ms| state.set_lease_end(Some(now_ms))).await;
    }

    /// Adds `count` waiters of a disconnected node that count as alive, on a lock that is not free.
    pub(crate) async fn plant_dead(&mut self, count: usize) -> Vec<Member> {
        self.plant_dead_for(Demand::EXCLUSIVE, count).await
    }

    pub(crate) async fn plant_dead_for(&mut self, demand: Demand, count: usize) -> Vec<Member> {
        let node = self.deaf_node().await;
        let mut members = Vec::new();
        for _ in 0..count {
            let member = node.member_for(demand, 30_000);
            node.acquire(&member, Mode::Wait, 1_000).await;
            members.push(member);
        }
        let queue = self.queue().await;
        assert!(members.iter().all(|member| queue.contains(member)), "{queue:?}");
        members
    }

    /// The last value of the token counter.
    pub(crate) async fn counter(&mut self) -> u64 {
        match &mut self.scripts {
            Some((_, redis)) => redis.ask(cmd("GET").arg(self.counter.to_string())).await,
            None => lock(&self.function).counter.expect("a number was drawn"),
        }
    }

    /// Sets the token counter, or deletes it.
    pub(crate) async fn set_counter(&mut self, count: Option<u64>) {
        let key = &self.counter_key();
        match (&mut self.scripts, count) {
            (Some((_, redis)), Some(count)) => redis.ask(cmd("SET").arg(key).arg(count)).await,
            (Some((_, redis)), None) => redis.ask(cmd("DEL").arg(key)).await,
            (None, count) => lock(&self.function).counter = count,
        }
    }

    /// Everything stored on the server.
    pub(crate) async fn everything(&mut self) -> Everything {
        match &mut self.scripts {
            Some((_, redis)) => {
                redis.ask(cmd("EVAL").arg(format!("{EXPIRY}{EVERYTHING}")).arg(0)).await
            }
            None => {
                let function = lock(&self.function);
                let mut all: Everything = Vec::new();
                for (name, state) in &function.locks {
                    let mut state = state.clone();
                    state.expire(function.now_us / 1_000);
                    all.push((name.as_str().to_owned(), format!("{state:?}").into_bytes(), 0));
                }
                let counter = format!("{:?}", function.counter).into_bytes();
                all.push((COUNTER.to_owned(), counter, -1));
                all
            }
        }
    }

    /// Whether nothing is stored about the lock.
    pub(crate) async fn is_empty(&mut self) -> bool {
        self.state().await.0.is_empty()
    }

    /// Checks that three minutes later nothing is stored about the lock. In Redisson's layout, JVMs
    /// expect that their queue and their token never expire.
    pub(crate) async fn everything_expires(&mut self) {
        if let Some((_, redis)) = &mut self.scripts {
            for key in redis.keys("*").await {
                let is_kept = ["_queue:", "_timeout:", "_token:"].iter().any(|of| key.contains(of));
                let left = redis.pttl(&key).await;
                if key == COUNTER {
                    assert_eq!(left, -1, "the counter stays");
                } else if !key.starts_with("redisson_lock") || !is_kept {
                    assert!((0..=180_000).contains(&left), "{key} stays for {left} ms");
                }
            }
            return;
        }
        let (mut state, now_ms) = self.state().await;
        state.expire(now_ms + 180_000);
        if let State::Redisson(state) = &mut state {
            state.queue.clear();
            state.deadlines.clear();
            state.token = None;
            state.expire(now_ms);
        }
        assert!(state.is_empty(), "{state:?}");
    }

    /// The server of the function.
    pub(crate) fn function(&self) -> &Arc<Mutex<Function>> {
        &self.function
    }
}
