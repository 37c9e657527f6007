//! One random sequence: commands, and what happens to the keys besides.

use std::time::Duration;

use lock_tests::refused_unchanged;
use lockcore::internals::protocol::redisson::{Call, LockState, Message, Peers};
use lockcore::internals::{Answer, Command, Leaving, LockName, Member, Mode, Party, Renewed};
use redis::{Cmd, cmd};

use crate::comparison::{self, Clock};
use crate::fuzz::Tally;
use crate::peers;
use crate::random::{Choices, Random};
use crate::snapshot::{self, Snapshot};
use crate::world::{self, FOREIGN, Heard, LOCK, STRANGE, World};

/// Short ones end within a case, a middle one has another claim, the longest outlives a token.
const LEASES_MS: [u64; 7] = [100, 150, 300, 2_500, 7_000, 30_000, 120_000];
/// How far the clock of a server that was replaced is ahead.
const AHEAD_US: u64 = 5_000_000;

/// The events besides the commands of our own nodes, and besides those of JVMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Jvms,
    /// Parts of the keys disappear.
    Damaged,
    /// Other programs use the lock's names.
    Strange,
}

impl Kind {
    /// What all the cases together must have met, or they compare too little.
    pub(crate) fn must_meet(self) -> impl Iterator<Item = &'static str> {
        let besides: &[_] = if self == Self::Jvms { &peers::jvms::MET } else { &[] };
        MET.iter().chain(besides).copied()
    }
}

pub(crate) struct Case<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) random: Random,
    kind: Kind,
    pub(crate) lock: LockName,
    /// By node, oldest first.
    members: Vec<Vec<Member>>,
    expected: Heard,
    pub(crate) tally: &'a mut Tally,
    /// What has been done, a line each.
    told: String,
}

const MET: [&str; 16] = [
    "Granted",
    "Queued",
    "Busy",
    "Full",
    "Refused",
    "Released",
    "NotHeld",
    "Held",
    "NotRenewed",
    "Waiting",
    "Holding",
    "Gone",
    "Left",
    "Absent",
    "a grant to another node",
    "passed over",
];

/// Runs a sequence; says where the two sides differ.
pub(crate) async fn run(
    world: &mut World,
    kind: Kind,
    choices: Choices,
    tally: &mut Tally,
) -> Result<(), String> {
    let lock = LockName::from(LOCK);
    world.begin(&lock).await;
    let _thread = world.subscribe(&world::poke_channel(&lock, peers::THREADS[0])).await;
    let members = vec![Vec::new(); world.nodes.len()];
    let (random, expected) = (Random::new(Vec::new()), Heard::default());
    let told = String::new();
    let mut case = Case { world, random, kind, lock, members, expected, tally, told };
    let result = case.run(choices).await;
    result.map_err(|difference| format!("after\n{}{difference}", case.told))
}

impl Case<'_> {
    async fn run(&mut self, choices: Choices) -> Result<(), String> {
        for draws in choices.into_iter().flatten() {
            self.random = Random::new(draws);
            if self.random.chance(30) {
                self.interfere().await;
            }
            self.compare_one().await?;
            self.tally.commands += 1;
        }
        let heard = self.world.heard().await;
        if heard != self.expected {
            return Err(format!("heard {heard:#?}\nexpected {:#?}", self.expected));
        }
        Ok(())
    }

    /// Runs one command on both sides.
    async fn compare_one(&mut self) -> Result<(), String> {
        let node = self.random.below(self.world.nodes.len());
        let before = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        let command = self.command(node, &before.state);
        let seen_us = if self.random.chance(5) { before.at_us + AHEAD_US } else { 0 };
        self.world.nodes[node].seen.set(seen_us);
        let answer = self.world.run(node, &command).await;
        let after = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        self.told += &format!("    node {node}: {command:?}\n");
        let told = format!("{command:?}\nby node {node}, at\n{before:#?}\n");
        if before.is_refused(&command) {
            if Snapshot::expires_within(&before.state, before.at_ms(), after.at_ms()) {
                return self.leave_undecided(&told).await;
            }
            self.tally.seen.insert("refused as strange".to_owned());
            return refused_unchanged(&answer, &before.content(), &after.content())
                .map_err(|difference| format!("{told}{difference}"));
        }
        let mut answer = answer.map_err(|error| format!("{told}{error:?}"))?;

        let now_us = comparison::time_of(&mut answer, &before);
        let clock = Clock { before: before.at_ms(), now: now_us / 1_000, after: after.at_ms() };
        let mut state = before.state.clone();
        let world = &*self.world;
        let connected = |node: &str| world.is_connected(node);
        let mut call = Call::new(&world.nodes[node].id, &connected, now_us);
        call.seen_us = seen_us;
        call.peers = Peers { listens: &peers::listens };
        let expected = state.step(&mut call, &command);
        let messages = call.messages;
        if Snapshot::expires_within(&before.state, clock.before, clock.now)
            || Snapshot::expires_within(&state, clock.before, clock.after)
        {
            return self.leave_undecided(&told).await;
        }
        self.note(&expected, &messages);
        self.note_jvms(node, &before.state, &state, &messages);
        self.expected.add(self.world, &self.lock, messages);
        comparison::settle_answer(clock, &expected, &mut answer);
        if answer != expected {
            return Err(format!(
                "{told}{clock:?}\nLua answers  {answer:?}\nRust answers {expected:?}"
            ));
        }
        let mut actual = after.state.clone();
        comparison::settle_state(clock, &state, &mut actual);
        comparison::forget_what_is_apart(&mut actual);
        comparison::forget_what_is_apart(&mut state);
        if actual != state {
            return Err(format!("{told}{clock:?}\nLua leaves {actual:#?}\nRust leaves {state:#?}"));
        }
        // The one of `company`.
        if after.others != 1 {
            return Err(format!("{told}{} keys of no known name", after.others));
        }
        Ok(())
    }

    /// A key expired at the very instant of the command: either answer is right. What it said is
    /// not known either; all before it is.
    async fn leave_undecided(&mut self, told: &str) -> Result<(), String> {
        self.tally.undecided += 1;
        let (heard, expected) = (self.world.heard().await, std::mem::take(&mut self.expected));
        if !heard.starts_with(&expected) {
            return Err(format!("{told}messages so far: {heard:#?}\nexpected: {expected:#?}"));
        }
        Ok(())
    }

    fn note(&mut self, answer: &Answer, messages: &[Message]) {
        let mut seen = Vec::new();
        let passed_over = match answer {
            Answer::Acquired(reply) => {
                seen.push(format!("{:?}", reply.outcome));
                reply.passed_over
            }
            Answer::Released(reply) => {
                seen.push(format!("{:?}", reply.outcome));
                reply.passed_over
            }
            Answer::Renewed(reply) => {
                let word = |renewed: &Renewed| match renewed {
                    Renewed::Held => "Held".to_owned(),
                    Renewed::NotHeld => "NotRenewed".to_owned(),
                };
                seen.extend(reply.outcome.iter().map(word));
                reply.passed_over
            }
            Answer::Touched(reply) => {
                seen.extend(reply.outcome.members.iter().map(|presence| format!("{presence:?}")));
                reply.passed_over
            }
            Answer::Left(reply) => {
                seen.extend(reply.outcome.iter().map(|left| format!("{left:?}")));
                reply.passed_over
            }
            Answer::Inspected(_) => 0,
        };
        if passed_over > 0 {
            seen.push("passed over".to_owned());
        }
        if messages.iter().any(|message| matches!(message, Message::Grant { .. })) {
            seen.push("a grant to another node".to_owned());
        }
        let first_word = |what: String| match what.split_once(' ') {
            Some((word, _)) if word == "Queued" => word.to_owned(),
            _ => what,
        };
        self.tally.seen.extend(seen.into_iter().map(first_word));
    }

    fn command(&mut self, node: usize, state: &LockState) -> Command {
        match self.random.below(100) {
            0..34 => {
                let fresh = self.random.chance(75) || self.members[node].is_empty();
                let member = if fresh { self.fresh(node) } else { self.known(node, state) };
                let mode = if self.random.chance(25) { Mode::Try } else { Mode::Wait };
                let queue_limit = *self.random.one_of(&[1, 3, 6, 1_000, 1_000, 1_000]);
                Command::Acquire { member, mode, queue_limit }
            }
            34..56 => Command::Release { member: self.likely_holder(node, state) },
            56..62 => Command::Renew { members: vec![self.likely_holder(node, state)] },
            62..64 => Command::Confirm { member: self.likely_holder(node, state) },
            64..78 => {
                let count = 1 + self.random.below(4);
                Command::Touch { members: (0..count).map(|_| self.known(node, state)).collect() }
            }
            78..90 => {
                let count = 1 + self.random.below(3);
                let mut leaving: Vec<Leaving> = Vec::new();
                for _ in 0..count {
                    let member = self.known(node, state);
                    let ambiguous = self.random.chance(20);
                    leaving.push(Leaving { member, ambiguous });
                }
                Command::Leave { leaving }
            }
            90..94 => Command::ForceRelease { member: None },
            _ => Command::Inspect,
        }
    }

    fn fresh(&mut self, node: usize) -> Member {
        let member = self.world.nodes[node].member(*self.random.one_of(&LEASES_MS));
        self.members[node].push(member.clone());
        member
    }

    /// One of the node's members: rather one that is still there, else one of the latest.
    fn known(&mut self, node: usize, state: &LockState) -> Member {
        let id = &self.world.nodes[node].id;
        let hold = state.hold.iter().map(|hold| &hold.member);
        // A member may be alive and thrown out of the queue.
        let thrown_out = state.alive.iter().map(|(_, member)| member);
        let thrown_out = thrown_out.filter(|member| !state.queue.contains(member));
        let there = hold.chain(&state.queue).chain(thrown_out);
        let there = there.filter_map(Party::ours);
        let there: Vec<_> = there.filter(|member| member.is_of(id)).collect();
        if !there.is_empty() && self.random.chance(60) {
            return (*self.random.one_of(&there)).clone();
        }
        let members = &self.members[node];
        if members.is_empty() || self.random.chance(5) {
            return self.fresh(node);
        }
        let latest = members.len().min(6);
        members[members.len() - 1 - self.random.below(latest)].clone()
    }

    /// Whose hold is to be given back or renewed: mostly the one there is.
    fn likely_holder(&mut self, node: usize, state: &LockState) -> Member {
        let id = &self.world.nodes[node].id;
        match state.hold.as_ref().and_then(|hold| hold.member.ours()) {
            Some(holder) if holder.is_of(id) && self.random.chance(70) => holder.clone(),
            _ => self.known(node, state),
        }
    }

    /// Something besides commands.
    async fn interfere(&mut self) {
        let [hold, _, _, token, ..] = snapshot::keys(self.lock.as_str());
        let seen = Snapshot::take(&mut self.world.redis, self.lock.as_str()).await;
        match self.random.below(8) {
            0 => {
                // Past the end of a short lease, now and then.
                let pause = *self.random.one_of(&[2, 2, 5, 30, 110]);
                self.told += &format!("    {pause} ms pass\n");
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            1 if seen.state.hold.is_some() && self.random.chance(50) => {
                self.ask(cmd("PERSIST").arg(&hold)).await;
            }
            1 => {
                let now = seen.at_ms();
                let ahead = (now + 3_600_000) * 1_000;
                let value = if self.random.chance(50) { ahead } else { now };
                self.ask(cmd("SET").arg(&token).arg(value).arg("PX").arg(60_000)).await;
            }
            2..5 if self.kind == Kind::Damaged => self.damage(&seen).await,
            2..5 if self.kind == Kind::Strange => self.act_as_another_program(&seen).await,
            _ => self.act_as_jvms().await,
        }
    }

    /// Writes at one of the lock's names if it is free, or takes what it wrote away.
    async fn act_as_another_program(&mut self, seen: &Snapshot) {
        let [hold, queue, _, token, ..] = snapshot::keys(self.lock.as_str());
        let strange = *self.random.one_of(&STRANGE);
        match self.random.below(4) {
            0 if seen.fields.is_empty() => {
                self.ask(cmd("HSET").arg(&hold).arg(strange).arg(1)).await;
                if self.random.chance(50) {
                    self.ask(cmd("HSET").arg(&hold).arg(FOREIGN[0]).arg(1)).await;
                }
            }
            1 if seen.fields.is_empty() => {
                let count = *self.random.one_of(&["", "one", "-1", "1234567890123456"]);
                self.ask(cmd("HSET").arg(&hold).arg(FOREIGN[0]).arg(count)).await;
            }
            2 if seen.state.queue.is_empty() => {
                self.ask(cmd("RPUSH").arg(&queue).arg(strange).arg(strange)).await;
            }
            3 => self.ask(cmd("SET").arg(&token).arg("no number").arg("PX").arg(60_000)).await,
            _ => {
                let is_strange = |text: &str| STRANGE.contains(&text);
                if seen.fields.iter().any(|(field, _)| is_strange(field)) {
                    self.ask(cmd("DEL").arg(&hold)).await;
                }
                if seen.state.queue.front().is_some_and(|head| is_strange(head.as_str())) {
                    self.ask(cmd("DEL").arg(&queue)).await;
                }
            }
        }
    }

    async fn damage(&mut self, seen: &Snapshot) {
        let [_, queue, scores, _, alive, arrivals, suspects] = snapshot::keys(self.lock.as_str());
        let waiting: Vec<Party> = seen.state.queue.iter().cloned().collect();
        let sets = [&scores, &alive, &arrivals];
        match self.random.below(8) {
            0 => self.ask(cmd("DEL").arg(&queue)).await,
            1 => self.ask(cmd("DEL").arg(&scores)).await,
            2 => self.ask(cmd("DEL").arg(&suspects)).await,
            3 if !waiting.is_empty() => {
                let member = self.random.one_of(&waiting).clone();
                self.ask(cmd("LREM").arg(&queue).arg(1).arg(member.as_str())).await;
            }
            _ if !waiting.is_empty() => {
                let (key, member) = (*self.random.one_of(&sets), self.random.one_of(&waiting));
                let mut remove = cmd("ZREM");
                remove.arg(key).arg(member.as_str());
                self.ask(&remove).await;
            }
            _ => {}
        }
    }

    pub(crate) async fn ask(&mut self, command: &Cmd) {
        let packed = command.get_packed_command();
        let words = String::from_utf8_lossy(&packed).into_owned();
        // Every second line of the protocol is a word, the others are lengths.
        let words: Vec<_> = words.split("\r\n").skip(2).step_by(2).collect();
        self.told += &format!("    {}\n", words.join(" "));
        let _: redis::Value = self.world.redis.ask(command).await;
    }
}
