//! Sequences of the rules in `docs/redisson.md`, on a lock with a manual clock, and the rules that
//! are exact to a millisecond. All others are covered by the `protocol` tests.

use super::Presence;
use super::*;
use super::{Acquired, Inspection, Leaving, Left, Mode, Released, Reply, Touched};
use proto::Label;

mod exact;
mod sequences;
mod walk;

/// The server's time at the start of each test, in ms since the epoch.
const START: u64 = 1_700_000_000_000;
const LEASE: u64 = 30_000;
const CLAIM: u64 = 10_000;
const MANY: u32 = 1_000;

fn node(letter: char) -> NodeId {
    NodeId::from(letter.to_string().repeat(22).as_str())
}

fn member_with_lease(letter: char, number: u64, lease_ms: u64) -> Party {
    Member::plain(&node(letter), number, lease_ms, &Label::new("test")).into()
}

fn member(letter: char, number: u64) -> Party {
    member_with_lease(letter, number, LEASE)
}

/// Returns the JVM thread with this thread id, always of the same JVM.
fn jvm(number: u64) -> Party {
    Party::from(format!("0e4a6f0c-5b0e-4a39-8a8d-3c2f5c1f1d55:{number}").as_str())
}

/// A lock on a server with a manual clock.
struct Bench {
    state: LockState,
    now_us: u64,
    /// The letters of the nodes that are not connected, and so are granted nothing.
    away: String,
    /// The JVM threads that are subscribed, and so can be woken.
    heard: Vec<Party>,
    /// The published messages that the test has not taken yet.
    said: Vec<Message>,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: LockState::default(),
            now_us: START * 1_000,
            away: String::new(),
            heard: Vec::new(),
            said: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.now_us / 1_000
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    /// Runs a command of the node with this letter, and adds the published messages to `said`.
    fn run(&mut self, letter: char, command: Command) -> Answer {
        let connected = |node: &str| !self.away.contains(&node[..1]);
        let listens = |thread: &str| self.heard.iter().any(|member| member.as_str() == thread);
        let node = node(letter);
        let mut call = Call::new(&node, &connected, self.now_us);
        call.peers = Peers { listens: &listens };
        let answer = self.state.step(&mut call, &command);
        self.said.extend(call.messages);
        answer
    }

    fn acquire(&mut self, member: &Party) -> Reply<Acquired> {
        self.acquire_as(member, Mode::Wait, MANY)
    }

    fn acquire_as(&mut self, member: &Party, mode: Mode, queue_limit: u32) -> Reply<Acquired> {
        let command = Command::Acquire { members: vec![ours(member)], mode, queue_limit };
        let Answer::Acquired(reply) = self.run(letter(member), command) else { unreachable!() };
        reply.map(|outcomes| outcomes[0])
    }

    fn release(&mut self, member: &Party) -> Reply<Released> {
        let command = Command::Release { member: ours(member) };
        let Answer::Released(reply) = self.run(letter(member), command) else { unreachable!() };
        reply
    }

    fn touch(&mut self, members: &[&Party]) -> Reply<Touched> {
        let by = letter(members[0]);
        let members = members.iter().map(|member| ours(member)).collect();
        let Answer::Touched(reply) = self.run(by, Command::Touch { members }) else {
            unreachable!()
        };
        reply
    }

    fn presence(&mut self, member: &Party) -> Presence {
        self.touch(&[member]).outcome.members[0]
    }

    fn leave(&mut self, member: &Party, ambiguous: bool) -> Reply<Vec<Left>> {
        let leaving = vec![Leaving::new(ours(member), ambiguous)];
        let Answer::Left(reply) = self.run(letter(member), Command::Leave { leaving }) else {
            unreachable!()
        };
        reply
    }

    fn inspect(&mut self) -> Inspection {
        let Answer::Inspected(found) = self.run('z', Command::INSPECT) else { unreachable!() };
        found
    }

    fn said(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.said)
    }

    fn holder(&self) -> Option<&Party> {
        self.state.hold.as_ref().map(|hold| &hold.member)
    }

    fn token(&self) -> u64 {
        self.state.token.as_ref().map_or(0, |token| token.value.get())
    }

    /// Queues a JVM thread with this score. Like a JVM, removes the TTL of the queue.
    fn queue_foreign(&mut self, member: &Party, deadline_ms: u64) {
        self.state.queue.push_back(member.clone());
        self.state.deadlines.set(member, deadline_ms);
        self.state.queue_expires_ms = None;
    }

    /// Returns the queued members, in order.
    fn waiting(&self) -> Vec<Party> {
        self.state.queue.iter().cloned().collect()
    }
}

/// Returns the party as a member of lockcore. Panics for a JVM thread.
fn ours(party: &Party) -> Member {
    party.ours().expect("a member of ours").clone()
}

/// Returns the remaining lease of the hold in ms; 0 without a hold.
fn left<T>(reply: &Reply<T>) -> u64 {
    reply.first_end_ms.expect("a full answer")
}

/// Returns the letter of a member's node.
fn letter(member: &Party) -> char {
    member.as_str().chars().nth(2).expect("a member of ours")
}

fn queued(position: u64) -> Acquired {
    Acquired::Queued { position }
}

#[test]
fn a_claim_is_a_third_of_the_lease_but_two_to_ten_seconds_and_at_most_the_lease() {
    let cases = [(30_000, 10_000), (6_001, 2_000), (6_002, 2_000), (6_003, 2_001)];
    let short = [(1_000, 1_000), (100, 100), (2_500, 2_000)];
    let long = [(29_999, 9_999), (30_001, 10_000), (120_000, 10_000), (86_400_000, 10_000)];
    for (lease_ms, claim) in cases.into_iter().chain(short).chain(long) {
        assert_eq!(claim_ms(lease_ms), claim, "of {lease_ms}");
    }
}
