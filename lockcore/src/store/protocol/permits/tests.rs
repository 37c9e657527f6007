//! Each rule of `docs/permits-protocol.md` as a fact, on a resource with a clock that the test
//! moves.

use std::num::NonZeroU32;

use super::*;
use crate::member::Label;
use crate::store::protocol::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, PASSED_OVER_MS, PATIENCE_MS, Presence,
    Released, Renewed, Reply, TOMBSTONE_MS, Touched,
};

mod acquire;
mod advance;
mod damage;
mod dice;
mod histories;
mod holding;
mod refinement;
mod waiting;

/// The time at which each test begins, ms since the epoch.
const START: u64 = 1_700_000_000_000;
const LEASE: u64 = 30_000;
const CLAIM: u64 = 10_000;
const MANY: u32 = 100_000;

fn node(letter: char) -> NodeId {
    NodeId::of(letter.to_string().repeat(22).as_str())
}

fn with_lease(letter: char, number: u64, lease_ms: u64, demand: Demand) -> Member {
    Member::new(&node(letter), number, lease_ms, demand, &Label::new("test"))
}

fn read(letter: char, number: u64) -> Member {
    with_lease(letter, number, LEASE, Demand::READ)
}

fn write(letter: char, number: u64) -> Member {
    with_lease(letter, number, LEASE, Demand::WRITE)
}

/// So many of `limit` permits.
fn permits(letter: char, number: u64, weight: u32, limit: u32) -> Member {
    with_lease(letter, number, LEASE, Demand::permits(weight, limit).unwrap())
}

fn letter(member: &Member) -> char {
    member.node().chars().next().unwrap()
}

fn queued(position: u64) -> Acquired {
    Acquired::Queued { position }
}

/// One resource on a server.
struct Bench {
    state: PermitState,
    now_us: u64,
    bounds: Bounds,
    /// The letters of the nodes that are not connected.
    away: String,
    /// What was published since it was last taken.
    said: Vec<Message>,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: PermitState::default(),
            now_us: START * 1_000,
            bounds: Bounds::default(),
            away: String::new(),
            said: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.now_us / 1_000
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    /// Runs a command of the node that `letter` stands for.
    fn run(&mut self, letter: char, command: &Command) -> Answer {
        let (away, id) = (self.away.clone(), node(letter));
        let connected = move |node: &str| !away.contains(&node[..1]);
        let mut call = Call::new(&id, &connected, self.now_us);
        call.bounds = self.bounds;
        let answer = self.state.step(&mut call, command);
        self.said.extend(call.messages);
        answer
    }

    fn acquire(&mut self, member: &Member) -> Reply<Acquired> {
        self.acquire_as(member, Mode::Wait, MANY)
    }

    fn acquire_as(&mut self, member: &Member, mode: Mode, queue_limit: u32) -> Reply<Acquired> {
        let command = Command::Acquire { member: member.clone(), mode, queue_limit };
        let Answer::Acquired(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    /// Acquires for all of them, in this order.
    fn acquire_all(&mut self, members: &[&Member]) {
        for member in members {
            self.acquire(member);
        }
    }

    fn release(&mut self, member: &Member) -> Reply<Released> {
        let command = Command::Release { member: member.clone() };
        let Answer::Released(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn renew(&mut self, members: &[&Member]) -> Reply<Vec<Renewed>> {
        let all = members.iter().map(|&member| member.clone()).collect();
        let command = Command::Renew { members: all };
        let Answer::Renewed(reply) = self.run(letter(members[0]), &command) else { unreachable!() };
        reply
    }

    fn reduce(&mut self, member: &Member, weight: u32) -> Reply<Vec<Renewed>> {
        let weight = NonZeroU32::new(weight).unwrap();
        let command = Command::Reduce { member: member.clone(), weight };
        let Answer::Renewed(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn touch(&mut self, members: &[&Member]) -> Reply<Touched> {
        let all = members.iter().map(|&member| member.clone()).collect();
        let command = Command::Touch { members: all };
        let Answer::Touched(reply) = self.run(letter(members[0]), &command) else { unreachable!() };
        reply
    }

    fn presence(&mut self, member: &Member) -> Presence {
        self.touch(&[member]).outcome.members[0]
    }

    fn leave(&mut self, member: &Member, ambiguous: bool) -> Reply<Vec<Left>> {
        let leaving = vec![Leaving { member: member.clone(), ambiguous }];
        let command = Command::Leave { leaving };
        let Answer::Left(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn force_release(&mut self, by: char, member: Option<&Member>) -> Reply<Released> {
        let command = Command::ForceRelease { member: member.cloned() };
        let Answer::Released(reply) = self.run(by, &command) else { unreachable!() };
        reply
    }

    fn inspect(&mut self) -> Inspection {
        let Answer::Inspected(found) = self.run('z', &Command::Inspect) else { unreachable!() };
        found
    }

    fn said(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.said)
    }

    /// Who holds, in the order of their texts.
    fn holders(&self) -> Vec<Member> {
        let mut holders: Vec<_> =
            self.state.holds.iter().map(|(_, member)| member.clone()).collect();
        holders.sort();
        holders
    }

    fn waiting(&self) -> Vec<Member> {
        self.state.queue.iter().map(|(_, member)| member.clone()).collect()
    }

    fn holds(&self, member: &Member) -> bool {
        self.state.holds.get(member).is_some()
    }

    fn token(&self) -> u64 {
        self.state.token.map_or(0, FencingToken::get)
    }

    /// A grant under the last token.
    fn grant(&self, member: Member, left_ms: u64) -> Grant {
        Grant { member, token: self.state.token.unwrap(), left_ms }
    }

    fn left(&self, member: &Member) -> u64 {
        self.state.holds.get(member).unwrap() - self.now()
    }
}
