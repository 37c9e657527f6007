//! What is promised, after every command of random histories: leases end without a release, nodes
//! come and go, requests have weights and limits of their own, and the sum is lost now and then.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;
use super::*;

const CASES: u64 = 500;
const COMMANDS: usize = 150;
const NODES: [char; 4] = ['a', 'b', 'c', 'd'];
const LEASES: [u64; 4] = [300, 2_500, 9_000, 60_000];

#[derive(Clone, Copy)]
enum Kind {
    ReadWrite,
    Semaphore,
    MixedLimits,
}

/// A resource, and what those who use it know of it.
struct History {
    lock: Bench,
    dice: Dice,
    kind: Kind,
    members: Vec<Member>,
    /// Not given back, with the end of each lease as it was told.
    told: BTreeMap<Member, u64>,
    /// When each was enqueued, and who held then.
    enqueued: BTreeMap<Member, (usize, BTreeSet<Member>)>,
    /// When each came to the place that it has or had last.
    came: BTreeMap<Member, usize>,
    /// Those who were passed while they were away.
    let_past: BTreeSet<Member>,
    given_up: BTreeSet<Member>,
    /// Tokens by run of shared holds, or write.
    runs: Vec<u64>,
    is_shared: bool,
    step: usize,
    counts: Counts,
}

/// What the histories came to, so that they are known to have met what they are about.
#[derive(Default)]
struct Counts {
    granted: usize,
    batches: usize,
    writes: usize,
    lapsed: usize,
    passed_over: usize,
    overtaken: usize,
    more: usize,
    reduced: usize,
}

#[test]
fn what_is_promised_holds_after_every_command() {
    let mut all = Counts::default();
    for seed in 0..CASES {
        let counts = History::new(seed).run();
        all.granted += counts.granted;
        all.batches += counts.batches;
        all.writes += counts.writes;
        all.lapsed += counts.lapsed;
        all.passed_over += counts.passed_over;
        all.overtaken += counts.overtaken;
        all.more += counts.more;
        all.reduced += counts.reduced;
    }
    let met = [all.granted, all.batches, all.writes, all.lapsed, all.passed_over, all.overtaken];
    assert!(met.iter().all(|count| *count > 500), "{met:?}");
    assert!(all.more > 50 && all.reduced > 50, "{} {}", all.more, all.reduced);
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let kind = dice.one_of(&[Kind::ReadWrite, Kind::Semaphore, Kind::MixedLimits]);
        let mut lock = Bench::new();
        if dice.chance(40) {
            lock.bounds = Bounds {
                granted: 1 + dice.below(2),
                looked_at: 3 + dice.below(4),
                reclaimed: 1 + dice.below(2),
            };
        }
        Self {
            lock,
            dice,
            kind,
            members: Vec::new(),
            told: BTreeMap::new(),
            enqueued: BTreeMap::new(),
            came: BTreeMap::new(),
            let_past: BTreeSet::new(),
            given_up: BTreeSet::new(),
            runs: Vec::new(),
            is_shared: false,
            step: 0,
            counts: Counts::default(),
        }
    }

    fn run(mut self) -> Counts {
        for step in 0..COMMANDS {
            self.step = step;
            self.interfere();
            let by = self.dice.one_of(&NODES);
            let command = self.command(by);
            let before = self.lock.state.clone();
            let answer = self.lock.run(by, &command);
            let messages = self.lock.said();
            self.check(by, &command, &before, &answer, &messages);
        }
        self.counts
    }

    fn interfere(&mut self) {
        if self.dice.chance(10) {
            self.lock.away = NODES.into_iter().filter(|_| self.dice.chance(30)).collect();
        }
        let pauses = [1, 1, 1, 40, 200, 400, 2_000, 6_000];
        if self.dice.chance(60) {
            let pause_ms = self.dice.one_of(&pauses);
            self.lock.pass(pause_ms);
        }
        self.lock.now_us += 1;
        if self.dice.chance(1) {
            self.lock.state.used = None;
        }
    }

    fn demand(&mut self) -> Demand {
        let (weight, limit) = match self.kind {
            Kind::ReadWrite if self.dice.chance(60) => return Demand::READ,
            Kind::ReadWrite => return Demand::WRITE,
            Kind::Semaphore => (1 + self.dice.below(3) as u32, 3),
            Kind::MixedLimits if self.dice.chance(15) => return Demand::WRITE,
            Kind::MixedLimits => {
                let limit = self.dice.one_of(&[2, 3, 5]);
                (1 + self.dice.below(limit as usize) as u32, limit)
            }
        };
        Demand::permits(weight, limit).unwrap()
    }

    fn command(&mut self, by: char) -> Command {
        // No copy of a command is on its way for longer than a tombstone stands.
        let gone = |member: &Member| {
            self.given_up.contains(member) && !self.lock.state.gone.contains_key(member)
        };
        let mine = |member: &&Member| letter(member) == by && !gone(member);
        let known: Vec<_> = self.members.iter().filter(mine).cloned().collect();
        let there: Vec<_> = known
            .iter()
            .filter(|member| self.lock.holds(member) || self.lock.state.queue.get(member).is_some())
            .cloned()
            .collect();
        let one = |dice: &mut Dice| match (there.is_empty(), dice.chance(85)) {
            (false, true) => dice.one_of(&there),
            _ => dice.one_of(&known),
        };
        let dice = &mut self.dice;
        match dice.below(100) {
            _ if known.is_empty() => self.fresh(by),
            0..38 => self.fresh(by),
            38..44 => Command::Acquire { member: one(dice), mode: Mode::Wait, queue_limit: 1_000 },
            44..68 => Command::Release { member: one(dice) },
            68..76 => Command::Renew { members: vec![one(dice), one(dice)] },
            76..88 => Command::Touch { members: vec![one(dice), one(dice)] },
            88..95 => {
                let leaving = Leaving { member: one(dice), ambiguous: dice.chance(30) };
                Command::Leave { leaving: vec![leaving] }
            }
            95..98 => {
                let held = there.iter().find(|member| self.lock.holds(member)).cloned();
                let member = held.unwrap_or_else(|| one(dice));
                Command::Reduce { member, weight: NonZeroU32::MIN }
            }
            98 => Command::ForceRelease { member: dice.chance(70).then(|| one(dice)) },
            _ => Command::Inspect,
        }
    }

    fn fresh(&mut self, by: char) -> Command {
        let (lease_ms, demand) = (self.dice.one_of(&LEASES), self.demand());
        let member = with_lease(by, self.members.len() as u64, lease_ms, demand);
        self.members.push(member.clone());
        let mode = if self.dice.chance(15) { Mode::Try } else { Mode::Wait };
        Command::Acquire { member, mode, queue_limit: self.dice.one_of(&[1_000, 1_000, 2]) }
    }

    /// Everything that is promised; the letters are those of `docs/permits-protocol.md`.
    fn check(
        &mut self,
        by: char,
        command: &Command,
        before: &PermitState,
        answer: &Answer,
        messages: &[Message],
    ) {
        let (now_ms, after) = (self.lock.now(), self.lock.state.clone());
        let told = format!("step {}: {command:?} by {by}\n{before:?}\n{after:?}", self.step);
        let granted = granted(before, &after, now_ms);

        let sum: u64 = after.holds.iter().map(|(_, member)| after.weight(member)).sum();
        let writes_nothing = matches!(command, Command::Inspect)
            || matches!(answer, Answer::Acquired(reply) if reply.outcome == Acquired::Refused);
        if before.used.is_some() || !writes_nothing {
            assert_eq!(after.used.unwrap_or(0), sum, "S7\n{told}");
        }
        for (_, member) in after.holds.iter() {
            let gained = before.holds.get(member).is_some()
                && !granted.contains(member)
                && after.weight(member) > before.weight(member);
            assert!(!gained, "{member} gained weight\n{told}");
        }
        self.take_back(command, before, answer);
        self.check_limits(&granted, &after, &told);
        self.check_told(by, &granted, answer, messages, &told);
        self.check_tokens(command, answer, &granted, &after, before, &told);
        self.check_same(command, answer, before, &after, &granted, &told);
        self.check_order(by, command, before, &after, &granted, &told);
        self.check_no_room(by, command, answer, before, &after, &told);

        for member in &granted {
            self.told.insert(member.clone(), after.holds.get(member).unwrap_or(0));
            self.enqueued.remove(member);
            self.counts.granted += 1;
            self.counts.writes += usize::from(member.demand() == Demand::WRITE);
        }
        self.counts.batches += usize::from(granted.len() > 1);
        for (_, member) in after.queue.iter() {
            // A member that asks again after its patience has ended may have been dropped, and then
            // stands at the end.
            let asks =
                matches!(command, Command::Acquire { member: asking, .. } if asking == member);
            let is_last = after.queue.greatest().is_some_and(|(_, last)| last == member);
            if asks && is_last || !self.enqueued.contains_key(member) {
                let held = after.holds.iter().map(|(_, held)| held.clone()).collect();
                self.enqueued.insert(member.clone(), (self.step, held));
                self.came.insert(member.clone(), self.step);
                self.let_past.remove(member);
            }
        }
        self.enqueued.retain(|member, _| after.queue.get(member).is_some());
    }

    /// What was given back, or renewed, by what the answer says; and a member whose lease has ended
    /// has lost it.
    fn take_back(&mut self, command: &Command, before: &PermitState, answer: &Answer) {
        let now_ms = self.lock.now();
        match (command, answer) {
            (Command::Release { member }, Answer::Released(reply)) => {
                // S6: it gives back what is there, once.
                let was_there = before.holds.get(member).is_some();
                assert_eq!(reply.outcome == Released::Released, was_there);
                self.told.remove(member);
            }
            (Command::Leave { leaving }, Answer::Left(_)) => {
                for leaving in leaving {
                    self.told.remove(&leaving.member);
                    if leaving.ambiguous {
                        self.given_up.insert(leaving.member.clone());
                    }
                }
            }
            (Command::ForceRelease { member: Some(member) }, _) => {
                self.told.remove(member);
            }
            (Command::ForceRelease { member: None }, _) => self.told.clear(),
            (Command::Renew { members }, Answer::Renewed(reply)) => {
                for (member, renewed) in members.iter().zip(&reply.outcome) {
                    // S2: what is told to hold has a lease, and what has none is told to be lost.
                    let held = self.told.get(member).is_some_and(|ends_ms| *ends_ms > now_ms);
                    assert_eq!(*renewed == Renewed::Held, held, "{member} at step {}", self.step);
                    if held {
                        self.told.insert(member.clone(), now_ms + member.lease_ms());
                    }
                }
            }
            _ => {}
        }
        let holding = self.told.len();
        self.told.retain(|_, ends_ms| *ends_ms > now_ms);
        self.counts.lapsed += holding - self.told.len();
    }

    /// S1 and S8: with each grant, what holds weighs at most the grant's own limit.
    fn check_limits(&self, granted: &[Member], after: &PermitState, told: &str) {
        let mut used: u64 = self.told.keys().map(|member| after.weight(member)).sum();
        for member in granted {
            assert!(member.demand().fits(used), "S1: {member} beside {used}\n{told}");
            let is_alone = used == 0;
            assert!(member.demand() != Demand::WRITE || is_alone, "S8: {member}\n{told}");
            used += after.weight(member);
        }
    }

    /// Each that is granted hears it: its own node in the reply, others by message, each once.
    fn check_told(
        &self,
        by: char,
        granted: &[Member],
        answer: &Answer,
        messages: &[Message],
        told: &str,
    ) {
        let mut heard = BTreeSet::new();
        for message in messages {
            let Message::Grants { node, grants, token } = message else { continue };
            assert_eq!(Some(*token), self.lock.state.token, "{told}");
            for (number, left_ms) in grants {
                assert!(heard.insert((node.to_string(), *number, *left_ms)), "twice\n{told}");
            }
        }
        for grant in grants_of(answer) {
            let Grant { member, token, left_ms } = grant;
            assert_eq!((letter(member), Some(*token)), (by, self.lock.state.token), "{told}");
            let is_new = heard.insert((member.node().to_owned(), member.number(), *left_ms));
            // A command may name a member twice.
            assert!(is_new || self.told.contains_key(member), "twice\n{told}");
        }
        for member in granted {
            let left_ms = self.lock.left(member);
            let key = (member.node().to_owned(), member.number(), left_ms);
            assert!(heard.remove(&key), "{member} was not told\n{told}");
        }
        // A member that asks again for what it has is told, too.
        let again = |(node, number, _): &(String, u64, u64)| {
            self.told.keys().any(|held| held.node() == node && held.number() == *number)
        };
        assert!(heard.iter().all(again), "told of what was not granted: {heard:?}\n{told}");
    }

    /// S3: tokens never fall; two holds have the same if and only if both are shared and no write
    /// came between.
    fn check_tokens(
        &mut self,
        command: &Command,
        answer: &Answer,
        granted: &[Member],
        after: &PermitState,
        before: &PermitState,
        told: &str,
    ) {
        let held = matches!(answer, Answer::Renewed(reply) if reply.outcome == [Renewed::Held]);
        let downgraded = match command {
            Command::Reduce { member, .. } if held => before.weight(member) == u64::from(ALL),
            _ => false,
        };
        let mut runs_now = Vec::new();
        if downgraded {
            self.counts.reduced += 1;
            runs_now.push(());
            self.is_shared = true;
        }
        for member in granted {
            let is_write = member.demand() == Demand::WRITE;
            if is_write || !self.is_shared {
                runs_now.push(());
            }
            self.is_shared = !is_write;
        }
        assert!(runs_now.len() <= 1, "more than one token in one command\n{told}");
        let token = after.token.map_or(0, FencingToken::get);
        if runs_now.is_empty() {
            assert_eq!(token, self.runs.last().copied().unwrap_or(0), "S3\n{told}");
        } else {
            assert!(token > self.runs.last().copied().unwrap_or(0), "S3\n{told}");
            self.runs.push(token);
        }
    }

    /// S5: the same attempt is the same hold or place; given up, it is never granted.
    fn check_same(
        &self,
        command: &Command,
        answer: &Answer,
        before: &PermitState,
        after: &PermitState,
        granted: &[Member],
        told: &str,
    ) {
        for member in granted {
            assert!(!self.given_up.contains(member), "S5: {member} was given up\n{told}");
        }
        let (Command::Acquire { member, .. }, Answer::Acquired(reply)) = (command, answer) else {
            return;
        };
        if self.given_up.contains(member) {
            return;
        }
        if self.told.contains_key(member) {
            assert_eq!(reply.outcome, Acquired::Granted, "S5\n{told}");
            assert_eq!(before.holds.get(member), after.holds.get(member), "S5\n{told}");
        } else if let Some(place) = before.queue.get(member)
            && before.deadlines.get(member).is_some_and(|at_ms| at_ms > self.lock.now())
            && reply.outcome != Acquired::Granted
        {
            assert_eq!(after.queue.get(member), Some(place), "S5\n{told}");
        }
    }

    /// F1 and F4: none is granted while a connected one waits that came before it.
    fn check_order(
        &mut self,
        by: char,
        command: &Command,
        before: &PermitState,
        after: &PermitState,
        granted: &[Member],
        told: &str,
    ) {
        for member in granted {
            if before.queue.get(member).is_none() {
                self.came.insert(member.clone(), self.step);
            }
        }
        for member in granted {
            let place = before.queue.get(member).unwrap_or(u64::MAX);
            for (ahead, waiting) in after.queue.iter().filter(|(ahead, _)| *ahead < place) {
                // Its patience had ended before it asked again: it may stand at the end, at
                // whatever place that is now.
                let has_ended =
                    before.deadlines.get(waiting).is_some_and(|at| at <= self.lock.now());
                let is_new = before.queue.get(waiting).is_none()
                    || has_ended && matches!(command, Command::Acquire { .. });
                if is_new {
                    continue; // its place may be one that has become free
                }
                let is_away = self.lock.away.contains(letter(waiting)) && letter(waiting) != by;
                assert!(is_away, "F1: {member} passed {waiting} at {ahead}\n{told}");
                self.let_past.insert(waiting.clone());
                self.counts.overtaken += 1;
            }
            let Some((since, held)) = self.enqueued.get(member) else { continue };
            let waits_for = after.holds.iter().map(|(_, holder)| holder);
            for holder in waits_for.filter(|holder| !granted.contains(holder)) {
                let came_before = self.came[holder] < *since;
                let is_known = held.contains(holder) || self.let_past.contains(member);
                assert!(came_before || is_known, "F4: {member} since {since}: {holder}\n{told}");
            }
        }
    }

    /// F5: after a command that makes room, the first connected waiter does not fit, unless the
    /// answer says more.
    fn check_no_room(
        &mut self,
        by: char,
        command: &Command,
        answer: &Answer,
        before: &PermitState,
        after: &PermitState,
        told: &str,
    ) {
        let (passed_over, more) = match answer {
            Answer::Acquired(reply) => (reply.passed_over, reply.more),
            Answer::Released(reply) => (reply.passed_over, reply.more),
            Answer::Renewed(reply) => (reply.passed_over, reply.more),
            Answer::Touched(reply) => (reply.passed_over, reply.more),
            Answer::Left(reply) => (reply.passed_over, reply.more),
            Answer::Inspected(_) => return,
        };
        self.counts.passed_over += passed_over as usize;
        self.counts.more += usize::from(more);
        let hands_on = match (command, answer) {
            (Command::Renew { .. }, _) => false,
            (Command::Reduce { .. }, Answer::Renewed(reply)) => reply.outcome == [Renewed::Held],
            (Command::Acquire { .. }, Answer::Acquired(reply)) => {
                matches!(reply.outcome, Acquired::Queued { .. } | Acquired::Busy | Acquired::Full)
            }
            _ => true,
        };
        let is_cut = more || before.queue.len() > self.lock.bounds.looked_at;
        let used = after.used.unwrap_or(0);
        if !hands_on || is_cut {
            return;
        }
        let now_ms = self.lock.now();
        for (_, member) in after.queue.iter() {
            if after.deadlines.get(member).is_none_or(|at_ms| at_ms <= now_ms) {
                continue;
            }
            if used >= member.demand().limit() {
                return;
            }
            if !self.lock.away.contains(letter(member)) || letter(member) == by {
                assert!(!member.demand().fits(used), "F5: {member} fits beside {used}\n{told}");
                return;
            }
        }
    }
}

/// Who was granted, in order: by place, and a newcomer last.
fn granted(before: &PermitState, after: &PermitState, now_ms: u64) -> Vec<Member> {
    let is_new = |member: &Member| match (before.holds.get(member), after.holds.get(member)) {
        (None, Some(_)) => true,
        (Some(old_ms), Some(new_ms)) => old_ms <= now_ms && new_ms > now_ms,
        _ => false,
    };
    let mut granted: Vec<_> =
        after.holds.iter().map(|(_, member)| member.clone()).filter(is_new).collect();
    granted.sort_by_key(|member| before.queue.get(member).unwrap_or(u64::MAX));
    granted
}

fn grants_of(answer: &Answer) -> &[Grant] {
    match answer {
        Answer::Acquired(reply) => &reply.grants,
        Answer::Released(reply) => &reply.grants,
        Answer::Renewed(reply) => &reply.grants,
        Answer::Touched(reply) => &reply.grants,
        Answer::Left(reply) => &reply.grants,
        Answer::Inspected(_) => &[],
    }
}
