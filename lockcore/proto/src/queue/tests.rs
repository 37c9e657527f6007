//! Rules of `docs/protocol.md` as facts, on a lock with a clock that the test moves.

use std::num::NonZeroU32;

use super::*;
use crate::demand::{ALL, Demand};
use crate::member::Label;
use crate::{
    Acquired, Grant, Inspection, Leaving, Left, Mode, PATIENCE_MS, Presence, Released, Renewed,
    Reply, TOMBSTONE_MS, Touched,
};

mod acquire;
mod advance;
mod damage;
mod dice;
mod ended;
mod histories;
mod holding;
mod passed;
mod refinement;
mod tokens;
mod waiting;

/// The time at which each test begins, ms since the epoch.
const START: u64 = 1_700_000_000_000;
const LEASE: u64 = 30_000;
const CLAIM: u64 = 10_000;

fn node(letter: char) -> NodeId {
    NodeId::from(letter.to_string().repeat(22).as_str())
}

fn with_lease(letter: char, number: u64, lease_ms: u64, demand: Demand) -> Member {
    Member::new(&node(letter), number, lease_ms, demand, &Label::new("test"))
}

fn member(letter: char, number: u64, demand: Demand) -> Member {
    with_lease(letter, number, LEASE, demand)
}

fn lock(letter: char, number: u64) -> Member {
    member(letter, number, Demand::ALONE)
}

fn read(letter: char, number: u64) -> Member {
    member(letter, number, Demand::READ)
}

fn permit(letter: char, number: u64, limit: u32) -> Member {
    member(letter, number, Demand::permits(1, limit).unwrap())
}

/// So many of `limit` permits.
fn permits(letter: char, number: u64, weight: u32, limit: u32) -> Member {
    member(letter, number, Demand::permits(weight, limit).unwrap())
}

fn letter(member: &Member) -> char {
    member.node().chars().next().unwrap()
}

fn queued(position: u64) -> Acquired {
    Acquired::Queued { position }
}

/// One lock on a server.
struct Bench {
    state: QueueState,
    now_us: u64,
    counter: Option<u64>,
    floor_us: u64,
    elsewhere_us: u64,
    bounds: Bounds,
    was_set_back: bool,
    /// The letters of the nodes that are not connected.
    away: String,
    said: Vec<Message>,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: QueueState::default(),
            now_us: START * 1_000,
            counter: None,
            floor_us: START * 1_000,
            elsewhere_us: 0,
            bounds: Bounds::default(),
            was_set_back: false,
            away: String::new(),
            said: Vec::new(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn set_back(&mut self, ms: u64) {
        self.now_us -= ms * 1_000;
        self.was_set_back = true;
    }

    fn now(&self) -> u64 {
        self.now_us / 1_000
    }

    fn run(&mut self, by: char, command: &Command) -> Answer {
        let (away, id) = (self.away.clone(), node(by));
        let connected = move |node: &str| !away.contains(&node[..1]);
        let mut call = Call::new(&id, &connected, self.now_us);
        (call.bounds, call.counter) = (self.bounds, self.counter);
        (call.floor_us, call.elsewhere_us) = (self.floor_us, self.elsewhere_us);
        let answer = self.state.step(&mut call, command);
        self.counter = call.counter;
        self.said.extend(call.messages);
        self.check_door();
        answer
    }

    /// L1 and L2 of the page, after every command. Where the clock was set back, tombstones may
    /// outlive the door.
    fn check_door(&self) {
        let door = self.state.door.as_ref();
        let is_waited_for = !self.state.queue.is_empty();
        assert!(door.is_some() || !is_waited_for && self.state.holds.is_empty(), "L1");
        let mark = door.map_or(Mark::None, |door| door.mark);
        assert!(!is_waited_for || mark != Mark::None, "L2");
        let is_marked = self.state.gone.is_empty() || mark == Mark::Gone;
        assert!(is_marked || self.was_set_back, "L2");
    }

    fn acquire_as(&mut self, member: &Member, mode: Mode, queue_limit: u32) -> Reply<Acquired> {
        let command = Command::Acquire { member: member.clone(), mode, queue_limit };
        let Answer::Acquired(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn acquire(&mut self, member: &Member) -> Reply<Acquired> {
        self.acquire_as(member, Mode::Wait, 1_000_000)
    }

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

    fn renew(&mut self, members: &[&Member]) -> Vec<Renewed> {
        let all = members.iter().map(|&member| member.clone()).collect();
        let command = Command::Renew { members: all };
        let Answer::Renewed(reply) = self.run(letter(members[0]), &command) else { unreachable!() };
        reply.outcome
    }

    fn renew_one(&mut self, member: &Member) -> Renewed {
        self.renew(&[member])[0]
    }

    fn confirm(&mut self, member: &Member) -> Reply<Vec<Renewed>> {
        let command = Command::Confirm { member: member.clone() };
        let Answer::Renewed(reply) = self.run(letter(member), &command) else { unreachable!() };
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

    fn leave(&mut self, member: &Member, ambiguous: bool) -> Left {
        let leaving = vec![Leaving { member: member.clone(), ambiguous }];
        let command = Command::Leave { leaving };
        let Answer::Left(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply.outcome[0]
    }

    fn force_release(&mut self, member: Option<&Member>) -> Released {
        let command = Command::ForceRelease { member: member.cloned() };
        let Answer::Released(reply) = self.run('z', &command) else { unreachable!() };
        reply.outcome
    }

    fn inspect(&mut self) -> Inspection {
        let Answer::Inspected(found) = self.run('z', &Command::Inspect) else { unreachable!() };
        found
    }

    /// The messages since it was last asked.
    fn said(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.said)
    }

    fn holds(&self, member: &Member) -> bool {
        self.holders().contains(member)
    }

    /// The token that parts share.
    fn shared_token(&self) -> u64 {
        self.state.shared_token().map_or(0, FencingToken::get)
    }

    fn used(&self) -> u64 {
        self.state.used()
    }

    /// The milliseconds left of the lease of a member that holds.
    fn left(&self, member: &Member) -> u64 {
        let now_ms = self.now();
        let ends_ms = match self.state.whole(now_ms) {
            Some((holder, ends_ms)) => (holder == member).then_some(ends_ms),
            None => self.state.holds.get(member),
        };
        ends_ms.unwrap() - now_ms
    }

    /// Every member that holds, the first to end first.
    fn holders(&self) -> Vec<Member> {
        match self.state.whole(self.now()) {
            Some((member, _)) => vec![member.clone()],
            None => self.state.holds.iter().map(|(_, member)| member.clone()).collect(),
        }
    }

    fn waiting(&self) -> Vec<Member> {
        self.state.queue.iter().map(|(_, member)| member.clone()).collect()
    }

    /// The lease of the member that holds everything ends now.
    fn end_lease(&mut self) {
        let now_ms = self.now();
        let door = self.state.door.as_mut().unwrap();
        let margin_ms = if door.mark == Mark::None { 0 } else { MARGIN_MS };
        door.ends_ms = Some(now_ms + margin_ms);
    }
}
