//! Renewals and touches of several locks in one script against the function on each lock: the same
//! answers, messages and keys.

use std::collections::BTreeSet;

use lockcore::LockErrorKind;
use lockcore::internals::protocol::redisson::step;
use lockcore::internals::{Answer, Command, LockName, Member, Mode, StoreError};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use redis::cmd;

use crate::comparison::{self, Clock};
use crate::random::{self, Random};
use crate::snapshot::{self, Snapshot};
use crate::world::{FOREIGN, Heard, World};

const LOCKS: usize = 6;
const SEQUENCES: usize = 8;
const STEPS: usize = 120;
const LEASES_MS: [u64; 4] = [300, 2_500, 30_000, 120_000];

/// What must have been met, or too little was compared.
const MET: [&str; 6] = ["Held", "NotHeld", "Waiting", "Holding", "Gone", "strange among others"];

struct Locks<'a> {
    world: &'a mut World,
    random: Random,
    names: Vec<LockName>,
    /// By node and lock, oldest first.
    members: Vec<Vec<Vec<Member>>>,
    met: BTreeSet<String>,
    undecided: usize,
    compared: usize,
}

#[tokio::test]
async fn lua_and_rust_agree_on_renewals_and_touches_of_several_locks() {
    let mut world = World::start().await;
    let names: Vec<_> = (0..LOCKS).map(|at| LockName::from(&*format!("lock {at}"))).collect();
    let members = vec![vec![Vec::new(); LOCKS]; world.nodes.len()];
    let random = Random::new(Vec::new());
    let mut locks = Locks {
        world: &mut world,
        random,
        names,
        members,
        met: BTreeSet::new(),
        undecided: 0,
        compared: 0,
    };
    let mut runner = TestRunner::deterministic();
    for sequence in 0..SEQUENCES {
        let choices = random::choices(STEPS).new_tree(&mut runner).expect("choices").current();
        locks.world.begin(&locks.names[0].clone()).await;
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

impl Locks<'_> {
    async fn step(&mut self) -> Result<(), String> {
        let node = self.random.below(self.world.nodes.len());
        match self.random.below(10) {
            0..4 => {
                let lock = self.random.below(LOCKS);
                let member = self.world.nodes[node].member(*self.random.one_of(&LEASES_MS));
                self.members[node][lock].push(member.clone());
                let command = Command::Acquire { member, mode: Mode::Wait, queue_limit: 6 };
                let _ = self.run(node, lock, &command).await;
            }
            4 => {
                let lock = self.random.below(LOCKS);
                let member = self.known(node, lock);
                let _ = self.run(node, lock, &Command::Release { member }).await;
            }
            5 | 6 => self.interfere().await,
            _ => return self.compare(node).await,
        }
        Ok(())
    }

    async fn run(
        &mut self,
        node: usize,
        lock: usize,
        command: &Command,
    ) -> Result<Answer, StoreError> {
        self.world.nodes[node].lock = self.names[lock].clone();
        self.world.run(node, command).await
    }

    fn known(&mut self, node: usize, lock: usize) -> Member {
        let latest = self.members[node][lock].len().min(3);
        if latest == 0 {
            return self.world.nodes[node].member(30_000);
        }
        let members = &self.members[node][lock];
        members[members.len() - 1 - self.random.below(latest)].clone()
    }

    /// Other programs, JVMs, operators, and silences.
    async fn interfere(&mut self) {
        let lock = self.random.below(LOCKS);
        let [hold, queue, deadlines, token, alive, ..] = snapshot::keys(self.names[lock].as_str());
        let now = Snapshot::take(&mut self.world.redis, &hold).await.at_ms();
        let command = match self.random.below(9) {
            0 => cmd("HSET").arg(&hold).arg("name").arg("Ada").clone(),
            1 => cmd("SET").arg(&token).arg("no number").arg("PX").arg(60_000).clone(),
            2 => cmd("DEL").arg(&token).clone(),
            3 | 4 => cmd("DEL").arg(&hold).clone(),
            5 => cmd("PERSIST").arg(&hold).clone(),
            6 => cmd("DEL").arg(&queue).arg(&deadlines).clone(),
            7 => {
                let () = self.world.redis.ask(cmd("RPUSH").arg(&queue).arg(FOREIGN[0])).await;
                cmd("ZADD").arg(&deadlines).arg(now + 300_000).arg(FOREIGN[0]).clone()
            }
            _ => {
                let member = self.known(0, lock);
                let at_ms = now + *self.random.one_of(&[0, 3_000]) - 5;
                cmd("ZADD").arg(&alive).arg("XX").arg(at_ms).arg(member.as_str()).clone()
            }
        };
        let _: redis::Value = self.world.redis.ask(&command).await;
    }

    async fn snapshots(&mut self) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        for lock in &self.names {
            let snapshot = Snapshot::take(&mut self.world.redis, lock.as_str()).await;
            // They are those of the other locks.
            snapshots.push(Snapshot { others: 0, ..snapshot });
        }
        snapshots
    }

    /// Runs a script on several locks, and the function on each.
    async fn compare(&mut self, node: usize) -> Result<(), String> {
        self.world.heard().await;
        let mut order: Vec<usize> = (0..LOCKS).collect();
        order.rotate_left(self.random.below(LOCKS));
        order.truncate(1 + self.random.below(LOCKS));
        let is_touch = self.random.chance(60);
        let mut commands = Vec::new();
        for lock in order {
            let command = if is_touch {
                let count = 1 + self.random.below(3);
                Command::Touch { members: (0..count).map(|_| self.known(node, lock)).collect() }
            } else {
                Command::Renew { members: vec![self.known(node, lock)] }
            };
            commands.push((lock, command));
        }
        let before = self.snapshots().await;
        let asked: Vec<_> =
            commands.iter().map(|(lock, command)| (&self.names[*lock], command)).collect();
        let each = self.world.nodes[node].store.run_together(&asked).await;
        let each = each.map_err(|error| format!("{error:?}"))?;
        if each.len() != commands.len() {
            return Err(format!("{} answers to {} commands", each.len(), commands.len()));
        }
        let after = self.snapshots().await;
        let (mut expected, mut is_undecided) = (Heard::default(), false);
        for ((lock, command), answer) in commands.iter().zip(each) {
            self.compared += 1;
            let told = format!("{command:?}\nby node {node}, at\n{:#?}\n", before[*lock]);
            if before[*lock].is_refused(command) {
                if Snapshot::expires_within(
                    &before[*lock].state,
                    before[*lock].at_ms(),
                    after[*lock].at_ms(),
                ) {
                    is_undecided = true;
                    continue;
                }
                if !matches!(&answer, Err(error) if error.kind == LockErrorKind::WrongType) {
                    return Err(format!("{told}answered {answer:?} at another program's key"));
                }
                if before[*lock].content() != after[*lock].content() {
                    return Err(format!("{told}changed to {:#?}", after[*lock]));
                }
                if commands.len() > 1 {
                    self.met.insert("strange among others".to_owned());
                }
                continue;
            }
            let mut answer = answer.map_err(|error| format!("{told}{error:?}"))?;
            let now_us = comparison::time_of(&mut answer, &before[*lock]);
            let clock = Clock {
                before: before[*lock].at_ms(),
                now: now_us / 1_000,
                after: after[*lock].at_ms(),
            };
            let mut state = before[*lock].state.clone();
            let world = &*self.world;
            let connected = |node: &str| world.is_connected(node);
            let id = &world.nodes[node].id;
            let (right, messages) = step(&mut state, &connected, id, command, now_us);
            if Snapshot::expires_within(&before[*lock].state, clock.before, clock.now)
                || Snapshot::expires_within(&state, clock.before, clock.after)
            {
                is_undecided = true;
                continue;
            }
            expected.add(world, &self.names[*lock], messages);
            self.met.extend(words(&right));
            comparison::settle_answer(clock, &right, &mut answer);
            if answer != right {
                return Err(format!("{told}Lua answers  {answer:?}\nRust answers {right:?}"));
            }
            let mut actual = after[*lock].state.clone();
            comparison::settle_state(clock, &state, &mut actual);
            comparison::forget_what_is_apart(&mut actual);
            comparison::forget_what_is_apart(&mut state);
            if actual != state {
                return Err(format!("{told}Lua leaves {actual:#?}\nRust leaves {state:#?}"));
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
