//! Random sequences: after each command the same answer, the same pokes and the same keys, while JVMs
//! queue, take, subtract, throw out and disappear in between.

use std::collections::BTreeSet;

use lock_tests::Watcher;
use lockcore::internals::protocol::{Answer, Command, LockState, Message, step_with_peers};
use lockcore::internals::{Leaving, LockName, Member, Mode};
use redis::{Cmd, cmd};

use super::random::Random;
use super::world::{LOCKS, STRANGE, THREADS, World, lock_of};
use crate::case::time_of;
use crate::comparison::{self, Clock};
use crate::snapshot::{self, Snapshot};

const COMMANDS: usize = 150;
const LEASES_MS: [u64; 5] = [100, 300, 2_500, 30_000, 120_000];

/// What all sequences together must have met, or they compare too little.
const MET: [&str; 16] = [
    "granted",
    "queued",
    "busy",
    "full",
    "refused",
    "released",
    "waiting",
    "gone",
    "left",
    "passed over",
    "stopped",
    "a suspect",
    "a suspect beside an older one",
    "a JVM dropped",
    "taken back",
    "taken back for another node",
];

struct Sequence<'a> {
    world: &'a mut World,
    random: Random,
    lock: LockName,
    members: Vec<Vec<Member>>,
    expected_pokes: Vec<String>,
    undecided: usize,
    met: BTreeSet<&'static str>,
}

#[tokio::test]
async fn lua_and_rust_agree_on_every_command_in_a_queue_shared_with_jvms() {
    let mut world = World::start().await;
    let _watcher = Watcher::start(&world.server.url()).await;
    let (mut met, mut undecided) = (BTreeSet::new(), 0);
    let seeds = 1..=LOCKS;
    let commands = seeds.clone().count() * COMMANDS;
    for seed in seeds {
        world.redis.flush_all().await;
        world.redis.ask::<()>(cmd("HSET").arg(STRANGE).arg("name").arg("Ada")).await;
        let lock = LockName::from(&*lock_of(seed));
        let members = vec![Vec::new(); world.nodes.len()];
        let mut sequence = Sequence {
            world: &mut world,
            random: Random::new(seed),
            lock,
            members,
            expected_pokes: Vec::new(),
            undecided: 0,
            met: BTreeSet::new(),
        };
        for number in 0..COMMANDS {
            if sequence.random.chance(40) {
                sequence.interfere().await;
            }
            if let Err(difference) = sequence.compare_one().await {
                panic!("seed {seed}, command {number}:\n{difference}");
            }
        }
        undecided += sequence.undecided;
        met.append(&mut sequence.met);
    }
    assert!(undecided * 10 < commands, "{undecided} of {commands} could not be judged");
    let missed: Vec<_> = MET.iter().filter(|what| !met.contains(**what)).collect();
    assert!(missed.is_empty(), "never met {missed:?}");
}

impl Sequence<'_> {
    async fn compare_one(&mut self) -> Result<(), String> {
        let node = self.random.below(self.world.nodes.len());
        let before = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        let command = self.command(node, &before.state);
        let answer = self.world.nodes[node].run(&self.lock, &command).await;
        let after = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        let told = format!("{command:?}\nby node {node}, at\n{before:#?}\n");
        let mut answer = answer.map_err(|error| format!("{told}{error:?}"))?;
        let now_us = time_of(&answer);
        let clock = Clock { before: before.at_ms(), now: now_us / 1_000, after: after.at_ms() };
        let mut state = before.state.clone();
        let world = &*self.world;
        let connected = |node: &str| world.is_connected(node);
        let id = &world.nodes[node].id;
        let (expected, messages) =
            step_with_peers(&mut state, &connected, &World::listens, id, &command, now_us);
        if Snapshot::expires_within(&before.state, clock.before, clock.after)
            || Snapshot::expires_within(&state, clock.before, clock.after)
        {
            self.undecided += 1;
            self.world.poked().await;
            return Ok(());
        }
        self.note(node, &before.state, &state, &expected, &messages);
        let channel =
            |member| format!("redisson_lock__channel:{{{}}}:{member}", self.lock.as_str());
        self.expected_pokes = messages
            .iter()
            .filter_map(|message| match message {
                Message::Poke { member } if World::listens(member.as_str()) => {
                    Some(channel(member))
                }
                _ => None,
            })
            .collect();
        comparison::settle_answer(clock, &expected, &mut answer);
        if answer != expected {
            return Err(format!("{told}Lua answers  {answer:?}\nRust answers {expected:?}"));
        }
        let mut actual = after.state.clone();
        comparison::settle_shared(clock, &state, &mut actual);
        comparison::forget_what_is_apart(&mut actual);
        comparison::forget_what_is_apart(&mut state);
        if actual != state {
            return Err(format!("{told}Lua leaves {actual:#?}\nRust leaves {state:#?}"));
        }
        let poked = self.world.poked().await;
        if poked != self.expected_pokes {
            return Err(format!("{told}poked {poked:?}, expected {:?}", self.expected_pokes));
        }
        Ok(())
    }

    fn note(
        &mut self,
        node: usize,
        before: &LockState,
        after: &LockState,
        answer: &Answer,
        said: &[Message],
    ) {
        let text = format!("{answer:?}").to_lowercase();
        for what in
            ["granted", "queued", "busy", "full", "refused", "released", "waiting", "gone", "left"]
        {
            if text.contains(&format!("outcome: {what}")) || text.contains(&format!("[{what}")) {
                self.met.insert(what);
            }
        }
        if matches!(answer, Answer::Released(reply) if reply.passed_over > 0) {
            self.met.insert("passed over");
        }
        let stopped = after.hold.is_none() && after.queue.iter().any(|m| m.ours().is_none());
        let poked: Vec<_> = said.iter().filter(|m| matches!(m, Message::Poke { .. })).collect();
        if stopped && !poked.is_empty() {
            self.met.insert("stopped");
        }
        let (old, suspects) = (&before.suspects.since_ms, &after.suspects.since_ms);
        if suspects.keys().any(|suspect| !old.contains_key(suspect)) {
            self.met.insert("a suspect");
            if suspects.keys().any(|suspect| old.contains_key(suspect)) {
                self.met.insert("a suspect beside an older one");
            }
        }
        let dropped = |m: &&Member| m.ours().is_none() && !after.queue.contains(*m);
        let is_known = |m: &Member| old.keys().any(|(suspect, _)| suspect == m);
        if before.queue.iter().filter(dropped).any(is_known) {
            self.met.insert("a JVM dropped");
        }
        let back = |m: &&Member| before.alive.get(m).is_some() && !before.queue.contains(*m);
        let id = &self.world.nodes[node].id;
        for member in after.queue.iter().filter(back) {
            self.met.insert("taken back");
            if !member.is_of(id) {
                self.met.insert("taken back for another node");
            }
        }
    }

    fn command(&mut self, node: usize, state: &LockState) -> Command {
        match self.random.below(100) {
            0..34 => {
                let fresh = self.random.chance(75) || self.members[node].is_empty();
                let member = if fresh { self.fresh(node) } else { self.known(node, state) };
                let mode = if self.random.chance(25) { Mode::Try } else { Mode::Wait };
                let queue_limit = *self.random.one_of(&[1, 3, 6, 1_000, 1_000]);
                Command::Acquire { member, mode, queue_limit }
            }
            34..56 => Command::Release { member: self.likely_holder(node, state) },
            56..62 => Command::Renew { member: self.likely_holder(node, state) },
            62..80 => {
                let count = 1 + self.random.below(4);
                Command::Touch { members: (0..count).map(|_| self.known(node, state)).collect() }
            }
            80..90 => {
                let one = |this: &mut Self| Leaving {
                    member: this.known(node, state),
                    ambiguous: this.random.chance(20),
                };
                Command::Leave { leaving: vec![one(self), one(self)] }
            }
            90..94 => Command::ForceRelease,
            _ => Command::Inspect,
        }
    }

    fn fresh(&mut self, node: usize) -> Member {
        let member = self.world.nodes[node].member(*self.random.one_of(&LEASES_MS));
        self.members[node].push(member.clone());
        member
    }

    fn known(&mut self, node: usize, state: &LockState) -> Member {
        let id = &self.world.nodes[node].id;
        let alive: Vec<_> = state.alive.iter().map(|(_, m)| m).filter(|m| m.is_of(id)).collect();
        if !alive.is_empty() && self.random.chance(70) {
            return (*self.random.one_of(&alive)).clone();
        }
        let members = &self.members[node];
        if members.is_empty() {
            return self.fresh(node);
        }
        members[members.len() - 1 - self.random.below(members.len().min(6))].clone()
    }

    fn likely_holder(&mut self, node: usize, state: &LockState) -> Member {
        let id = &self.world.nodes[node].id;
        match &state.hold {
            Some(hold) if hold.member.is_of(id) => hold.member.clone(),
            _ => self.known(node, state),
        }
    }

    /// What JVMs, time and operators do.
    async fn interfere(&mut self) {
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
                if let Some(member) = some {
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

    async fn ask(&mut self, command: &Cmd) {
        let _: redis::Value = self.world.redis.ask(command).await;
    }
}
