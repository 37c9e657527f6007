//! The promises, after every command of random histories over all demands: leases end without a
//! release, nodes connect and disconnect, the counter is lost, and so is the sum now and then.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;
use super::*;

const CASES: u64 = 600;
const COMMANDS: usize = 150;
const NODES: [char; 4] = ['a', 'b', 'c', 'd'];
const LEASES: [u64; 4] = [300, 2_500, 9_000, 60_000];

#[derive(Clone, Copy)]
enum Kind {
    Locks,
    ReadWrite,
    Semaphore,
    Mixed,
}

/// A lock, and what its users know.
struct History {
    bench: Bench,
    dice: Dice,
    kind: Kind,
    members: Vec<Member>,
    /// The unreleased holds, with the reported end of each lease.
    reported: BTreeMap<Member, u64>,
    given_up: BTreeSet<Member>,
    /// The greatest reported token, and whether shared holds have it.
    last: (u64, bool),
    step: usize,
    counts: BTreeMap<&'static str, usize>,
}

/// The ends and weights of all holds, including expired shared holds that were not removed.
type Holds = BTreeMap<Member, (u64, u64)>;

fn holds_of(state: &QueueState, now_ms: u64) -> Holds {
    if let Some((member, ends_ms)) = state.whole(now_ms) {
        return [(member.clone(), (ends_ms, ALL.into()))].into();
    }
    let weight = |member: &Member| state.weight(member);
    state.holds.iter().map(|(ends_ms, one)| (one.clone(), (ends_ms, weight(one)))).collect()
}

#[test]
fn the_promises_hold_after_every_command() {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..CASES {
        for (what, count) in History::new(seed).run() {
            *all.entry(what).or_default() += count;
        }
    }
    let expected = [
        "batch",
        "confirmed",
        "dropped",
        "granted",
        "lapsed",
        "lock",
        "more",
        "reduced",
        "returned",
        "skipped",
        "token again",
    ];
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), expected);
    assert!(all.values().all(|count| *count > 50), "{all:?}");
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let kind = dice.one_of(&[Kind::Locks, Kind::ReadWrite, Kind::Semaphore, Kind::Mixed]);
        let mut bench = Bench::new();
        if dice.chance(40) {
            bench.bounds = Bounds {
                granted: 1 + dice.below(2),
                looked_at: 3 + dice.below(4),
                reclaimed: 1 + dice.below(2),
                ..Bounds::default()
            };
        }
        Self {
            bench,
            dice,
            kind,
            members: Vec::new(),
            reported: BTreeMap::new(),
            given_up: BTreeSet::new(),
            last: (0, false),
            step: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str, by: usize) {
        if by > 0 {
            *self.counts.entry(what).or_default() += by;
        }
    }

    fn run(mut self) -> BTreeMap<&'static str, usize> {
        for step in 0..COMMANDS {
            self.step = step;
            self.interfere();
            let by = self.dice.one_of(&NODES);
            let command = self.command(by);
            let mut before = self.bench.state.clone();
            before.expire(self.bench.now());
            // Every node has seen all earlier tokens.
            self.bench.floor_us = self.bench.floor_us.max(self.last.0);
            let answer = self.bench.run(by, &command);
            let messages = self.bench.said();
            self.check(by, &command, &before, &answer, &messages);
        }
        self.counts
    }

    fn interfere(&mut self) {
        if self.dice.chance(10) {
            self.bench.away = NODES.into_iter().filter(|_| self.dice.chance(30)).collect();
        }
        if self.dice.chance(60) {
            let pause_ms = self.dice.one_of(&[1, 1, 1, 40, 200, 400, 2_000, 6_000]);
            self.bench.pass(pause_ms);
        }
        match self.dice.below(100) {
            0 => self.bench.counter = None,
            1 => self.bench.counter = Some(1 << 53),
            2 => {
                let token = self.bench.state.shared_token();
                if token.is_some() {
                    self.bench.state.set_parts(0, token);
                }
            }
            _ => {}
        }
    }

    fn demand(&mut self) -> Demand {
        let (weight, limit) = match self.kind {
            Kind::Locks => return Demand::EXCLUSIVE,
            Kind::ReadWrite if self.dice.chance(60) => return Demand::READ,
            Kind::ReadWrite => return Demand::EXCLUSIVE,
            Kind::Semaphore => (1 + self.dice.below(3) as u32, 3),
            Kind::Mixed if self.dice.chance(15) => return Demand::EXCLUSIVE,
            Kind::Mixed if self.dice.chance(15) => return Demand::READ,
            Kind::Mixed => {
                let limit = self.dice.one_of(&[2, 3, 5]);
                (1 + self.dice.below(limit as usize) as u32, limit)
            }
        };
        Demand::permits(weight, limit).unwrap()
    }

    fn command(&mut self, by: char) -> Command {
        // No copy of a command is in flight for longer than a tombstone exists.
        let gone = |member: &Member| {
            self.given_up.contains(member) && self.bench.state.tombstones.get(member).is_none()
        };
        let mine = |member: &&Member| letter(member) == by && !gone(member);
        let known: Vec<_> = self.members.iter().filter(mine).cloned().collect();
        let held = holds_of(&self.bench.state, self.bench.now());
        let aside = self.bench.state.set_aside.values();
        let aside: Vec<_> = aside.flat_map(|aside| aside.members.iter()).collect();
        let is_there = |member: &&Member| {
            held.contains_key(*member)
                || self.bench.state.queue.get(member).is_some()
                || aside.iter().any(|(_, one)| one == member)
        };
        let there: Vec<_> = known.iter().filter(is_there).cloned().collect();
        let one = |dice: &mut Dice| match (there.is_empty(), dice.chance(85)) {
            (false, true) => dice.one_of(&there),
            _ => dice.one_of(&known),
        };
        let holder = |dice: &mut Dice| {
            let held = there.iter().find(|member| held.contains_key(*member)).cloned();
            held.unwrap_or_else(|| one(dice))
        };
        let dice = &mut self.dice;
        match dice.below(100) {
            _ if known.is_empty() => self.fresh(by),
            0..38 => self.fresh(by),
            38..44 => {
                let members = vec![one(dice), one(dice)];
                Command::Acquire { members, mode: Mode::Wait, queue_limit: 1_000 }
            }
            44..66 => Command::Release { member: one(dice) },
            66..72 => Command::Renew { members: vec![one(dice), one(dice)] },
            72..76 => Command::Confirm { member: holder(dice) },
            76..88 => Command::Touch { members: vec![one(dice), one(dice)] },
            88..95 => {
                let leaving = Leaving::new(one(dice), dice.chance(30));
                Command::Leave { leaving: vec![leaving] }
            }
            95..98 => Command::reduce(holder(dice), NonZeroU32::MIN),
            98 => Command::ForceRelease { member: dice.chance(70).then(|| one(dice)) },
            _ => Command::INSPECT,
        }
    }

    fn fresh(&mut self, by: char) -> Command {
        let count = self.dice.one_of(&[1, 1, 1, 2, 4]);
        let members = (0..count).map(|_| self.fresh_member(by)).collect();
        let mode = if self.dice.chance(15) { Mode::Try } else { Mode::Wait };
        Command::Acquire { members, mode, queue_limit: self.dice.one_of(&[1_000, 1_000, 2]) }
    }

    fn fresh_member(&mut self, by: char) -> Member {
        let lease_ms = self.dice.one_of(&LEASES);
        let demand = self.demand();
        let member = with_lease(by, self.members.len() as u64, lease_ms, demand);
        self.members.push(member.clone());
        member
    }

    fn check(
        &mut self,
        by: char,
        command: &Command,
        before: &QueueState,
        answer: &Answer,
        messages: &[Message],
    ) {
        let now_ms = self.bench.now();
        let after = self.bench.state.clone();
        let context = format!("step {}: {command:?} by {by}\n{before:?}\n{after:?}", self.step);
        let was = holds_of(before, now_ms);
        let is = holds_of(&after, now_ms);
        let granted = granted(before, command, (&was, &is), now_ms);

        self.check_sum(before, &was, &is, &granted, &context);
        self.take_back(command, before, answer);
        self.check_limits(&granted, &is, &context);
        self.check_notified(by, &granted, &is, answer, messages, &context);
        self.check_tokens(command, &granted, answer, messages, &context);
        self.check_same(command, answer, before, &after, (&was, &is), &context);
        self.check_order(by, command, before, &after, &granted, &context);
        self.check_no_room(command, answer, &after, &context);

        for member in &granted {
            self.reported.insert(member.clone(), is[member].0);
            self.count("lock", usize::from(member.demand() == Demand::EXCLUSIVE));
        }
        self.count("granted", granted.len());
        self.count("batch", usize::from(granted.len() > 1));
    }

    /// Checks that the sum matches the holds, and that no hold gains weight.
    fn check_sum(
        &self,
        before: &QueueState,
        was: &Holds,
        is: &Holds,
        granted: &[Member],
        context: &str,
    ) {
        let sum = |holds: &Holds| holds.values().map(|(_, weight)| weight).sum::<u64>();
        let used = |state: &QueueState, holds: &Holds| match state.whole(self.bench.now()) {
            None if matches!(
                state.lock_key.as_ref().map(|lock_key| &lock_key.held),
                Some(Held::Whole { .. })
            ) =>
            {
                sum(holds)
            }
            _ => state.used(),
        };
        if used(before, was) == sum(was) {
            assert_eq!(used(&self.bench.state, is), sum(is), "{context}");
        }
        for (member, (_, weight)) in is {
            let gained = was.get(member).is_some_and(|(_, old)| weight > old);
            assert!(!gained || granted.contains(member), "{member} gained weight\n{context}");
        }
    }

    /// Ends a hold that the reply releases, or whose lease has ended.
    fn take_back(&mut self, command: &Command, before: &QueueState, answer: &Answer) {
        let now_ms = self.bench.now();
        match (command, answer) {
            (Command::Release { member }, Answer::Released(reply)) => {
                // A release ends an existing hold, once.
                let was_there = holds_of(before, now_ms).contains_key(member);
                assert_eq!(reply.outcome == Released::Released, was_there);
                self.reported.remove(member);
            }
            (Command::Leave { leaving }, Answer::Left(_)) => {
                for leaving in leaving {
                    self.reported.remove(&leaving.member);
                    if leaving.ambiguous {
                        self.given_up.insert(leaving.member.clone());
                    }
                }
            }
            (Command::ForceRelease { member: Some(member) }, _) => {
                self.reported.remove(member);
            }
            (Command::ForceRelease { member: None }, _) => self.reported.clear(),
            (Command::Renew { .. } | Command::Confirm { .. }, Answer::Renewed(reply)) => {
                for (member, renewed) in command.renews().iter().zip(&reply.outcome) {
                    // A reported hold has a lease, and a hold without a lease is reported as lost.
                    let held = self.reported.get(member).is_some_and(|ends_ms| *ends_ms > now_ms);
                    assert_eq!(*renewed == Renewed::Held, held, "{member} at step {}", self.step);
                    if held {
                        self.reported.insert(member.clone(), now_ms + member.lease_ms());
                        self.count("confirmed", usize::from(reply.grants.len() == 1));
                    }
                }
            }
            (Command::Reduce { .. }, Answer::Renewed(reply)) => {
                self.count("reduced", usize::from(reply.outcome == [Renewed::Held]));
            }
            _ => {}
        }
        let holding = self.reported.len();
        self.reported.retain(|_, ends_ms| *ends_ms > now_ms);
        self.count("lapsed", holding - self.reported.len());
    }

    /// Checks that with each grant, all holds together weigh at most the grant's own limit.
    fn check_limits(&self, granted: &[Member], is: &Holds, context: &str) {
        let weight = |member: &Member| is.get(member).map_or(0, |(_, weight)| *weight);
        for member in self.reported.keys() {
            assert!(is.contains_key(member), "{member} lost its hold\n{context}");
        }
        let mut used: u64 = self.reported.keys().map(weight).sum();
        for member in granted {
            assert!(member.demand().fits(used), "{member} beside {used}\n{context}");
            used += member.demand().weight();
        }
    }

    /// Checks that each granted member is notified once: by the reply to its own node, or by a
    /// message to another.
    fn check_notified(
        &self,
        by: char,
        granted: &[Member],
        is: &Holds,
        answer: &Answer,
        messages: &[Message],
        context: &str,
    ) {
        let mut heard = BTreeSet::new();
        for message in messages {
            let Message::Grants { node, grants, .. } = message else { continue };
            assert_ne!(node.as_str().chars().next(), Some(by), "by message\n{context}");
            for (number, left_ms) in grants {
                assert!(heard.insert((node.to_string(), *number, *left_ms)), "twice\n{context}");
            }
        }
        for Grant { member, left_ms, .. } in answer.grants() {
            assert_eq!(letter(member), by, "{context}");
            let is_new = heard.insert((member.node().to_owned(), member.number(), *left_ms));
            // A command may name a member twice.
            assert!(is_new || self.reported.contains_key(member), "twice\n{context}");
        }
        for member in granted {
            let left_ms = is[member].0 - self.bench.now();
            let key = (member.node().to_owned(), member.number(), left_ms);
            assert!(heard.remove(&key), "{member} was not told\n{context}");
        }
        // A member that requests its hold again is notified, too.
        let again = |(node, number, _): &(String, u64, u64)| {
            self.reported.keys().any(|held| held.node() == node && held.number() == *number)
        };
        assert!(heard.iter().all(again), "told of a grant that was none: {heard:?}\n{context}");
    }

    /// Checks that tokens never fall. Only two shared holds may have the same token.
    fn check_tokens(
        &mut self,
        command: &Command,
        granted: &[Member],
        answer: &Answer,
        messages: &[Message],
        context: &str,
    ) {
        let mut tokens: Vec<u64> = answer.grants().iter().map(|grant| grant.token.get()).collect();
        for message in messages {
            if let Message::Grants { token, .. } = message {
                tokens.push(token.get());
            }
        }
        let Some(token) = tokens.first().copied() else { return };
        assert!(tokens.iter().all(|other| *other == token), "two tokens in one command\n{context}");
        let is_lock = self.bench.state.whole(self.bench.now()).is_some();
        let (last, was_shared) = self.last;
        if is_lock || !was_shared {
            assert!(token > last, "{token} after {last}\n{context}");
        }
        assert!(token >= last, "{token} after {last}\n{context}");
        self.count("token again", usize::from(token == last && !granted.is_empty()));
        assert!(!matches!(command, Command::Inspect { .. }), "{context}");
        self.last = (token, !is_lock);
    }

    /// Checks that the same attempt is the same hold or queue entry; a cancelled member is never
    /// granted.
    fn check_same(
        &self,
        command: &Command,
        answer: &Answer,
        before: &QueueState,
        after: &QueueState,
        (was, is): (&Holds, &Holds),
        context: &str,
    ) {
        for member in is.keys().filter(|member| !was.contains_key(*member)) {
            assert!(!self.given_up.contains(member), "{member} was given up\n{context}");
        }
        let (Command::Acquire { members, .. }, Answer::Acquired(reply)) = (command, answer) else {
            return;
        };
        for (member, outcome) in members.iter().zip(&reply.outcome) {
            if self.given_up.contains(member) {
                continue;
            }
            if self.reported.contains_key(member) {
                assert_eq!(*outcome, Acquired::Granted, "{context}");
                assert_eq!(was.get(member), is.get(member), "{context}");
            } else if let Some(score) = before.queue.get(member)
                && *outcome != Acquired::Granted
            {
                assert_eq!(after.queue.get(member), Some(score), "{context}");
            }
        }
    }

    /// Checks that no member is granted while another waits with a lower score. Only members of
    /// silent or disconnected nodes leave their places.
    fn check_order(
        &mut self,
        by: char,
        command: &Command,
        before: &QueueState,
        after: &QueueState,
        granted: &[Member],
        context: &str,
    ) {
        for member in granted {
            let score = score_of(before, command, member);
            // A newcomer is behind earlier members of the same command, and nobody else.
            let is_ahead = |(ahead, other): &(u64, &Member)| {
                *ahead < score
                    && (before.queue.get(other).is_some()
                        || turn(command, other) < turn(command, member))
            };
            let ahead = after.queue.iter().find(is_ahead);
            assert_eq!(ahead, None, "{member} passed another\n{context}");
        }
        let is_aside = |state: &QueueState, member: &Member| {
            state.set_aside.get(member.node()).is_some_and(|one| one.members.get(member).is_some())
        };
        let leaves = |member: &Member| match command {
            Command::Leave { leaving } => leaving.iter().any(|one| one.member == *member),
            _ => false,
        };
        for (score, member) in before.queue.iter() {
            if after.queue.get(member).is_some() || granted.contains(member) || leaves(member) {
                continue;
            }
            assert_ne!(letter(member), by, "{member} of the caller\n{context}");
            let aside = after.set_aside.get(member.node()).and_then(|one| one.members.get(member));
            // The first score counts, even if a late request has queued it once more meanwhile.
            let is_away = self.bench.away.contains(letter(member));
            if is_away && aside.is_some_and(|aside| aside <= score) {
                self.count("skipped", 1);
            } else {
                assert!(!before.patience.contains_key(member.node()), "{member} is out\n{context}");
                self.count("dropped", 1);
            }
        }
        for (score, member) in after.queue.iter() {
            if is_aside(before, member) && before.queue.get(member).is_none() {
                let is_newcomer = matches!(command, Command::Acquire { .. });
                let was = before.set_aside[member.node()].members.get(member);
                assert!(is_newcomer || was == Some(score), "{member}\n{context}");
                self.count("returned", 1);
            }
        }
    }

    /// Checks that after a command that makes room, the head does not fit, unless the reply reports
    /// more.
    fn check_no_room(
        &mut self,
        command: &Command,
        answer: &Answer,
        after: &QueueState,
        context: &str,
    ) {
        let more = match answer {
            Answer::Acquired(reply) => reply.more,
            Answer::Released(reply) => reply.more,
            Answer::Renewed(reply) => reply.more,
            Answer::Touched(reply) => reply.more,
            Answer::Left(reply) => reply.more,
            Answer::Inspected(_) => return,
        };
        self.count("more", usize::from(more));
        let hands_on = match (command, answer) {
            (Command::Renew { .. } | Command::Confirm { .. }, _) => false,
            (Command::Reduce { .. }, Answer::Renewed(reply)) => reply.outcome == [Renewed::Held],
            (Command::Acquire { .. }, Answer::Acquired(reply)) => reply.outcome.iter().any(|one| {
                matches!(one, Acquired::Queued { .. } | Acquired::Busy | Acquired::Full { .. })
            }),
            _ => true,
        };
        if let Some((_, head)) = after.queue.lowest()
            && hands_on
            && !more
        {
            assert!(!head.demand().fits(after.used()), "{head} fits\n{context}");
        }
    }
}

/// Returns the member's score when the walk begins; last, if this command queues it.
fn score_of(before: &QueueState, command: &Command, member: &Member) -> u64 {
    let aside = before.set_aside.get(member.node()).and_then(|one| one.members.get(member));
    // A touch puts it back. A member that was skipped and requested again has two scores.
    let aside = aside.filter(|_| matches!(command, Command::Touch { .. }));
    before.queue.get(member).into_iter().chain(aside).min().unwrap_or(u64::MAX)
}

/// Returns a member's turn within an acquire.
fn turn(command: &Command, member: &Member) -> Option<usize> {
    let Command::Acquire { members, .. } = command else { return None };
    members.iter().position(|one| one == member)
}

/// Returns the granted members, in the order of scores and turns.
fn granted(
    before: &QueueState,
    command: &Command,
    (was, is): (&Holds, &Holds),
    now_ms: u64,
) -> Vec<Member> {
    let is_new = |member: &Member| match (was.get(member), is.get(member)) {
        (None, Some(_)) => true,
        (Some((old_ms, _)), Some((new_ms, _))) => *old_ms <= now_ms && *new_ms > now_ms,
        _ => false,
    };
    let mut granted: Vec<_> = is.keys().filter(|member| is_new(member)).cloned().collect();
    granted.sort_by_key(|member| (score_of(before, command, member), turn(command, member)));
    granted
}
