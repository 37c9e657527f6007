//! One lock on a server, whose queue the nodes share with JVMs.

use lockcore::internals::{Acquired, LockName, Member, Mode, Presence, Reply};
use redis::aio::PubSub;
use redis::cmd;

use super::THREADS;
use crate::node::Node;
use crate::snapshot::{Snapshot, keys};
use crate::world::{LOCK, World, poke_channel};

pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) lock: LockName,
    /// The thread that listens.
    _thread: PubSub,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let (world, lock) = (World::start().await, LockName::from(LOCK));
        let thread = world.subscribe(&poke_channel(&lock, THREADS[0])).await;
        Self { world, lock, _thread: thread }
    }

    pub(crate) fn node(&self, number: usize) -> &Node {
        &self.world.nodes[number]
    }

    pub(crate) async fn acquire(&self, node: usize) -> (Member, Reply<Acquired>) {
        let member = self.node(node).member(30_000);
        let reply = self.node(node).acquire(&member, Mode::Wait, 100).await;
        (member, reply)
    }

    pub(crate) async fn queued(&self, node: usize) -> Member {
        let (member, reply) = self.acquire(node).await;
        assert!(matches!(reply.outcome, Acquired::Queued { .. }), "{reply:?}");
        member
    }

    pub(crate) async fn touch(&self, node: usize, member: &Member) -> Presence {
        self.node(node).touch(&[member]).await.outcome.members[0]
    }

    pub(crate) async fn release(&self, node: usize, member: &Member) {
        self.node(node).release(member).await;
    }

    pub(crate) async fn look(&mut self) -> Snapshot {
        Snapshot::take(&mut self.world.redis, self.lock.as_str()).await
    }

    /// The channel on which a thread of a JVM waits.
    pub(crate) fn channel(&self, thread: &str) -> String {
        poke_channel(&self.lock, thread)
    }

    /// How often the thread that listens was told to come, since the last call.
    pub(crate) async fn poked(&mut self) -> usize {
        let pokes = self.world.heard().await.pokes;
        pokes.iter().filter(|channel| **channel == self.channel(THREADS[0])).count()
    }

    /// The members that are known not to hear.
    pub(crate) async fn suspects(&mut self) -> Vec<String> {
        let suspects = self.look().await.state.suspects.since_ms;
        suspects.into_keys().map(|(member, _)| member.as_str().to_owned()).collect()
    }

    /// Time passes for those.
    pub(crate) async fn age_suspects(&mut self, ms: u64) {
        let [.., key] = keys(self.lock.as_str());
        for ((member, score_ms), since_ms) in self.look().await.state.suspects.since_ms {
            let suspect = format!("{score_ms} {member}");
            let mut add = cmd("ZADD");
            add.arg(&key).arg("XX").arg(since_ms - ms).arg(suspect);
            let () = self.world.redis.ask(&add).await;
        }
    }

    /// A thread of a JVM comes: its score is the last one's and its own step.
    pub(crate) async fn jvm_queues(&mut self, thread: &str, step_ms: u64) {
        let [_, queue, scores, ..] = keys(self.lock.as_str());
        let seen = self.look().await;
        let last = seen.state.queue.back().and_then(|last| seen.state.deadlines.get(last));
        let score = last.unwrap_or(seen.at_ms()) + step_ms;
        let () = self.world.redis.ask(cmd("RPUSH").arg(&queue).arg(thread)).await;
        let () = self.world.redis.ask(cmd("ZADD").arg(&scores).arg(score).arg(thread)).await;
    }

    /// A thread of a JVM has the lock.
    pub(crate) async fn jvm_holds(&mut self, thread: &str) {
        let [hold, ..] = keys(self.lock.as_str());
        let () = self.world.redis.ask(cmd("HSET").arg(&hold).arg(thread).arg(1)).await;
        let () = self.world.redis.ask(cmd("PEXPIRE").arg(&hold).arg(30_000)).await;
    }

    /// The head, a thread of a JVM, leaves or takes the lock: it subtracts its step from all
    /// others.
    pub(crate) async fn jvm_head_goes(&mut self, step_ms: i64) {
        let [_, queue, scores, ..] = keys(self.lock.as_str());
        let head: String = self.world.redis.ask(cmd("LPOP").arg(&queue)).await;
        let () = self.world.redis.ask(cmd("ZREM").arg(&scores).arg(head)).await;
        let rest = self.world.redis.list(&queue).await;
        for member in rest {
            let mut subtract = cmd("ZINCRBY");
            subtract.arg(&scores).arg(-step_ms).arg(member);
            let () = self.world.redis.ask(&subtract).await;
        }
    }
}
