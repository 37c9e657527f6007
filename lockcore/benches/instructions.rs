//! The work whose instructions `scripts/instructions` counts: acquires and releases of a lock,
//! through the node's state machine and the protocol's function, without a store, a runtime or a
//! clock.
//!
//!     instructions free|hot TURNS
#![allow(missing_docs)]

use proto::node::{Core, Moment, Outcome, Request, Rules, StoreRequest};
use proto::queue::{Call, QueueState};
use proto::{Demand, Label, LockName, Mode, NodeId, Terms};

/// Number of other locks that the node holds meanwhile.
const OTHERS: u64 = 200;
/// Number of attempts that wait for the hot lock at all times.
const WAITERS: u64 = 64;

struct World {
    node: NodeId,
    core: Core<()>,
    now_us: u64,
    /// Token counter that all locks share.
    counter: Option<u64>,
}

impl World {
    fn new() -> Self {
        let node = NodeId::from(7_u128);
        let rules = Rules { seed: 7, ..Rules::default() };
        Self { core: Core::new(node.clone(), rules), node, now_us: 1_000_000, counter: None }
    }

    /// Runs a core event. Its effects are dropped, because this bench does not need them.
    fn event<T>(&mut self, happen: impl FnOnce(&mut Core<()>) -> T) -> T {
        let outcome = happen(self.core.event(Moment::from_micros(self.now_us)));
        drop(self.core.drain());
        outcome
    }

    /// Begins an attempt, and answers its acquire. Returns the attempt's number.
    fn ask(&mut self, lock: &LockName, state: &mut QueueState) -> u64 {
        let request = Request {
            lock: lock.clone(),
            options: Terms::default(),
            mode: Mode::Wait,
            label: Label::new("instructions"),
            demand: Demand::EXCLUSIVE,
        };
        let (attempt, store_request) =
            self.event(|core| core.begin(request, ())).expect("it is open");
        self.answer(&store_request.expect("it is connected"), state);
        attempt
    }

    fn answer(&mut self, request: &StoreRequest, state: &mut QueueState) {
        self.now_us += 20;
        let mut call = Call::new(&self.node, &|_| true, self.now_us);
        call.counter = self.counter;
        let answer = state.step(&mut call, &request.command);
        self.counter = call.counter;
        self.event(|core| core.replied(request, &answer));
    }

    fn take(&mut self, attempt: u64) -> u64 {
        match self.event(|core| core.take(attempt)) {
            Outcome::Granted { number, .. } => number,
            other => panic!("it is next: {other:?}"),
        }
    }

    fn release(&mut self, number: u64, state: &mut QueueState) {
        let request = self.event(|core| core.release(number)).request().expect("it is held");
        self.answer(&request, state);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, turns] = arguments.as_slice() else {
        // Cargo starts every bench without arguments.
        return;
    };
    let turns: u64 = turns.parse().expect("a number of turns");
    let mut world = World::new();
    for other in 0..OTHERS {
        let lock = LockName::from(&*format!("other:{other}"));
        let attempt = world.ask(&lock, &mut QueueState::default());
        world.take(attempt);
    }
    let lock = LockName::from("order:42");
    let mut state = QueueState::default();
    let waiters = if what == "hot" { WAITERS } else { 0 };
    let mut line: std::collections::VecDeque<u64> =
        (0..=waiters).map(|_| world.ask(&lock, &mut state)).collect();
    for _ in 0..turns {
        let first = line.pop_front().expect("one holds");
        let number = world.take(first);
        if waiters == 0 {
            world.release(number, &mut state);
            line.push_back(world.ask(&lock, &mut state));
        } else {
            line.push_back(world.ask(&lock, &mut state));
            world.release(number, &mut state);
        }
    }
}
