//! Renewals and touches of several locks in one script against the function on each lock: the same
//! answers, messages and keys.

use std::collections::BTreeSet;

use lock_tests::protocol;
use lock_tests::protocol::redisson::{Snapshot, keys};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use proto::wire::{TokenFloors, Wire};
use proto::{Answer, Answers, Command, LockName, Member, Mode, Party};
use redis::cmd;

use super::{Redisson, jvms};
use crate::draw::Draw;
use crate::judge::{Verdict, judge};
use crate::layout::{Kind, Layout as _, Request};
use crate::random::{self, Random};
use crate::world::World;

const LOCKS: usize = 6;
const SEQUENCES: usize = 12;
const STEPS: usize = 120;

/// The cases that must have been met, or too little was compared.
const MET: [&str; 6] = ["Held", "NotHeld", "Waiting", "Holding", "Gone", "strange among others"];

struct Locks {
    world: World,
    random: Random,
    locks: Vec<Lock>,
    met: BTreeSet<String>,
    undecided: usize,
    compared: usize,
}

struct Lock {
    name: LockName,
    /// Oldest first.
    members: Vec<Member>,
}

#[tokio::test]
async fn lua_and_rust_agree_on_renewals_and_touches_of_several_locks() {
    let world = World::start(true).await;
    let lock = |at| Lock { name: LockName::from(&*format!("lock {at}")), members: Vec::new() };
    let (random, met) = (Random::new(Vec::new()), BTreeSet::new());
    let locks = (0..LOCKS).map(lock).collect();
    let mut locks = Locks { world, random, locks, met, undecided: 0, compared: 0 };
    let mut runner = TestRunner::deterministic();
    for sequence in 0..SEQUENCES {
        let choices = random::choices(STEPS).new_tree(&mut runner).expect("choices").current();
        locks.world.begin().await;
        for (number, draws) in choices.into_iter().flatten().enumerate() {
            locks.random = Random::new(draws);
            if let Err(difference) = locks.step().await {
                panic!("sequence {sequence}, step {number}:\n{difference}");
            }
        }
    }
    let Locks { met, undecided, compared, .. } = locks;
    assert!(compared > 1_000, "only {compared} answers were compared");
    assert!(undecided * 10 < compared, "{undecided} of {compared} could not be judged");
    let missed: Vec<_> = MET.iter().filter(|what| !met.contains(**what)).collect();
    assert!(missed.is_empty(), "never met {missed:?}");
}

impl Locks {
    async fn step(&mut self) -> Result<(), String> {
        let wire = self.random.one_of(&self.world.nodes).wire.clone();
        let lock = self.random.below(LOCKS);
        match self.random.below(10) {
            0..4 => {
                let member = self.draw(&wire, lock, |draw| draw.fresh()).await;
                let members = vec![member];
                let command = Command::Acquire { members, mode: Mode::Wait, queue_limit: 6 };
                let _ = self.run(&wire, &[(lock, command)]).await;
            }
            4 => {
                let member = self.draw(&wire, lock, |draw| draw.known()).await;
                let _ = self.run(&wire, &[(lock, Command::Release { member })]).await;
            }
            5 | 6 => self.interfere(lock).await,
            _ => return self.compare(&wire).await,
        }
        Ok(())
    }

    async fn draw(
        &mut self,
        wire: &Wire,
        lock: usize,
        draw: impl FnOnce(&mut Draw<'_, Redisson>) -> Member,
    ) -> Member {
        let Lock { name, members } = &mut self.locks[lock];
        let state = Snapshot::take(&mut self.world.redis, name.as_str()).await.state;
        let random = &mut self.random;
        draw(&mut Draw { random, kind: Kind::Jvms, node: &wire.node, state: &state, members })
    }

    /// Runs commands on these locks, as few scripts as a store would.
    async fn run(&mut self, wire: &Wire, commands: &[(usize, Command)]) -> Answers {
        let named = commands.iter().map(|(lock, command)| (&self.locks[*lock].name, command));
        let commands: Vec<_> = named.collect();
        let mut answers = Answers::new();
        for commands in protocol::by_script(wire, &commands) {
            let floors = TokenFloors::default();
            match protocol::run(&mut self.world.redis, wire, commands, floors).await {
                Ok(each) => answers.extend(each),
                Err(error) => answers.push(Err(error)),
            }
        }
        assert_eq!(answers.len(), commands.len());
        answers
    }

    /// Other programs, JVMs, operators, and silences.
    async fn interfere(&mut self, lock: usize) {
        let name = &self.locks[lock].name;
        let [hold, _, _, token, ..] = keys(name.as_str());
        let redis = &mut self.world.redis;
        let seen = Snapshot::take(redis, name.as_str()).await;
        match self.random.below(9) {
            0 => redis.ask(cmd("HSET").arg(&hold).arg("name").arg("Ada")).await,
            1 => redis.ask(cmd("SET").arg(&token).arg("no number").arg("PX").arg(60_000)).await,
            _ if Redisson::is_strange(&seen) => redis.ask(cmd("DEL").arg(&hold).arg(&token)).await,
            event => {
                let (mut state, now_ms) = (seen.state.clone(), seen.at_ms());
                let jvm = Party::from(jvms::THREADS[0]);
                match event {
                    2 => state.token = None,
                    3 => state.hold = None,
                    4 => {
                        if let Some(hold) = &mut state.hold {
                            hold.expires_ms = None;
                        }
                    }
                    5 => {
                        state.queue.clear();
                        state.deadlines.clear();
                    }
                    6 if !state.queue.contains(&jvm) => {
                        state.deadlines.set(&jvm, now_ms + 300_000);
                        state.queue.push_back(jvm);
                    }
                    _ => {
                        let silence_ms = *self.random.one_of(&[0, 3_000]);
                        if let Some(member) = state.alive.lowest().map(|(_, one)| one.clone()) {
                            state.alive.set(&member, now_ms + silence_ms - 5);
                        }
                    }
                }
                Redisson::put(redis, name, &state).await;
            }
        }
    }

    async fn snapshots(&mut self) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        for lock in &self.locks {
            let snapshot = Redisson::take(&mut self.world.redis, &lock.name).await;
            // The other keys are those of the other locks.
            snapshots.push(Snapshot { others: 0, ..snapshot });
        }
        snapshots
    }

    /// Runs a script on several locks, and the function on each.
    async fn compare(&mut self, wire: &Wire) -> Result<(), String> {
        let mut order: Vec<usize> = (0..LOCKS).collect();
        order.rotate_left(self.random.below(LOCKS));
        order.truncate(1 + self.random.below(LOCKS));
        let is_touch = self.random.chance(60);
        let mut commands = Vec::new();
        for lock in order {
            let count = if is_touch { 1 + self.random.below(3) } else { 1 };
            let mut members = Vec::new();
            for _ in 0..count {
                members.push(self.draw(wire, lock, |draw| draw.known()).await);
            }
            let command =
                if is_touch { Command::Touch { members } } else { Command::Renew { members } };
            commands.push((lock, command));
        }
        self.world.heard().await;
        let before = self.snapshots().await;
        let answers = self.run(wire, &commands).await;
        let after = self.snapshots().await;
        let (mut expected, mut is_undecided) = (Vec::new(), false);
        for ((lock, command), answer) in commands.iter().zip(answers) {
            self.compared += 1;
            let (before, after, lock) = (&before[*lock], &after[*lock], &self.locks[*lock].name);
            let (floors, connected) = (TokenFloors::default(), &self.world.connected);
            let request = Request { wire, lock, command, floors, way: 0, connected };
            match judge(&Redisson, &request, before, after, answer)? {
                Verdict::Same(stepped) => {
                    expected.extend(stepped.messages);
                    self.met.extend(words(&stepped.answer));
                }
                Verdict::Refused if commands.len() > 1 => {
                    self.met.insert("strange among others".to_owned());
                }
                Verdict::Refused | Verdict::Unseen => {}
                Verdict::Undecided => is_undecided = true,
            }
        }
        let asked: Vec<usize> = commands.iter().map(|(lock, _)| *lock).collect();
        for lock in (0..LOCKS).filter(|lock| !asked.contains(lock)) {
            let (before, after) = (&before[lock], &after[lock]);
            let ends = Snapshot::expires_within(&before.state, before.at_ms(), after.at_ms());
            if !ends && before.content() != after.content() {
                return Err(format!("lock {lock} was not asked for, and changed"));
            }
        }
        let heard = self.world.heard().await;
        self.undecided += usize::from(is_undecided);
        if !is_undecided && heard != expected {
            return Err(format!("heard {heard:#?}\nexpected {expected:#?}"));
        }
        Ok(())
    }
}

fn words(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Renewed(reply) => reply.outcome.iter().map(|one| format!("{one:?}")).collect(),
        Answer::Touched(reply) => {
            reply.outcome.members.iter().map(|presence| format!("{presence:?}")).collect()
        }
        _ => Vec::new(),
    }
}
