//! One random sequence: commands, and other changes of the keys besides.

use std::num::NonZeroU32;

use lock_tests::refused_unchanged;
use lockcore::internals::protocol::queue::{Call, Held, Message, QueueState};
use lockcore::internals::{ALL, Answer, Command, Demand, Label, Leaving, Member, Mode, Renewed};
use redis::{Cmd, cmd};

use crate::comparison;
use crate::fuzz::Tally;
use crate::random::{Choices, Random};
use crate::snapshot::{self, COUNTER, Snapshot};
use crate::world::{Heard, World};

/// Some have another claim, the longest moves the expiry of the keys.
const LEASES_MS: [u64; 5] = [300, 2_500, 7_000, 30_000, 120_000];
/// How far the clock of a server that was replaced is ahead.
const AHEAD_US: u64 = 5_000_000;

/// The demands of requests, and the events besides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Locks,
    ReadWrite,
    Semaphore,
    MixedLimits,
    /// Parts of the keys disappear.
    Damaged,
    /// Other programs use the names.
    Strange,
}

struct Case<'a> {
    world: &'a mut World,
    random: Random,
    kind: Kind,
    /// Which of the scripts: as they are, or with small bounds.
    bounds: usize,
    /// Oldest first.
    members: Vec<Member>,
    expected: Heard,
    tally: &'a mut Tally,
}

/// The outcomes that all the cases together must have met, or they compare too little.
pub(crate) const MET: [&str; 19] = [
    "Granted",
    "Queued",
    "Busy",
    "Full",
    "Refused",
    "Released",
    "NotHeld",
    "Held",
    "NotRenewed",
    "Confirmed",
    "Waiting",
    "Holding",
    "Gone",
    "Left",
    "Absent",
    "several grants in a message",
    "a revocation",
    "passed over",
    "more",
];

/// Runs a sequence; says where the two sides differ.
pub(crate) async fn run(
    world: &mut World,
    kind: Kind,
    choices: Choices,
    tally: &mut Tally,
) -> Result<(), String> {
    world.begin().await;
    let (random, expected) = (Random::new(Vec::new()), Heard::new());
    let mut case = Case { world, random, kind, bounds: 0, members: Vec::new(), expected, tally };
    for (at, draws) in choices.into_iter().flatten().enumerate() {
        case.random = Random::new(draws);
        if at == 0 {
            case.bounds = usize::from(case.random.chance(60));
        }
        if case.random.chance(40) {
            case.interfere().await;
        }
        case.compare_one().await?;
        case.tally.commands += 1;
    }
    let heard = case.world.heard().await;
    if heard != case.expected {
        return Err(format!("heard {heard:#?}\nexpected {:#?}", case.expected));
    }
    Ok(())
}

impl Case<'_> {
    /// Runs one command on both sides.
    async fn compare_one(&mut self) -> Result<(), String> {
        let node = self.random.below(self.world.nodes.len());
        let before = Snapshot::take(&mut self.world.redis, self.world.lock.as_str()).await;
        let command = self.command(node, &before.state);
        let counter = before.counter.unwrap_or(0);
        // Below the counter, at its next number, or ahead of the clock.
        let floor_us = match self.random.below(20) {
            0 => before.at_us + AHEAD_US,
            1 => counter + 1,
            2 => counter.max(1),
            _ => before.at_us.saturating_sub(AHEAD_US),
        }
        .min((1 << 53) - 10);
        let elsewhere_us = if self.random.chance(10) {
            [counter.saturating_sub(1), counter, before.at_us, floor_us][self.random.below(4)]
                .min(floor_us)
        } else {
            0
        };
        let World { redis, scripts, lock, nodes, .. } = &mut *self.world;
        let (bounds, scripts) = &mut scripts[self.bounds];
        let bounds = *bounds;
        scripts.floors_us = [floor_us, elsewhere_us];
        let answer = scripts.run(redis, lock, &nodes[node].id, &command).await;
        let after = Snapshot::take(&mut self.world.redis, self.world.lock.as_str()).await;
        let told = format!(
            "{command:?}\nby node {node}, floor {floor_us}, elsewhere {elsewhere_us}, counter {:?}, at {}\n{:#?}\n",
            before.counter,
            before.at_us / 1_000,
            before.state
        );
        let is_refused = before.is_refused(&command);
        if is_refused.unwrap_or(answer.is_err()) {
            self.tally.seen.insert("refused as strange".to_owned());
            return refused_unchanged(&answer, before.content(), after.content())
                .map_err(|difference| format!("{told}{:?}\n{difference}", before.strange));
        }
        let untouchable = before.untouchable(&command);
        if before.content_of(&untouchable) != after.content_of(&untouchable) {
            return Err(format!("{told}changed one of {untouchable:?}"));
        }
        let answer = answer.map_err(|error| format!("{told}{error:?}"))?;
        // A short way may not have looked at it, and the messages so far count no more.
        if !before.strange.is_empty() {
            self.world.heard().await;
            self.expected.clear();
            return Ok(());
        }

        // A short way does not tell the clock.
        let now_us = answer.now_us().unwrap_or(before.at_us);
        let took_ms = after.at_us.abs_diff(before.at_us) / 1_000 + 2;
        let mut state = before.state.clone();
        let world = &*self.world;
        let connected = |node: &str| world.is_connected(node);
        let mut call = Call::new(&world.nodes[node].id, &connected, now_us);
        (call.bounds, call.counter) = (bounds, before.counter);
        (call.floor_us, call.elsewhere_us) = (floor_us, elsewhere_us);
        let mut expected = state.step(&mut call, &command);
        let (messages, counter) = (call.messages, call.counter);
        self.note(&command, &expected, &messages);
        self.world.expect(&mut self.expected, &messages);
        comparison::leave_out(&mut expected, &answer, took_ms);
        if answer != expected {
            return Err(format!("{told}Lua answers  {answer:?}\nRust answers {expected:?}"));
        }
        let actual = &after.state;
        // A short way at the door of a lock does not drop the parts beside it.
        if answer.now_us().is_none() && whole(&before.state).is_some() {
            (state.holds, state.reduced) =
                (before.state.holds.clone(), before.state.reduced.clone());
            state.holds_end_ms = before.state.holds_end_ms;
        }
        state.expire(after.at_us / 1_000);
        comparison::settle(&mut state, actual, took_ms);
        if *actual != state {
            return Err(format!("{told}Lua leaves {actual:#?}\nRust leaves {state:#?}"));
        }
        if after.counter != counter {
            return Err(format!("{told}Lua counts {:?}, Rust {counter:?}", after.counter));
        }
        Ok(())
    }

    fn note(&mut self, command: &Command, answer: &Answer, messages: &[Message]) {
        let mut seen = Vec::new();
        if matches!(command, Command::Confirm { .. }) && !answer.grants().is_empty() {
            seen.push("Confirmed".to_owned());
        }
        let (passed_over, more) = match answer {
            Answer::Acquired(reply) => {
                let outcome = format!("{:?}", reply.outcome);
                seen.push(outcome.split(' ').next().unwrap_or_default().to_owned());
                (reply.passed_over, reply.more)
            }
            Answer::Released(reply) => {
                seen.push(format!("{:?}", reply.outcome));
                (reply.passed_over, reply.more)
            }
            Answer::Renewed(reply) => {
                let word = |renewed: &Renewed| match renewed {
                    Renewed::Held => "Held".to_owned(),
                    Renewed::NotHeld => "NotRenewed".to_owned(),
                };
                seen.extend(reply.outcome.iter().map(word));
                (reply.passed_over, reply.more)
            }
            Answer::Touched(reply) => {
                seen.extend(reply.outcome.members.iter().map(|one| format!("{one:?}")));
                (reply.passed_over, reply.more)
            }
            Answer::Left(reply) => {
                seen.extend(reply.outcome.iter().map(|left| format!("{left:?}")));
                (reply.passed_over, reply.more)
            }
            Answer::Inspected(_) => (0, false),
        };
        if passed_over > 0 {
            seen.push("passed over".to_owned());
        }
        if more {
            seen.push("more".to_owned());
        }
        for message in messages {
            match message {
                Message::Grants { grants, .. } if grants.len() > 1 => {
                    seen.push("several grants in a message".to_owned());
                }
                Message::Revoked { .. } => seen.push("a revocation".to_owned()),
                Message::Grants { .. } => {}
            }
        }
        self.tally.seen.extend(seen);
    }

    fn command(&mut self, node: usize, state: &QueueState) -> Command {
        match self.random.below(100) {
            0..38 => {
                let fresh = self.random.chance(80);
                let member = if fresh { self.fresh(node) } else { self.known(node, state) };
                let mode = if self.random.chance(20) { Mode::Try } else { Mode::Wait };
                let queue_limit = *self.random.one_of(&[1, 3, 6, 1_000, 1_000, 1_000]);
                Command::Acquire { member, mode, queue_limit }
            }
            38..58 => Command::Release { member: self.likely_holder(node, state) },
            58..64 => {
                let count = 1 + self.random.below(3);
                Command::Renew {
                    members: (0..count).map(|_| self.likely_holder(node, state)).collect(),
                }
            }
            64..66 => Command::Confirm { member: self.likely_holder(node, state) },
            66..72 => {
                let member = self.likely_holder(node, state);
                let weight = *self.random.one_of(&[1, 1, 2, ALL]);
                Command::Reduce { member, weight: NonZeroU32::new(weight).expect("not 0") }
            }
            72..84 => {
                let count = 1 + self.random.below(4);
                Command::Touch { members: (0..count).map(|_| self.known(node, state)).collect() }
            }
            84..93 => {
                let count = 1 + self.random.below(3);
                let mut leaving: Vec<Leaving> = Vec::new();
                for _ in 0..count {
                    let member = self.known(node, state);
                    let ambiguous = self.random.chance(20);
                    leaving.push(Leaving { member, ambiguous });
                }
                Command::Leave { leaving }
            }
            93..96 => {
                let one = self.random.chance(70);
                Command::ForceRelease { member: one.then(|| self.likely_holder(node, state)) }
            }
            _ => Command::Inspect,
        }
    }

    fn demand(&mut self) -> Demand {
        let kind = match self.kind {
            Kind::Damaged | Kind::Strange => *self.random.one_of(&[
                Kind::Locks,
                Kind::ReadWrite,
                Kind::Semaphore,
                Kind::MixedLimits,
            ]),
            kind => kind,
        };
        let (weight, limit) = match kind {
            Kind::Locks => return Demand::ALONE,
            Kind::ReadWrite if self.random.chance(60) => return Demand::READ,
            Kind::ReadWrite => return Demand::ALONE,
            Kind::Semaphore => (1 + self.random.below(3) as u32, 3),
            _ if self.random.chance(15) => return Demand::ALONE,
            _ if self.random.chance(15) => return Demand::READ,
            _ => {
                let limit = *self.random.one_of(&[2, 3, 5]);
                (1 + self.random.below(limit as usize) as u32, limit)
            }
        };
        Demand::permits(weight, limit).expect("a demand")
    }

    fn fresh(&mut self, node: usize) -> Member {
        let (lease_ms, demand) = (*self.random.one_of(&LEASES_MS), self.demand());
        let number = self.members.len() as u64 + 1;
        let id = &self.world.nodes[node].id;
        let member = Member::new(id, number, lease_ms, demand, &Label::new("a label"));
        self.members.push(member.clone());
        member
    }

    /// One of the node's members: rather one that is still there, else one of the latest.
    fn known(&mut self, node: usize, state: &QueueState) -> Member {
        let id = self.world.nodes[node].id.clone();
        let passed = state.passed.values().flat_map(|passed| passed.members.iter());
        let there = state.holds.iter().chain(state.queue.iter()).chain(passed);
        let there = there.map(|(_, member)| member).chain(whole(state));
        let there: Vec<_> = there.filter(|member| member.node() == id.as_str()).collect();
        if !there.is_empty() && self.random.chance(70) {
            return (*self.random.one_of(&there)).clone();
        }
        let mine = self.members.iter().rev().filter(|member| member.node() == id.as_str());
        let latest: Vec<_> = mine.take(6).cloned().collect();
        if latest.is_empty() { self.fresh(node) } else { self.random.one_of(&latest).clone() }
    }

    /// Whose hold is to be given back or renewed: mostly one there is.
    fn likely_holder(&mut self, node: usize, state: &QueueState) -> Member {
        let id = self.world.nodes[node].id.clone();
        let held = state.holds.iter().map(|(_, member)| member).chain(whole(state));
        let held: Vec<_> = held.filter(|member| member.node() == id.as_str()).collect();
        if !held.is_empty() && self.random.chance(85) {
            return (*self.random.one_of(&held)).clone();
        }
        self.known(node, state)
    }

    /// Something besides commands.
    async fn interfere(&mut self) {
        let seen = Snapshot::take(&mut self.world.redis, self.world.lock.as_str()).await;
        let [door, _, holds, ..] = snapshot::keys(self.world.lock.as_str());
        let now = seen.at_us / 1_000;
        let held: Vec<Member> = seen.state.holds.iter().map(|(_, held)| held.clone()).collect();
        let waiting: Vec<Member> = seen.state.queue.iter().map(|(_, one)| one.clone()).collect();
        match self.random.below(14) {
            0..3 => {
                let node = self.random.below(self.world.nodes.len());
                let is_connected = self.world.nodes[node].is_connected;
                self.world.connect(node, !is_connected).await;
            }
            // A lease that has ended.
            3..6 if !held.is_empty() => {
                let member = self.random.one_of(&held).clone();
                let at_ms = now - 2;
                self.ask(cmd("ZADD").arg(&holds).arg("XX").arg(at_ms).arg(member.as_str())).await;
            }
            3..6 if whole(&seen.state).is_some() => {
                let left_ms = *self.random.one_of(&[59_000, 59_000, 90_000]);
                self.ask(cmd("PEXPIRE").arg(&door).arg(left_ms)).await;
            }
            // A silence that lasted, or nearly.
            6..9 if !waiting.is_empty() => {
                let head = self.random.chance(50);
                let member = if head { &waiting[0] } else { self.random.one_of(&waiting) };
                let key = format!("{door}:patience:{}", member.node());
                let command = match self.random.below(3) {
                    0 => cmd("PEXPIRE").arg(&key).arg(5_000).clone(),
                    _ => cmd("DEL").arg(&key).clone(),
                };
                self.ask(&command).await;
            }
            9 => {
                let number =
                    *self.random.one_of(&[5, -7, seen.at_us as i64 + 3_600_000_000, 1 << 54]);
                let command = match self.random.below(3) {
                    0 => cmd("DEL").arg(COUNTER).clone(),
                    _ => cmd("SET").arg(COUNTER).arg(number).clone(),
                };
                self.ask(&command).await;
            }
            10 => self.ask(cmd("PERSIST").arg(&door)).await,
            11..14 if self.kind == Kind::Damaged => self.damage(&seen.state).await,
            11..14 if self.kind == Kind::Strange => self.act_as_another_program().await,
            _ => {}
        }
    }

    async fn damage(&mut self, state: &QueueState) {
        let [door, queue, holds, reduced, gone] = snapshot::keys(self.world.lock.as_str());
        let set = |text: &str| cmd("SET").arg(&door).arg(text).arg("KEEPTTL").clone();
        let command = match (self.random.below(8), whole(state)) {
            (0 | 1, _) => cmd("DEL").arg(&door).clone(),
            (2, _) => cmd("DEL").arg(&queue).clone(),
            (3, _) => cmd("DEL").arg(&holds).clone(),
            (4, _) => cmd("DEL").arg(&reduced).clone(),
            (5, _) => cmd("DEL").arg(&gone).clone(),
            // Without its mark, or without its sum.
            (_, Some(member)) => set(member.as_str()),
            _ if state.door.is_some() => set("+*0:0"),
            _ => return,
        };
        self.ask(&command).await;
    }

    /// Writes at one of the names, or deletes the key there.
    async fn act_as_another_program(&mut self) {
        let mut keys = snapshot::keys(self.world.lock.as_str()).to_vec();
        keys.push(COUNTER.to_owned());
        let key = self.random.one_of(&keys).clone();
        self.ask(cmd("DEL").arg(&key)).await;
        let command = match self.random.below(8) {
            0 => cmd("HSET").arg(&key).arg("name").arg("Ada").clone(),
            1 => cmd("SET").arg(&key).arg("*3").clone(),
            2 => cmd("ZADD").arg(&key).arg(5).arg("another").clone(),
            3 => cmd("ZADD").arg(&key).arg(5).arg("~2short:1:30000:w:x").clone(),
            4 => cmd("SET").arg(&key).arg("text").clone(),
            5 => cmd("SET").arg(&key).arg("~2short:1:30000:w:x").arg("PX").arg(90_000).clone(),
            _ => return,
        };
        self.ask(&command).await;
    }

    async fn ask(&mut self, command: &Cmd) {
        let answer = self.world.redis.try_ask::<redis::Value>(command).await;
        // The key of another program may be of another type.
        let is_strange = self.kind == Kind::Strange;
        assert!(answer.is_ok() || is_strange, "{answer:?} to {command:?}");
    }
}

/// The member that holds everything, or held it until now.
fn whole(state: &QueueState) -> Option<&Member> {
    match &state.door.as_ref()?.held {
        Held::Whole(member) => Some(member),
        Held::Parts { .. } => None,
    }
}
