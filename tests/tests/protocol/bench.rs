//! `Bench`: one lock on one side, the nodes that ask for it, and a look at all that is kept of it.

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

/// The lock's name: a space and a colon are nothing special.
pub(crate) const LOCK: &str = "order: 42";

/// A layout, and the half that runs its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    QueueFunction,
    QueueScripts,
    RedissonFunction,
    RedissonScripts,
}

impl Side {
    /// Whether JVMs share the queues.
    pub(crate) fn has_peers(self) -> bool {
        matches!(self, Self::RedissonFunction | Self::RedissonScripts)
    }

    /// Whether the function runs the commands.
    pub(crate) fn is_function(self) -> bool {
        matches!(self, Self::QueueFunction | Self::RedissonFunction)
    }

    /// A server of its own, for scripts.
    fn server(self) -> Option<RedisServer> {
        (!self.is_function()).then(RedisServer::start)
    }
}

/// Every key with its content and its expiry: equal before and after is unchanged.
pub(crate) type Everything = Vec<(String, Vec<u8>, i64)>;

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

    /// A bench on this server, on the side of scripts.
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

    /// Becomes a primary of a quorum, in the epoch that began at this time.
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

    /// A node whose commands arrive and whose messages do not, as after a failover.
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

    /// All that is kept of the lock, and the server's time in ms.
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

    /// Changes the keys of the lock from outside.
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

    /// Lets so much time pass at the lock.
    pub(crate) async fn pass(&mut self, ms: u64) {
        self.change(|state, _| state.pass(ms)).await;
    }

    /// The party that holds everything.
    pub(crate) async fn holding(&mut self) -> Option<Party> {
        let (state, now_ms) = self.state().await;
        state.hold(now_ms).map(|(party, _)| party)
    }

    /// The member of ours that holds everything.
    pub(crate) async fn holder(&mut self) -> Option<Member> {
        self.holding().await.map(|party| party.ours().expect("one of ours").clone())
    }

    /// The mark of the door, if there is one.
    pub(crate) async fn mark(&mut self) -> Option<Mark> {
        self.state().await.0.of_queue().door.as_ref().map(|door| door.mark)
    }

    /// The milliseconds left of the lease of the hold of everything.
    pub(crate) async fn left(&mut self) -> u64 {
        let (state, now_ms) = self.state().await;
        let (_, ends_ms) = state.hold(now_ms).expect("the lock is held");
        ends_ms.expect("the hold has an end") - now_ms
    }

    /// The members that hold parts, with the milliseconds left of their leases.
    pub(crate) async fn parts(&mut self) -> Vec<(Member, u64)> {
        let (state, now_ms) = self.state().await;
        let left = |(member, ends_ms): (Member, u64)| (member, ends_ms.saturating_sub(now_ms));
        state.parts().into_iter().map(left).collect()
    }

    /// The waiting parties, next first.
    pub(crate) async fn parties(&mut self) -> Vec<Party> {
        self.state().await.0.queue()
    }

    /// The waiting members where all are ours, next first.
    pub(crate) async fn queue(&mut self) -> Vec<Member> {
        let ours = |party: &Party| party.ours().expect("one of ours").clone();
        self.parties().await.iter().map(ours).collect()
    }

    /// The members of the node that were passed over, by place.
    pub(crate) async fn passed(&mut self, node: &NodeId) -> Vec<Member> {
        self.state().await.0.passed(node)
    }

    /// The members that were given up, sorted.
    pub(crate) async fn gone(&mut self) -> Vec<Member> {
        self.state().await.0.gone().into_iter().map(|(member, _)| member).collect()
    }

    /// The milliseconds for which the waiting member is believed alive.
    pub(crate) async fn patience(&mut self, member: impl Into<Party>) -> Option<u64> {
        let (state, now_ms) = self.state().await;
        Some(state.alive_until(&member.into())?.saturating_sub(now_ms))
    }

    /// Sets for how long the waiting member is believed alive.
    pub(crate) async fn set_patience(&mut self, member: impl Into<Party>, ms: u64) {
        let member = member.into();
        self.change(|state, now_ms| state.set_alive_until(&member, now_ms + ms)).await;
    }

    /// As after a silence of the waiting member that was too long.
    pub(crate) async fn end_patience(&mut self, member: impl Into<Party>) {
        let member = member.into();
        self.change(|state, now_ms| state.set_alive_until(&member, now_ms - 1)).await;
    }

    /// As when the lease of the hold of everything has just ended.
    pub(crate) async fn end_lease(&mut self) {
        self.change(|state, now_ms| state.set_lease_end(Some(now_ms))).await;
    }

    /// As many live waiters of one node that is not connected, on a lock that is not free.
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

    /// The last number of the counter of tokens.
    pub(crate) async fn counter(&mut self) -> u64 {
        match &mut self.scripts {
            Some((_, redis)) => redis.ask(cmd("GET").arg(self.counter.to_string())).await,
            None => lock(&self.function).counter.expect("a number was drawn"),
        }
    }

    /// Sets the counter of tokens, or deletes it.
    pub(crate) async fn set_counter(&mut self, count: Option<u64>) {
        let key = &self.counter_key();
        match (&mut self.scripts, count) {
            (Some((_, redis)), Some(count)) => redis.ask(cmd("SET").arg(key).arg(count)).await,
            (Some((_, redis)), None) => redis.ask(cmd("DEL").arg(key)).await,
            (None, count) => lock(&self.function).counter = count,
        }
    }

    /// All that the server keeps.
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

    /// Whether nothing is kept of the lock.
    pub(crate) async fn is_empty(&mut self) -> bool {
        self.state().await.0.is_empty()
    }

    /// Three minutes later nothing is kept of the lock. In Redisson's layout, a JVM expects its
    /// queue and its token not to end.
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
