//! One random sequence: commands, and what happens to the keys besides.

use std::num::NonZeroU32;

use lock_tests::refused_unchanged;
use lockcore::internals::protocol::permits::{ALL, Call, Message, PermitState};
use lockcore::internals::{Answer, Command, Demand, Label, Leaving, Member, Mode, Renewed};
use redis::{Cmd, cmd};

use crate::comparison;
use crate::fuzz::Tally;
use crate::random::{Choices, Random};
use crate::snapshot::{self, Snapshot};
use crate::world::{Heard, World};

/// Some have another claim, the longest moves the expiry of the keys.
const LEASES_MS: [u64; 5] = [300, 2_500, 7_000, 30_000, 120_000];
/// How far the clock of a server that was replaced is ahead.
const AHEAD_US: u64 = 5_000_000;

/// What requests ask for, and what happens besides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// What all the cases together must have met, or they compare too little.
pub(crate) const MET: [&str; 18] = [
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
        let seen_us = if self.random.chance(5) { before.at_us + AHEAD_US } else { 0 };
        // Before the token of a moment ago, after it, or ahead of the clock.
        let elsewhere_us = if self.random.chance(10) {
            let token = before.state.token.map_or(0, |token| token.get());
            [token.saturating_sub(1), token, before.at_us, seen_us][self.random.below(4)]
        } else {
            0
        };
        let World { redis, permits, lock, nodes, .. } = &mut *self.world;
        let (bounds, permits) = &mut permits[self.bounds];
        let bounds = *bounds;
        permits.seen_us = [seen_us, elsewhere_us];
        let answer = permits.run(redis, lock, &nodes[node].id, &command).await;
        let after = Snapshot::take(&mut self.world.redis, self.world.lock.as_str()).await;
        let told = format!("{command:?}\nby node {node}, at\n{:#?}\n", before.state);
        let is_refused = before.is_refused(&command).unwrap_or(answer.is_err());
        if is_refused {
            self.tally.seen.insert("refused as strange".to_owned());
            return refused_unchanged(&answer, &before.content(), &after.content())
                .map_err(|difference| format!("{told}{difference}"));
        }
        let answer = answer.map_err(|error| format!("{told}{error:?}"))?;

        // A release with none waiting does not look at the clock.
        let now_us = answer.now_us().unwrap_or(before.at_us);
        let mut state = before.state.clone();
        let world = &*self.world;
        let connected = |node: &str| world.is_connected(node);
        let mut call = Call::new(&world.nodes[node].id, &connected, now_us);
        call.bounds = bounds;
        (call.seen_us, call.elsewhere_us) = (seen_us, elsewhere_us);
        let mut expected = state.step(&mut call, &command);
        let messages = call.messages;
        self.note(&expected, &messages);
        self.world.expect(&mut self.expected, &messages);
        comparison::leave_out(&mut expected, &answer);
        if answer != expected {
            return Err(format!("{told}Lua answers  {answer:?}\nRust answers {expected:?}"));
        }
        let mut actual = after.state.clone();
        comparison::settle(&mut actual);
        comparison::settle(&mut state);
        if actual != state {
            return Err(format!("{told}Lua leaves {actual:#?}\nRust leaves {state:#?}"));
        }
        self.compare_expiries(&after, &told)
    }

    /// All keys expire together, when the state says.
    fn compare_expiries(&self, after: &Snapshot, told: &str) -> Result<(), String> {
        let Some(ends_ms) = after.state.ends_ms else { return Ok(()) };
        for (at, name) in ["state", "holds", "queue", "deadlines"].iter().enumerate() {
            let is_apart = *name == "deadlines" && after.state.queue.is_empty();
            let expiry = after.expiries[at];
            if expiry != -2 && expiry != ends_ms as i64 && !is_apart && !after.strange[at] {
                return Err(format!("{told}{name} expires at {expiry}, not at {ends_ms}"));
            }
        }
        Ok(())
    }

    fn note(&mut self, answer: &Answer, messages: &[Message]) {
        let mut seen = Vec::new();
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
                seen.extend(reply.outcome.members.iter().map(|presence| format!("{presence:?}")));
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

    fn command(&mut self, node: usize, state: &PermitState) -> Command {
        match self.random.below(100) {
            0..38 => {
                let fresh = self.random.chance(80);
                let member = if fresh { self.fresh(node) } else { self.known(node, state) };
                let mode = if self.random.chance(20) { Mode::Try } else { Mode::Wait };
                let queue_limit = *self.random.one_of(&[1, 3, 6, 1_000, 1_000, 1_000]);
                Command::Acquire { member, mode, queue_limit }
            }
            38..58 => Command::Release { member: self.likely_holder(node, state) },
            58..66 => {
                let count = 1 + self.random.below(3);
                Command::Renew {
                    members: (0..count).map(|_| self.likely_holder(node, state)).collect(),
                }
            }
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
            Kind::Damaged | Kind::Strange => {
                *self.random.one_of(&[Kind::ReadWrite, Kind::Semaphore, Kind::MixedLimits])
            }
            kind => kind,
        };
        let (weight, limit) = match kind {
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
    fn known(&mut self, node: usize, state: &PermitState) -> Member {
        let id = self.world.nodes[node].id.clone();
        let there = state.holds.iter().chain(state.queue.iter()).map(|(_, member)| member);
        let there: Vec<_> = there.filter(|member| member.node() == id.as_str()).collect();
        if !there.is_empty() && self.random.chance(70) {
            return (*self.random.one_of(&there)).clone();
        }
        let mine = self.members.iter().rev().filter(|member| member.node() == id.as_str());
        let latest: Vec<_> = mine.take(6).cloned().collect();
        if latest.is_empty() { self.fresh(node) } else { self.random.one_of(&latest).clone() }
    }

    /// Whose hold is to be given back or renewed: mostly one there is.
    fn likely_holder(&mut self, node: usize, state: &PermitState) -> Member {
        let id = self.world.nodes[node].id.clone();
        let held = state.holds.iter().map(|(_, member)| member);
        let held: Vec<_> = held.filter(|member| member.node() == id.as_str()).collect();
        if !held.is_empty() && self.random.chance(85) {
            return (*self.random.one_of(&held)).clone();
        }
        self.known(node, state)
    }

    /// Something besides commands.
    async fn interfere(&mut self) {
        let seen = Snapshot::take(&mut self.world.redis, self.world.lock.as_str()).await;
        let [state, holds, queue, deadlines] = snapshot::keys(self.world.lock.as_str());
        let now = seen.at_us / 1_000;
        let held: Vec<Member> = seen.state.holds.iter().map(|(_, held)| held.clone()).collect();
        let waiting: Vec<Member> = seen.state.queue.iter().map(|(_, one)| one.clone()).collect();
        match self.random.below(12) {
            0..2 => {
                let node = self.random.below(self.world.nodes.len());
                let is_connected = self.world.nodes[node].is_connected;
                self.world.connect(node, !is_connected).await;
            }
            // A lease that has ended, or ends with the next few commands.
            2..6 if !held.is_empty() => {
                let member = self.random.one_of(&held).clone();
                let at_ms = now + *self.random.one_of(&[0, 0, 0, 7]) - 2;
                self.ask(cmd("ZADD").arg(&holds).arg("XX").arg(at_ms).arg(member.as_str())).await;
            }
            // A silence that lasted, or nearly.
            6..8 if !waiting.is_empty() => {
                let head = self.random.chance(50);
                let member = if head { &waiting[0] } else { self.random.one_of(&waiting) };
                let member = member.clone();
                let at_ms = now + *self.random.one_of(&[0, 0, 3_000, 6_000]) - 2;
                self.ask(cmd("ZADD").arg(&deadlines).arg("XX").arg(at_ms).arg(member.as_str()))
                    .await;
            }
            8 if seen.state.ends_ms.is_some() => {
                let ahead = (now + 3_600_000) * 1_000;
                self.ask(cmd("HSET").arg(&state).arg("token").arg(ahead)).await;
            }
            // So that the expiry is moved now and then.
            9 if seen.state.ends_ms.is_some() => {
                let soon = now.next_multiple_of(30_000) + 30_000;
                self.ask(cmd("HSET").arg(&state).arg("ends").arg(soon)).await;
                for key in [&state, &holds, &queue, &deadlines] {
                    self.ask(cmd("PEXPIREAT").arg(key).arg(soon)).await;
                }
            }
            10 | 11 if self.kind == Kind::Damaged => self.damage().await,
            10 | 11 if self.kind == Kind::Strange => self.act_as_another_program().await,
            _ => {}
        }
    }

    async fn damage(&mut self) {
        let [state, holds, queue, deadlines] = snapshot::keys(self.world.lock.as_str());
        let command = match self.random.below(8) {
            0 | 1 => cmd("HDEL").arg(&state).arg("used").clone(),
            2 => cmd("HDEL").arg(&state).arg("token").clone(),
            3 => cmd("HDEL").arg(&state).arg("era").clone(),
            4 => cmd("DEL").arg(&state).clone(),
            5 => cmd("DEL").arg(&holds).clone(),
            6 => cmd("DEL").arg(&queue).clone(),
            _ => cmd("DEL").arg(&deadlines).clone(),
        };
        self.ask(&command).await;
    }

    /// Writes at one of the names, or takes what it wrote away.
    async fn act_as_another_program(&mut self) {
        let keys = snapshot::keys(self.world.lock.as_str());
        let key = self.random.one_of(&keys).clone();
        self.ask(cmd("DEL").arg(&key)).await;
        let mark = self
            .members
            .last()
            .map(|member| format!("lock_permits_gone:{{{}}}:{member}", self.world.lock.as_str()));
        let command = match self.random.below(8) {
            0 => cmd("HSET").arg(&key).arg("name").arg("Ada").clone(),
            1 => cmd("HSET").arg(&key).arg("used").arg("3").arg("ends").arg("late").clone(),
            2 => cmd("ZADD").arg(&key).arg(5).arg("another").clone(),
            3 => cmd("ZADD").arg(&key).arg(5).arg("~2short:1:30000:w:x").clone(),
            4 => cmd("SET").arg(&key).arg("text").clone(),
            5 if mark.is_some() => cmd("SET").arg(mark).arg("text").arg("PX").arg(60_000).clone(),
            _ => return,
        };
        self.ask(&command).await;
    }

    async fn ask(&mut self, command: &Cmd) {
        let answer = self.world.redis.try_ask::<redis::Value>(command).await;
        // What another program has put there may be of another type.
        let is_strange = self.kind == Kind::Strange;
        assert!(answer.is_ok() || is_strange, "{answer:?} to {command:?}");
    }
}
