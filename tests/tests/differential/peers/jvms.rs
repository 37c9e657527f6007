//! What JVMs do in a random sequence: they queue, take, subtract, throw out and disappear.

use lockcore::internals::Party;
use lockcore::internals::protocol::redisson::{LockState, Message, is_member};
use redis::cmd;

use super::THREADS;
use crate::case::Case;
use crate::snapshot::{self, Snapshot};

/// What all sequences together must have met besides, or they compare too little.
pub(crate) const MET: [&str; 6] = [
    "stopped",
    "a suspect",
    "a suspect beside an older one",
    "a JVM dropped",
    "taken back",
    "taken back for another node",
];

impl Case<'_> {
    pub(crate) fn note_jvms(
        &mut self,
        node: usize,
        before: &LockState,
        after: &LockState,
        said: &[Message],
    ) {
        let mut met = Vec::new();
        let stopped = after.hold.is_none() && after.queue.iter().any(|m| m.ours().is_none());
        let poked: Vec<_> = said.iter().filter(|m| matches!(m, Message::Poke { .. })).collect();
        if stopped && !poked.is_empty() {
            met.push("stopped");
        }
        let (old, suspects) = (&before.suspects.since_ms, &after.suspects.since_ms);
        if suspects.keys().any(|suspect| !old.contains_key(suspect)) {
            met.push("a suspect");
            if suspects.keys().any(|suspect| old.contains_key(suspect)) {
                met.push("a suspect beside an older one");
            }
        }
        let dropped = |m: &&Party| m.ours().is_none() && !after.queue.contains(*m);
        let is_known = |m: &Party| old.keys().any(|(suspect, _)| suspect == m);
        if before.queue.iter().filter(dropped).any(is_known) {
            met.push("a JVM dropped");
        }
        let back = |m: &&Party| before.alive.get(m).is_some() && !before.queue.contains(*m);
        let id = &self.world.nodes[node].id;
        for member in after.queue.iter().filter(back) {
            met.push("taken back");
            if !member.ours().is_some_and(|member| member.is_of(id)) {
                met.push("taken back for another node");
            }
        }
        self.tally.seen.extend(met.into_iter().map(str::to_owned));
    }

    /// What JVMs, time and operators do.
    pub(crate) async fn act_as_jvms(&mut self) {
        let [hold, queue, scores, token, alive, arrivals, suspects] =
            snapshot::keys(self.lock.as_str());
        let seen = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        let (state, now) = (&seen.state, seen.at_ms());
        let thread = *self.random.one_of(&THREADS);
        let some = (!state.queue.is_empty())
            .then(|| state.queue[self.random.below(state.queue.len())].clone());
        match self.random.below(14) {
            0..4 if !state.queue.iter().any(|m| m.as_str() == thread) => {
                let last = state.queue.back().and_then(|last| state.deadlines.get(last));
                let wait = *self.random.one_of(&[100, 5_000, 300_000]);
                self.ask(cmd("RPUSH").arg(&queue).arg(thread)).await;
                self.ask(cmd("ZADD").arg(&scores).arg(last.unwrap_or(now) + wait).arg(thread))
                    .await;
            }
            4 if state.hold.is_none() => {
                self.ask(cmd("LPOP").arg(&queue)).await;
                if let Some(head) = state.queue.front() {
                    self.ask(cmd("ZREM").arg(&scores).arg(head.as_str())).await;
                }
                self.subtract(state, 0).await;
                self.ask(cmd("HSET").arg(&hold).arg(thread).arg(1)).await;
                self.ask(cmd("PEXPIRE").arg(&hold).arg(30_000)).await;
            }
            5 if state.hold.as_ref().is_some_and(|hold| hold.member.ours().is_none()) => {
                self.ask(cmd("DEL").arg(&hold)).await;
            }
            // It leaves, or throws out the head.
            6 | 7 if !state.queue.is_empty() => {
                let head = state.queue[0].clone();
                self.ask(cmd("LPOP").arg(&queue)).await;
                self.ask(cmd("ZREM").arg(&scores).arg(head.as_str())).await;
                self.subtract(state, 0).await;
            }
            8 => {
                for ((member, score_ms), since_ms) in &state.suspects.since_ms {
                    let since_ms = since_ms - *self.random.one_of(&[0, 3_000, 8_001]);
                    let suspect = format!("{score_ms} {member}");
                    self.ask(cmd("ZADD").arg(&suspects).arg(since_ms).arg(suspect)).await;
                }
            }
            9 => {
                if let Some(member) = some.filter(|m| m.ours().is_some()) {
                    let at_ms = now + *self.random.one_of(&[0, 3_000, 9_000]) - 5;
                    self.ask(cmd("ZADD").arg(&alive).arg("XX").arg(at_ms).arg(member.as_str()))
                        .await;
                }
            }
            10 => {
                // A score of another program's entry would make the sorted set that program's, too.
                if let Some(member) = some.filter(|member| is_member(member.as_str())) {
                    let at_ms = now + *self.random.one_of(&[0, 400_000]) - 5;
                    self.ask(cmd("ZADD").arg(&scores).arg(at_ms).arg(member.as_str())).await;
                }
            }
            11 => {
                let key = *self.random.one_of(&[&queue, &scores, &alive, &arrivals, &token]);
                self.ask(cmd("DEL").arg(key)).await;
            }
            12 => self.ask(cmd("PEXPIRE").arg(&queue).arg(60_000)).await,
            13 => self.ask(cmd("PEXPIRE").arg(&hold).arg(20)).await,
            _ => {}
        }
        // One expiry for both, as every client that writes them leaves it.
        let ttl: i64 = self.world.redis.ask(cmd("PTTL").arg(&queue)).await;
        match ttl {
            ..0 => self.ask(cmd("PERSIST").arg(&scores)).await,
            _ => self.ask(cmd("PEXPIRE").arg(&scores).arg(ttl)).await,
        }
    }

    /// What a JVM does to those behind it.
    async fn subtract(&mut self, state: &LockState, at: usize) {
        let [_, _, scores, ..] = snapshot::keys(self.lock.as_str());
        let step = *self.random.one_of(&[-1_000, -300_000]);
        for member in state.queue.iter().skip(at + 1) {
            if state.deadlines.get(member).is_some() {
                self.ask(cmd("ZINCRBY").arg(&scores).arg(step).arg(member.as_str())).await;
            }
        }
    }
}
