//! Where every request is a write, this is the mutex: the same history has the same outcomes, order
//! and tokens.
//!
//! What differs, and is left out of the comparison: a lease that has ended frees the mutex by
//! itself, here the hold counts until a command looks, and a member that gives it back before that
//! has released it; and waiters whose patience has ended are dropped from the head while it is
//! held, too, so that they are not asked for again and positions may be lower.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;
use super::*;
use crate::member::Party;
use crate::store::protocol as mutex;

const CASES: u64 = 400;
const COMMANDS: usize = 150;
const NODES: [char; 4] = ['a', 'b', 'c', 'd'];

/// Both, under the same commands.
struct Pair {
    lock: Bench,
    mutex: mutex::LockState,
    /// Each attempt's member there.
    members: BTreeMap<Member, Member>,
    /// Those whose patience has ended.
    dead: BTreeSet<Member>,
    dice: Dice,
}

#[test]
fn with_writes_only_this_is_the_mutex() {
    let mut compared = 0;
    for seed in 0..CASES {
        let (lock, mutex) = (Bench::new(), mutex::LockState::default());
        let (members, dead) = (BTreeMap::new(), BTreeSet::new());
        let mut pair = Pair { lock, mutex, members, dead, dice: Dice::new(seed) };
        for step in 0..COMMANDS {
            compared += usize::from(pair.compare_one(&format!("step {step} of case {seed}")));
        }
    }
    assert!(compared > 50_000, "{compared}");
}

impl Pair {
    fn compare_one(&mut self, told: &str) -> bool {
        if self.dice.chance(8) {
            self.lock.away = NODES.into_iter().filter(|_| self.dice.chance(30)).collect();
        }
        if self.dice.chance(50) {
            let pause_ms = self.dice.one_of(&[1, 30, 300, 2_000, 5_500]);
            self.lock.pass(pause_ms);
        }
        self.lock.now_us += 1;
        let now_ms = self.lock.now();
        self.mutex.expire(now_ms);
        for (at_ms, member) in self.lock.state.deadlines.iter() {
            if at_ms <= now_ms {
                self.dead.insert(member.clone());
            }
        }

        let by = self.dice.one_of(&NODES);
        let Some(command) = self.command(by) else { return false };
        let lapsed: Vec<Member> = self.lock.state.holds.passed(now_ms).cloned().collect();
        let away = self.lock.away.clone();
        let connected = move |node: &str| !away.contains(&node[..1]);
        let theirs = self.translate(&command);
        let (expected, messages) =
            mutex::step(&mut self.mutex, &connected, &node(by), &theirs, self.lock.now_us);
        let answer = self.lock.run(by, &command);
        let told = format!("{told}: {command:?}\n{expected:?}\n{answer:?}");

        self.compare_answers(&command, &lapsed, &answer, &expected, &told);
        let said = self.lock.said();
        self.compare_messages(&said, &messages, &lapsed, &told);
        self.compare_states(&told);
        true
    }

    fn command(&mut self, by: char) -> Option<Command> {
        let mine = |member: &&Member| letter(member) == by && !self.dead.contains(*member);
        let known: Vec<_> = self.members.keys().filter(mine).cloned().collect();
        let there: Vec<_> = known
            .iter()
            .filter(|member| self.lock.holds(member) || self.lock.state.queue.get(member).is_some())
            .cloned()
            .collect();
        let dice = &mut self.dice;
        let kind = dice.below(100);
        if known.is_empty() || kind < 35 {
            let lease_ms = dice.one_of(&[200, 2_500, 9_000, 60_000]);
            let number = self.members.len() as u64;
            let member = with_lease(by, number, lease_ms, Demand::WRITE);
            let theirs = Member::mutex(&node(by), number, lease_ms, &Label::new("test"));
            self.members.insert(member.clone(), theirs);
            let mode = if dice.chance(20) { Mode::Try } else { Mode::Wait };
            return Some(Command::Acquire { member, mode, queue_limit: dice.one_of(&[1_000, 3]) });
        }
        let member = if there.is_empty() || dice.chance(15) {
            dice.one_of(&known)
        } else {
            dice.one_of(&there)
        };
        Some(match kind {
            35..42 => Command::Acquire { member, mode: Mode::Wait, queue_limit: 1_000 },
            42..65 => {
                // A release is for holders, there as here.
                if self.lock.state.queue.get(&member).is_some() {
                    return None;
                }
                Command::Release { member }
            }
            65..72 => Command::Renew { members: vec![member] },
            72..86 => Command::Touch { members: vec![member] },
            86..96 => {
                let ambiguous = dice.chance(30);
                Command::Leave { leaving: vec![Leaving { member, ambiguous }] }
            }
            _ => Command::ForceRelease { member: None },
        })
    }

    /// The same command for the mutex, whose members have another text.
    fn translate(&self, command: &Command) -> Command {
        let theirs = |member: &Member| self.members[member].clone();
        let all = |members: &[Member]| members.iter().map(theirs).collect();
        match command {
            Command::Acquire { member, mode, queue_limit } => {
                Command::Acquire { member: theirs(member), mode: *mode, queue_limit: *queue_limit }
            }
            Command::Release { member } => Command::Release { member: theirs(member) },
            Command::Renew { members } => Command::Renew { members: all(members) },
            Command::Touch { members } => Command::Touch { members: all(members) },
            Command::Leave { leaving } => {
                let ours = |one: &Leaving| Leaving {
                    member: theirs(&one.member),
                    ambiguous: one.ambiguous,
                };
                Command::Leave { leaving: leaving.iter().map(ours).collect() }
            }
            Command::ForceRelease { .. } => Command::ForceRelease { member: None },
            Command::Reduce { .. } | Command::Inspect => unreachable!("not among these commands"),
        }
    }

    fn compare_answers(
        &self,
        command: &Command,
        lapsed: &[Member],
        answer: &Answer,
        expected: &Answer,
        told: &str,
    ) {
        let is_of_a_lapsed_hold = match command {
            Command::Release { member } => lapsed.contains(member),
            Command::Leave { leaving } => lapsed.contains(&leaving[0].member),
            Command::ForceRelease { .. } => !lapsed.is_empty(),
            _ => false,
        };
        match (answer, expected) {
            (Answer::Acquired(ours), Answer::Acquired(theirs)) => {
                let without_position = |outcome| match outcome {
                    Acquired::Queued { .. } => queued(0),
                    other => other,
                };
                let (was, is) = (without_position(theirs.outcome), without_position(ours.outcome));
                assert_eq!(is, was, "{told}");
                if let Acquired::Granted = theirs.outcome {
                    self.compare_grants(&ours.grants, &theirs.grants, told);
                }
            }
            (Answer::Released(ours), Answer::Released(theirs)) if !is_of_a_lapsed_hold => {
                assert_eq!(ours.outcome, theirs.outcome, "{told}");
            }
            (Answer::Renewed(ours), Answer::Renewed(theirs)) => {
                assert_eq!(ours.outcome, theirs.outcome, "{told}");
            }
            (Answer::Touched(ours), Answer::Touched(theirs)) => {
                assert_eq!(ours.outcome.listeners, theirs.outcome.listeners, "{told}");
                assert_eq!(ours.outcome.members, theirs.outcome.members, "{told}");
            }
            (Answer::Left(ours), Answer::Left(theirs)) if !is_of_a_lapsed_hold => {
                assert_eq!(ours.outcome, theirs.outcome, "{told}");
            }
            (Answer::Released(_), Answer::Released(_)) | (Answer::Left(_), Answer::Left(_)) => {}
            _ => panic!("{told}"),
        }
    }

    fn compare_grants(&self, ours: &[Grant], theirs: &[Grant], told: &str) {
        let of_mutex = |grant: &Grant| {
            let member = self.members[&grant.member].clone();
            Grant { member, ..*grant }
        };
        assert_eq!(ours.iter().map(of_mutex).collect::<Vec<_>>(), theirs, "{told}");
    }

    /// The same grants and revocations, to the same nodes in the same order.
    fn compare_messages(
        &self,
        said: &[Message],
        expected: &[mutex::Message],
        lapsed: &[Member],
        told: &str,
    ) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for message in said {
            match message {
                Message::Grants { node, token, grants } => {
                    ours.push((node.to_string(), grants[0], Some(*token), grants.len()));
                }
                Message::Revoked { node, numbers } => {
                    if !lapsed.iter().any(|member| numbers.contains(&member.number())) {
                        ours.push((node.to_string(), (numbers[0], 0), None, numbers.len()));
                    }
                }
            }
        }
        for message in expected {
            theirs.push(match message {
                mutex::Message::Grant { node, member, token, left_ms } => {
                    (node.to_string(), (member.number(), *left_ms), Some(*token), 1)
                }
                mutex::Message::Revoked { node, member } => {
                    (node.to_string(), (member.number(), 0), None, 1)
                }
                mutex::Message::Poke { .. } => unreachable!("no foreign members"),
            });
        }
        assert_eq!(ours, theirs, "{told}");
    }

    /// The same holder with the same lease, the same token, and the same live waiters in the same
    /// order with the same deadlines.
    fn compare_states(&self, told: &str) {
        let (now_ms, state) = (self.lock.now(), &self.lock.state);
        let ours: Vec<_> = state
            .holds
            .iter()
            .filter(|(ends_ms, _)| *ends_ms > now_ms)
            .map(|(ends_ms, member)| (Party::from(&self.members[member]), Some(ends_ms)))
            .collect();
        let hold = self.mutex.hold.iter();
        let theirs: Vec<_> = hold.map(|hold| (hold.member.clone(), hold.expires_ms)).collect();
        assert_eq!(ours, theirs, "{told}");
        if let Some(token) = &self.mutex.token {
            assert_eq!(state.token, Some(token.value), "{told}");
        }
        let live = |at_ms: &u64| *at_ms > now_ms;
        let ours: Vec<_> = state
            .queue
            .iter()
            .map(|(_, member)| (Party::from(&self.members[member]), state.deadlines.get(member)))
            .filter(|(_, at_ms)| at_ms.as_ref().is_some_and(live))
            .collect();
        let waiting = self.mutex.queue.iter();
        let theirs: Vec<_> = waiting
            .map(|member| (member.clone(), self.mutex.deadlines.get(member)))
            .filter(|(_, at_ms)| at_ms.as_ref().is_some_and(live))
            .collect();
        assert_eq!(ours, theirs, "{told}");
    }
}
