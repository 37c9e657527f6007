//! One random sequence: commands, each compared, and events besides.

use std::fmt::Debug;
use std::time::Duration;

use proto::wire::TokenFloors;
use proto::{Answer, Command, LockName, Member};

use crate::draw::Draw;
use crate::fuzz::Tally;
use crate::judge::{Verdict, judge};
use crate::layout::{Kind, Layout, Message, Request};
use crate::random::{Choices, Random};
use crate::world::{LOCK, World};

/// The lead of the clock of a server that was replaced.
const AHEAD_US: u64 = 5_000_000;
/// The greatest number that a node takes for a token or a time.
const GREATEST_US: u64 = (1 << 53) - 10;

/// The cases that all the sequences together must have met, or they compare too little.
pub(crate) const MET: [&str; 15] = [
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
    "skipped",
];

struct Case<'a, L: Layout> {
    layout: &'a L,
    world: &'a mut World,
    kind: Kind,
    lock: LockName,
    random: Random,
    /// All keys after the last command, unless something else has happened since.
    seen: Option<L::Snapshot>,
    /// Oldest first.
    members: Vec<Member>,
    expected: Vec<Message>,
    tally: &'a mut Tally,
    /// All that has been done, a line each.
    history: String,
}

/// Runs a sequence.
///
/// # Errors
/// The first difference, with all that led to it.
pub(crate) async fn run<L: Layout>(
    layout: &L,
    world: &mut World,
    kind: Kind,
    choices: &Choices,
    tally: &mut Tally,
) -> Result<(), String> {
    world.begin().await;
    let (lock, random, history) = (LockName::from(LOCK), Random::new(Vec::new()), String::new());
    let (seen, members, expected) = (None, Vec::new(), Vec::new());
    let mut case =
        Case { layout, world, kind, lock, random, seen, members, expected, tally, history };
    let result = case.run(choices).await;
    result.map_err(|difference| format!("after\n{}{difference}", case.history))
}

impl<L: Layout> Case<'_, L> {
    async fn run(&mut self, choices: &Choices) -> Result<(), String> {
        for draws in choices.iter().flatten() {
            self.random = Random::new(draws.clone());
            if self.random.chance(40) {
                self.seen = None;
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
        let mut redis = self.world.redis.clone();
        let before = match self.seen.take() {
            Some(seen) => seen,
            None => L::take(&mut redis, &self.lock).await,
        };
        let state = L::state(&before);
        let wire = self.random.one_of(&self.world.nodes).wire.clone();
        let random = &mut self.random;
        let floors = floors(random, L::at_us(&before), L::counter(&state));
        let way = random.below(6);
        let members = &mut self.members;
        let mut draw: Draw<'_, L> =
            Draw { random, kind: self.kind, node: &wire.node, state: &state, members };
        let command = draw.command();
        let connected = &self.world.connected;
        let request =
            Request { wire: &wire, lock: &self.lock, command: &command, floors, way, connected };
        let answer = self.layout.run(&mut redis, &request).await;
        let after = L::take(&mut redis, &self.lock).await;
        self.history += &format!("    {:?}: {command:?}\n", wire.node);
        let verdict = judge(self.layout, &request, &before, &after, answer)?;
        self.seen = Some(after);
        match verdict {
            Verdict::Same(stepped) => {
                self.note(&command, &stepped.answer);
                self.tally.seen.extend(stepped.met.iter().map(|met| (*met).to_owned()));
                self.expected.extend(stepped.messages);
                Ok(())
            }
            Verdict::Refused => {
                self.tally.seen.insert("refused as strange".to_owned());
                Ok(())
            }
            Verdict::Undecided => {
                self.tally.undecided += 1;
                self.forget_messages().await
            }
            Verdict::Unseen => self.forget_messages().await,
        }
    }

    /// The messages of the last command are not known; all before it are.
    async fn forget_messages(&mut self) -> Result<(), String> {
        let (heard, expected) = (self.world.heard().await, std::mem::take(&mut self.expected));
        if !heard.starts_with(&expected) {
            return Err(format!("messages so far: {heard:#?}\nexpected: {expected:#?}"));
        }
        Ok(())
    }

    fn note(&mut self, command: &Command, answer: &Answer) {
        let mut seen = match answer {
            Answer::Acquired(reply) => words(&reply.outcome),
            Answer::Released(reply) => words([reply.outcome]),
            Answer::Renewed(reply) => {
                let mut seen = words(&reply.outcome);
                seen.iter_mut().filter(|word| *word == "NotHeld").for_each(|word| {
                    *word = "NotRenewed".to_owned();
                });
                seen
            }
            Answer::Touched(reply) => words(&reply.outcome.members),
            Answer::Left(reply) => words(&reply.outcome),
            Answer::Inspected(_) => Vec::new(),
        };
        let is_confirmed =
            matches!(command, Command::Confirm { .. }) && !answer.grants().is_empty();
        let rare = [
            ("skipped", answer.skipped() > 0),
            ("more", answer.more()),
            ("Confirmed", is_confirmed),
        ];
        seen.extend(rare.iter().filter(|(_, is_met)| *is_met).map(|(met, _)| (*met).to_owned()));
        self.tally.seen.extend(seen);
    }

    /// Something besides commands.
    async fn interfere(&mut self) {
        match self.random.below(12) {
            0 => {
                // Past the end of a short lease, now and then.
                let pause = *self.random.one_of(&[2, 2, 5, 30, 110]);
                self.history += &format!("    {pause} ms pass\n");
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            1 | 2 => {
                let node = self.random.below(self.world.nodes.len());
                let id = self.world.nodes[node].wire.node.clone();
                let is_connected = !self.world.connected.contains(id.as_str());
                self.history += &format!("    {id:?} is connected: {is_connected}\n");
                self.world.connect(node, is_connected).await;
            }
            3..6 if self.kind == Kind::Strange => self.act_as_another_program().await,
            3..6 if self.kind == Kind::Damaged => {
                self.history += "    a part of the keys is lost\n";
                self.change(|state, random, _| L::damage(state, random)).await;
            }
            _ => {
                self.history += "    the keys are changed\n";
                self.change(L::disturb).await;
            }
        }
    }

    /// Changes the keys of the lock from outside, if they are all ours.
    async fn change(&mut self, change: impl FnOnce(&mut L::State, &mut Random, u64)) {
        let redis = &mut self.world.redis;
        let seen = L::take(redis, &self.lock).await;
        if L::is_strange(&seen) {
            return;
        }
        let before = L::state(&seen);
        let mut state = before.clone();
        change(&mut state, &mut self.random, L::at_us(&seen) / 1_000);
        if state != before {
            L::put(redis, &self.lock, &state).await;
        }
    }

    async fn act_as_another_program(&mut self) {
        let seen = L::take(&mut self.world.redis, &self.lock).await;
        for command in L::act_as_another_program(&seen, &self.lock, &mut self.random) {
            let packed = command.get_packed_command();
            self.history += &format!("    {}\n", packed.escape_ascii());
            let _: redis::Value = self.world.redis.ask(&command).await;
        }
    }
}

/// The times that a node has seen: those of a server that was ahead, the last token or one above
/// it, or all in the past.
fn floors(random: &mut Random, at_us: u64, counter: u64) -> TokenFloors {
    let floor_us = match random.below(20) {
        0 => at_us + AHEAD_US,
        1 => counter + 1,
        2 => counter.max(1),
        _ => at_us - AHEAD_US,
    };
    let floor_us = floor_us.min(GREATEST_US);
    let elsewhere_us = match random.chance(10) {
        true => *random.one_of(&[counter.saturating_sub(1), counter, at_us, floor_us]),
        false => 0,
    };
    TokenFloors {
        floor_us,
        elsewhere_us: elsewhere_us.min(floor_us),
        latest_us: floor_us,
        epoch_us: 0,
    }
}

/// The name of each outcome.
fn words<T: Debug>(outcomes: impl IntoIterator<Item = T>) -> Vec<String> {
    let word = |outcome| {
        let text = format!("{outcome:?}");
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    outcomes.into_iter().map(word).collect()
}
