//! Random histories of the rules in `docs/protocol.md`, on a lock with a clock moved by the test,
//! and the bounds of one command. Each rule has its own test in the tests `protocol`.

use std::num::NonZeroU32;

use super::*;
use crate::demand::{ALL, Demand};
use crate::member::Label;
use crate::{
    Acquired, Grant, Leaving, Left, Mode, PATIENCE_MS, Presence, Released, Renewed, Reply,
    TOMBSTONE_MS, Touched,
};

mod bounds;
mod dice;
mod histories;
mod newest;
mod refinement;

/// When each test begins, in ms since the epoch.
const START: u64 = 1_700_000_000_000;
const LEASE: u64 = 30_000;

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
    member(letter, number, Demand::EXCLUSIVE)
}

fn read(letter: char, number: u64) -> Member {
    member(letter, number, Demand::READ)
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
    /// The letters of the disconnected nodes.
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
            away: String::new(),
            said: Vec::new(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
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
        self.check_lock_key();
        answer
    }

    /// Checks L1 and L2 of the page, after every command.
    fn check_lock_key(&self) {
        let lock_key = self.state.lock_key.as_ref();
        let is_waited_for = !self.state.queue.is_empty();
        assert!(lock_key.is_some() || !is_waited_for && self.state.holds.is_empty(), "L1");
        let mark = lock_key.map_or(Mark::None, |lock_key| lock_key.mark);
        assert!(!is_waited_for || mark != Mark::None, "L2");
        assert!(self.state.tombstones.is_empty() || mark == Mark::Tombstones, "L2");
    }

    fn acquire(&mut self, member: &Member) -> Reply<Acquired> {
        let (members, by) = (vec![member.clone()], letter(member));
        let command = Command::Acquire { members, mode: Mode::Wait, queue_limit: 1_000_000 };
        let Answer::Acquired(reply) = self.run(by, &command) else { unreachable!() };
        reply.map(|outcomes| outcomes[0])
    }

    fn release(&mut self, member: &Member) -> Reply<Released> {
        let command = Command::Release { member: member.clone() };
        let Answer::Released(reply) = self.run(letter(member), &command) else { unreachable!() };
        reply
    }

    fn touch(&mut self, members: &[&Member]) -> Reply<Touched> {
        let all = members.iter().map(|&member| member.clone()).collect();
        let command = Command::Touch { members: all };
        let Answer::Touched(reply) = self.run(letter(members[0]), &command) else { unreachable!() };
        reply
    }

    /// Returns the messages since the last call.
    fn said(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.said)
    }

    fn waiting(&self) -> Vec<Member> {
        self.state.queue.iter().map(|(_, member)| member.clone()).collect()
    }
}
