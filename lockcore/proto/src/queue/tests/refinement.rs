//! Locks alone are a plain fair mutex: the same history has the same outcomes, the same holder and
//! the same queue.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;
use super::*;

const CASES: u64 = 400;
const COMMANDS: usize = 150;
const NODES: [char; 4] = ['a', 'b', 'c', 'd'];

/// The reference: a holder, a queue, and the members set aside while their nodes were away.
#[derive(Default)]
struct Mutex {
    holder: Option<(Member, u64)>,
    /// The waiters in the order of arrival, by ordinal number.
    line: BTreeMap<u64, Member>,
    set_aside: BTreeMap<u64, Member>,
    aside_until: BTreeMap<char, u64>,
    heard_until: BTreeMap<char, u64>,
    given_up: BTreeMap<Member, u64>,
    came: u64,
}

impl Mutex {
    fn expire(&mut self, now_ms: u64) {
        self.holder.take_if(|(_, ends_ms)| *ends_ms <= now_ms);
        self.heard_until.retain(|_, at_ms| *at_ms > now_ms);
        self.given_up.retain(|_, at_ms| *at_ms > now_ms);
        self.aside_until.retain(|_, at_ms| *at_ms > now_ms);
        let is_kept = |of: &Member| self.aside_until.contains_key(&letter(of));
        self.set_aside.retain(|_, member| is_kept(member));
    }

    fn score(&self, member: &Member) -> Option<u64> {
        self.line.iter().find(|(_, one)| *one == member).map(|(score, _)| *score)
    }

    /// Grants a free lock to the first connected waiter.
    fn pass_on(&mut self, by: char, away: &str, now_ms: u64) {
        while self.holder.is_none()
            && let Some((score, member)) = self.line.pop_first()
        {
            let of = letter(&member);
            if of != by && !self.heard_until.contains_key(&of) {
                continue;
            }
            if of != by && away.contains(of) {
                self.set_aside.insert(score, member);
                self.aside_until.insert(of, now_ms + ASIDE_MS);
                continue;
            }
            let lease_ms = member.lease_ms();
            let claim_ms = lease_ms.min((lease_ms / 3).clamp(2_000, 10_000));
            self.holder = Some((member, now_ms + claim_ms));
        }
    }

    fn acquire(
        &mut self,
        by: char,
        away: &str,
        now_ms: u64,
        member: &Member,
        mode: Mode,
    ) -> Acquired {
        if self.given_up.contains_key(member) {
            return Acquired::Refused;
        }
        self.pass_on(by, away, now_ms);
        match &self.holder {
            Some((holder, _)) if holder == member => return Acquired::Granted,
            None => {
                self.holder = Some((member.clone(), now_ms + member.lease_ms()));
                return Acquired::Granted;
            }
            Some(_) => {}
        }
        let is_low = self.heard_until.get(&by).is_none_or(|at_ms| *at_ms < now_ms + FRESH_MS);
        let is_there = self.score(member);
        if is_there.is_none() && mode == Mode::Try {
            return Acquired::Busy;
        }
        if is_low {
            self.heard_until.insert(by, now_ms + PATIENCE_MS);
        }
        let score = is_there.unwrap_or_else(|| {
            self.came += 1;
            self.line.insert(self.came, member.clone());
            self.came
        });
        queued(self.line.range(..score).count() as u64)
    }

    fn touch(&mut self, by: char, away: &str, now_ms: u64, member: &Member) -> Presence {
        let aside = self.set_aside.iter().find(|(_, one)| *one == member).map(|(score, _)| *score);
        if let Some(score) = aside {
            self.set_aside.remove(&score);
            self.line.insert(score, member.clone());
        }
        let holds = self.holder.as_ref().is_some_and(|(holder, _)| holder == member);
        let waits = self.score(member).is_some();
        if waits {
            self.heard_until.insert(by, now_ms + PATIENCE_MS);
        }
        self.pass_on(by, away, now_ms);
        match (holds, waits) {
            (true, _) => Presence::Holding,
            (false, true) => Presence::Waiting,
            (false, false) => Presence::Gone,
        }
    }

    /// Removes the member, wherever it is. Returns whether it existed.
    fn take_out(&mut self, member: &Member) -> bool {
        let before = self.line.len() + self.set_aside.len();
        self.line.retain(|_, one| one != member);
        self.set_aside.retain(|_, one| one != member);
        let held = self.holder.take_if(|(holder, _)| holder == member);
        held.is_some() || self.line.len() + self.set_aside.len() < before
    }
}

#[test]
fn locks_alone_are_a_plain_fair_mutex() {
    let mut met = BTreeSet::new();
    for seed in 0..CASES {
        let mut bench = Bench::new();
        let mut mutex = Mutex::default();
        let mut dice = Dice::new(seed);
        let mut members = Vec::new();
        let mut last = 0;
        for step in 0..COMMANDS {
            if dice.chance(8) {
                bench.away = NODES.into_iter().filter(|_| dice.chance(30)).collect();
            }
            if dice.chance(50) {
                bench.pass(dice.one_of(&[1, 30, 300, 2_000, 5_500]));
            }
            let now_ms = bench.now();
            mutex.expire(now_ms);
            let by = dice.one_of(&NODES);
            let command = choose(&mut dice, &mutex, &mut members, by);
            let answer = bench.run(by, &command);
            let context = format!("step {step} of case {seed}: {command:?}\n{answer:?}");
            met.insert(compare(&mut mutex, &bench, by, &command, &answer, &context));
            for grant in answer.grants() {
                assert!(grant.token.get() > last, "{context}");
                last = grant.token.get();
            }
            for message in bench.said() {
                let Message::Grants { token, .. } = message else { continue };
                assert!(token.get() > last, "{context}");
                last = token.get();
            }
            let holder =
                bench.state.whole(now_ms).map(|(member, ends_ms)| (member.clone(), ends_ms));
            assert_eq!(holder, mutex.holder, "{context}");
            let line: Vec<Member> = mutex.line.values().cloned().collect();
            assert_eq!(bench.waiting(), line, "{context}");
        }
    }
    assert!(met.len() >= 16, "{met:?}");
}

fn choose(dice: &mut Dice, mutex: &Mutex, members: &mut Vec<Member>, by: char) -> Command {
    // No copy of a command is in flight for longer than a tombstone exists, nor after a release.
    let mine = |member: &&Member| letter(member) == by;
    let held = mutex.holder.iter().map(|(holder, _)| holder);
    let there: Vec<Member> = held
        .chain(mutex.line.values())
        .chain(mutex.set_aside.values())
        .filter(mine)
        .cloned()
        .collect();
    if there.is_empty() || dice.chance(35) {
        let lease_ms = dice.one_of(&[200, 2_500, 9_000, 60_000]);
        let fresh = with_lease(by, members.len() as u64, lease_ms, Demand::EXCLUSIVE);
        members.push(fresh.clone());
        let mode = if dice.chance(20) { Mode::Try } else { Mode::Wait };
        return Command::Acquire { members: vec![fresh], mode, queue_limit: 1_000 };
    }
    let known: Vec<Member> = members.iter().filter(mine).cloned().collect();
    let member = if dice.chance(85) { dice.one_of(&there) } else { dice.one_of(&known) };
    match dice.below(65) {
        // The acquire counts as unanswered. A skipped member is a newcomer then.
        0..7 if mutex.set_aside.values().all(|one| *one != member) && there.contains(&member) => {
            Command::Acquire { members: vec![member], mode: Mode::Wait, queue_limit: 1_000 }
        }
        0..7 => Command::INSPECT,
        7..30 => Command::Release { member },
        30..34 => Command::Renew { members: vec![member] },
        34..38 => Command::Confirm { member },
        38..51 => Command::Touch { members: vec![member] },
        51..61 => Command::Leave { leaving: vec![Leaving::new(member, dice.chance(30))] },
        _ => Command::ForceRelease { member: None },
    }
}

/// Runs the command on the reference, and compares the outcomes. Returns its name.
fn compare(
    mutex: &mut Mutex,
    bench: &Bench,
    by: char,
    command: &Command,
    answer: &Answer,
    context: &str,
) -> String {
    let now_ms = bench.now();
    let away = bench.away.as_str();
    match (command, answer) {
        (Command::Acquire { members, mode, .. }, Answer::Acquired(reply)) => {
            let expected = mutex.acquire(by, away, now_ms, &members[0], *mode);
            assert_eq!(reply.outcome, [expected], "{context}");
            format!("{expected:?}").chars().take(6).collect()
        }
        (Command::Release { member }, Answer::Released(reply)) => {
            let is_held = mutex.holder.take_if(|(holder, _)| holder == member).is_some();
            mutex.pass_on(by, away, now_ms);
            assert_eq!(reply.outcome == Released::Released, is_held, "{context}");
            format!("{:?}", reply.outcome)
        }
        (Command::Renew { .. } | Command::Confirm { .. }, Answer::Renewed(reply)) => {
            let member = &command.renews()[0];
            let held = mutex.holder.as_mut().filter(|(holder, _)| holder == member);
            assert_eq!(reply.outcome == [Renewed::Held], held.is_some(), "{context}");
            if let Some((_, ends_ms)) = held {
                *ends_ms = now_ms + member.lease_ms();
            }
            format!("{:?} {}", reply.outcome, matches!(command, Command::Renew { .. }))
        }
        (Command::Touch { members }, Answer::Touched(reply)) => {
            let expected = mutex.touch(by, away, now_ms, &members[0]);
            assert_eq!(reply.outcome.members, [expected], "{context}");
            format!("{expected:?}")
        }
        (Command::Leave { leaving }, Answer::Left(reply)) => {
            if leaving[0].ambiguous {
                mutex.given_up.insert(leaving[0].member.clone(), now_ms + TOMBSTONE_MS);
            }
            let was_there = mutex.take_out(&leaving[0].member);
            mutex.pass_on(by, away, now_ms);
            assert_eq!(reply.outcome == [Left::Left], was_there, "{context}");
            format!("{:?}", reply.outcome)
        }
        (Command::ForceRelease { .. }, Answer::Released(reply)) => {
            let is_held = mutex.holder.take().is_some();
            mutex.pass_on(by, away, now_ms);
            assert_eq!(reply.outcome == Released::Released, is_held, "{context}");
            format!("force {:?}", reply.outcome)
        }
        (Command::Inspect { .. }, Answer::Inspected(found)) => {
            let held = mutex
                .holder
                .iter()
                .map(|(holder, ends_ms)| (holder.into(), u64::from(ALL), ends_ms - now_ms));
            let shown =
                found.holds.iter().map(|hold| (hold.party.clone(), hold.weight, hold.left_ms));
            assert_eq!(shown.collect::<Vec<_>>(), held.collect::<Vec<_>>(), "{context}");
            "inspect".to_owned()
        }
        _ => panic!("{context}"),
    }
}
