//! The world: a server, its processes, and everything that is on its way between them, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use lockcore::internals::node::{Ask, Effect, Moment, Outcome as End, Request};
use lockcore::internals::protocol::{Answer, Command, LockState, Message, step};
use lockcore::internals::{Event, Label, Link, LockName, Mode, StoreError};
use lockcore::{LockErrorKind, LockOptions, NodeId};

use crate::dice::Dice;
use crate::plan::{Broken, Outcome, Plan};
use crate::process::{Caller, Process, Shared};

/// The server's time at the begin, µs.
const START_US: u64 = 1_700_000_000_000_000;
/// After this time a request counts as not answered, and its connection is given up.
const REQUEST_TIMEOUT_US: u64 = 2_000_000;
/// How long after the last fault everything may take to come to rest.
const REST_US: u64 = 300_000_000;

const MS: u64 = 1_000;

/// Something that happens at its time.
#[derive(Debug)]
enum What {
    /// A request at the server. Of a connection or process that is gone, it runs without an answer.
    Arrive {
        at: Place,
        request: u64,
        ask: Ask,
    },
    /// Its answer at the process, or that there is none.
    Answered {
        at: Place,
        request: u64,
        answer: Result<Answer, StoreError>,
    },
    TimedOut {
        at: Place,
        request: u64,
    },
    Told {
        at: Place,
        event: Event,
    },
    Tick {
        at: Place,
    },
    /// A caller does what comes next,
    Turn {
        at: Place,
        caller: usize,
        turn: u64,
    },
    /// looks what it was woken for,
    Look {
        at: Place,
        caller: usize,
        turn: u64,
    },
    /// or gives up.
    Cancel {
        at: Place,
        caller: usize,
        turn: u64,
    },
    Connected {
        at: Place,
    },
    Subscribed {
        at: Place,
    },
    /// The server notices that a subscription is gone.
    Unheard {
        name: u64,
        cut: u64,
    },
    Continued {
        at: Place,
    },
}

/// A process, as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: usize,
    name: u64,
}

pub(crate) struct World {
    plan: Plan,
    dice: Dice,
    now: u64,
    next: BTreeMap<(u64, u64), What>,
    order: u64,
    requests: u64,
    locks: Vec<LockState>,
    names: Vec<LockName>,
    tokens: Vec<u64>,
    processes: Vec<(u64, Process)>,
    born: u64,
    /// Subscriptions that the server counts, with how often each was cut.
    heard: BTreeMap<u64, u64>,
    releases: BTreeMap<u64, usize>,
    /// Kept by their callers until they end by themselves. A late copy of the acquire may be granted once more.
    leaked: BTreeSet<(u64, u64)>,
    is_calm: bool,
    broken: Option<String>,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut world = Self {
            plan,
            dice: Dice::new(plan.seed),
            now: 0,
            next: BTreeMap::new(),
            order: 0,
            requests: 0,
            locks: vec![LockState::default(); plan.locks as usize],
            names: (0..plan.locks).map(|lock| LockName::from(&*lock.to_string())).collect(),
            tokens: vec![0; plan.locks as usize],
            processes: Vec::new(),
            born: 0,
            heard: BTreeMap::new(),
            releases: BTreeMap::new(),
            leaked: BTreeSet::new(),
            is_calm: false,
            broken: None,
            outcome: Outcome::default(),
        };
        for slot in 0..plan.nodes as usize {
            let process = world.process();
            world.processes.push(process);
            world.wake_all(slot);
        }
        world
    }

    /// Runs until the events are spent, then without faults until everything has come to rest.
    pub(crate) fn run(mut self) -> Result<Outcome, Broken> {
        let mut rest_at = u64::MAX;
        while let Some(((at, _), what)) = self.next.pop_first() {
            self.now = at;
            self.happen(what);
            if let Some(law) = self.broken.take() {
                return Err(Broken { event: self.outcome.events, law });
            }
            if !self.is_calm && self.outcome.events >= self.plan.events {
                self.is_calm = true;
                self.plan.faults = Default::default();
                rest_at = self.now + REST_US;
            }
            if self.is_calm && self.is_at_rest() {
                break;
            }
            if self.now > rest_at {
                let law = format!(
                    "L1 still busy after {} s without faults: {}",
                    REST_US / MS / MS,
                    self.busy()
                );
                return Err(Broken { event: self.outcome.events, law });
            }
        }
        self.left_behind()?;
        self.outcome.lasted_ms = self.now / MS;
        Ok(self.outcome)
    }

    fn happen(&mut self, what: What) {
        let (kind, place) = match &what {
            What::Arrive { at, .. } => (1, Some(*at)),
            What::Answered { at, .. } => (2, Some(*at)),
            What::TimedOut { at, .. } => (3, Some(*at)),
            What::Told { at, .. } => (4, Some(*at)),
            What::Tick { at } => (5, Some(*at)),
            What::Turn { at, .. } => (6, Some(*at)),
            What::Look { at, .. } => (7, Some(*at)),
            What::Cancel { at, .. } => (8, Some(*at)),
            What::Connected { at } => (9, Some(*at)),
            What::Subscribed { at } => (10, Some(*at)),
            What::Unheard { .. } => (11, None),
            What::Continued { at } => (12, Some(*at)),
        };
        self.note(self.now << 8 | kind << 4 | place.map_or(0, |at| at.slot as u64));
        if let What::Arrive { at, request, ask } = what {
            return self.arrive(at, request, ask);
        }
        let Some(at) = place else {
            if let What::Unheard { name, cut } = what
                && self.heard.get(&name) == Some(&cut)
            {
                self.heard.remove(&name);
            }
            return;
        };
        if self.processes[at.slot].0 != at.name {
            return;
        }
        let stopped = self.processes[at.slot].1.stopped_until;
        if stopped > self.now && !matches!(what, What::Continued { .. }) {
            return self.at(stopped, what);
        }
        match what {
            What::Answered { request, answer, .. } => self.answered(at, request, answer),
            What::TimedOut { request, .. } => {
                if self.processes[at.slot].1.open.contains_key(&request) {
                    self.disconnect(at);
                }
            }
            What::Told { event, .. } => {
                self.event(at, |core, now, fx| core.heard(now, event, fx));
            }
            What::Tick { .. } => self.tick(at),
            What::Turn { caller, turn, .. } => self.turn(at, caller, turn),
            What::Look { caller, turn, .. } => self.look(at, caller, turn),
            What::Cancel { caller, turn, .. } => self.cancel(at, caller, turn),
            What::Connected { .. } => {
                self.processes[at.slot].1.is_connected = true;
                self.link(at);
            }
            What::Subscribed { .. } => {
                let cut = self.heard.get(&at.name).map_or(1, |cut| cut + 1);
                self.heard.insert(at.name, cut);
                self.processes[at.slot].1.is_subscribed = true;
                self.link(at);
                self.event(at, |core, now, fx| core.heard(now, Event::Resubscribed, fx));
            }
            What::Continued { .. } => self.plan_tick(at),
            What::Arrive { .. } | What::Unheard { .. } => {}
        }
    }

    // The server.

    fn arrive(&mut self, at: Place, request: u64, ask: Ask) {
        let (name, process) = &self.processes[at.slot];
        let is_open = *name == at.name && process.open.contains_key(&request);
        if !is_open {
            // Of a connection that broke: lost, or sitting in some buffer.
            match self.dice.below(4) {
                0 => {
                    let later = self.now + self.dice.below(55_000 * MS);
                    return self.at(later, What::Arrive { at, request: u64::MAX, ask });
                }
                1 if request != u64::MAX => return,
                _ => {}
            }
        }
        let answer = if self.dice.one_in(self.plan.faults.refusals) {
            let text = "READONLY You can't write against a read only replica.";
            Err(StoreError::refused(LockErrorKind::ReadOnly, text))
        } else {
            let node = NodeId::from(&*format!("{:022}", at.name));
            Ok(self.step(&node, &ask))
        };
        if is_open {
            let late = self.latency();
            let reply_at = (self.now + late).max(self.processes[at.slot].1.last_reply + 1);
            self.processes[at.slot].1.last_reply = reply_at;
            self.at(reply_at, What::Answered { at, request, answer });
        }
    }

    fn step(&mut self, node: &NodeId, ask: &Ask) -> Answer {
        self.outcome.events += 1;
        let lock: usize = ask.lock.as_str().parse().expect("locks are numbers");
        let now_us = START_US + self.now;
        let heard = &self.heard;
        let connected = |text: &str| text.parse().is_ok_and(|name| heard.contains_key(&name));
        let state = &mut self.locks[lock];
        state.expire(now_us / 1_000);
        let before = state.hold.as_ref().map(|hold| hold.member.clone());
        let (answer, messages) = step(state, &connected, node, &ask.command, now_us);
        let token = state.token.as_ref().map_or(0, |token| token.value.get());
        let holder = state.hold.as_ref().map(|hold| hold.member.clone());
        if holder.is_some() && holder != before {
            if token <= self.tokens[lock] {
                self.breaks(format!(
                    "S3 token {token} of lock {lock} is not above {}",
                    self.tokens[lock]
                ));
            }
            self.tokens[lock] = token;
            self.note(token);
        }
        for message in messages {
            self.publish(message);
        }
        answer
    }

    fn publish(&mut self, message: Message) {
        let (node, event) = match message {
            Message::Grant { node, member, token, left_ms } => {
                (node, Event::Granted { member, token, left_ms })
            }
            Message::Revoked { node, member } => (node, Event::Revoked { member }),
            Message::Poke { .. } => return,
        };
        let name: u64 = node.as_str().parse().expect("nodes are numbers");
        let Some(slot) = self.processes.iter().position(|(of, _)| *of == name) else { return };
        let at = Place { slot, name };
        if !self.processes[slot].1.is_subscribed {
            return;
        }
        if self.dice.one_in(self.plan.faults.cuts) {
            return self.cut(at);
        }
        if self.dice.one_in(self.plan.faults.lost_messages) {
            return;
        }
        let told_at = self.now + self.latency();
        self.at(told_at, What::Told { at, event });
    }

    // The network.

    fn latency(&mut self) -> u64 {
        if self.dice.one_in(self.plan.faults.late) {
            return self.dice.below(4_000 * MS);
        }
        self.dice.of(20, 400)
    }

    fn send(&mut self, at: Place, ask: Ask) -> u64 {
        self.requests += 1;
        let request = self.requests;
        let arrival = self.now + self.latency();
        let process = &mut self.processes[at.slot].1;
        process.open.insert(request, ask.clone());
        if !process.is_connected {
            let error = StoreError::refused(LockErrorKind::Unavailable, "no connection");
            let failed_at = self.now + 300 * MS;
            self.at(failed_at, What::Answered { at, request, answer: Err(error) });
            return request;
        }
        let arrival = arrival.max(process.last_arrival + 1);
        process.last_arrival = arrival;
        self.at(arrival, What::Arrive { at, request, ask });
        if arrival > self.now + REQUEST_TIMEOUT_US / 4 {
            self.at(self.now + REQUEST_TIMEOUT_US, What::TimedOut { at, request });
        }
        if self.dice.one_in(self.plan.faults.breaks) {
            self.disconnect(at);
        }
        request
    }

    /// The connection for requests breaks: nothing that is on its way is answered any more.
    fn disconnect(&mut self, at: Place) {
        let process = &mut self.processes[at.slot].1;
        if !process.is_connected {
            return;
        }
        process.is_connected = false;
        process.last_arrival = 0;
        process.last_reply = 0;
        let open: Vec<u64> = process.open.keys().copied().collect();
        for request in open {
            // Under another number, so that its arrival and its answer belong to nobody.
            let process = &mut self.processes[at.slot].1;
            let Some(ask) = process.open.remove(&request) else { continue };
            self.requests += 1;
            let renamed = self.requests;
            self.processes[at.slot].1.open.insert(renamed, ask);
            if let Some(caller) = self.releases.remove(&request) {
                self.releases.insert(renamed, caller);
            }
            let answer = Err(StoreError::ambiguous("the connection broke"));
            self.at(self.now + 10, What::Answered { at, request: renamed, answer });
        }
        self.link(at);
        let again = self.now + self.dice.of(5 * MS, 600 * MS);
        self.at(again, What::Connected { at });
    }

    fn cut(&mut self, at: Place) {
        let process = &mut self.processes[at.slot].1;
        if !process.is_subscribed {
            return;
        }
        process.is_subscribed = false;
        if let Some(cut) = self.heard.get(&at.name).copied() {
            let noticed = self.now + self.dice.below(3_000 * MS);
            self.at(noticed, What::Unheard { name: at.name, cut });
        }
        self.link(at);
        let again = self.now + self.dice.of(5 * MS, 900 * MS);
        self.at(again, What::Subscribed { at });
    }

    fn link(&mut self, at: Place) {
        let of = |is_up: bool| match is_up {
            true => Link::Up,
            false => Link::Down { reason: "cut".into() },
        };
        let process = &self.processes[at.slot].1;
        let (commands, subscription) = (of(process.is_connected), of(process.is_subscribed));
        self.event(at, |core, now, _| core.linked(now, commands, subscription));
    }

    // Processes.

    fn process(&mut self) -> (u64, Process) {
        self.born += 1;
        let name = self.born;
        // Clocks that differ by less than the margin.
        let rate = self.dice.of(992_500, 1_007_500);
        let seed = self.dice.next();
        self.heard.insert(name, 0);
        (name, Process::new(name, seed, self.now, rate, self.plan.callers as usize))
    }

    fn wake_all(&mut self, slot: usize) {
        let at = Place { slot, name: self.processes[slot].0 };
        for caller in 0..self.plan.callers as usize {
            let turn_at = self.now + self.dice.below(20 * MS);
            self.at(turn_at, What::Turn { at, caller, turn: 0 });
        }
    }

    fn kill(&mut self, at: Place) {
        self.outcome.killed += 1;
        let noticed = self.now + self.dice.below(4_000 * MS);
        self.at(
            noticed,
            What::Unheard { name: at.name, cut: self.heard.get(&at.name).copied().unwrap_or(0) },
        );
        self.processes[at.slot] = self.process();
        self.wake_all(at.slot);
    }

    /// One event of a table, and what it makes of it.
    fn event<T>(
        &mut self,
        at: Place,
        event: impl FnOnce(
            &mut lockcore::internals::node::Core<Shared>,
            Moment,
            &mut Vec<Effect<Shared>>,
        ) -> T,
    ) -> T {
        self.outcome.events += 1;
        let process = &mut self.processes[at.slot].1;
        let now = process.moment(self.now);
        let mut effects = Vec::new();
        let value = event(&mut process.core, now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send(ask) => {
                    self.send(at, ask);
                }
                Effect::Wake(shared) => {
                    let caller = shared.caller();
                    let turn = self.processes[at.slot].1.turns[caller];
                    let late = match self.dice.one_in(self.plan.faults.unread) {
                        true => self.dice.below(15_000 * MS),
                        false => self.dice.below(60),
                    };
                    self.at(self.now + late, What::Look { at, caller, turn });
                }
                Effect::Reopen => self.cut(at),
                Effect::TellLost(_) | Effect::Observe(_) => {}
            }
        }
        self.plan_tick(at);
        value
    }

    fn plan_tick(&mut self, at: Place) {
        let process = &mut self.processes[at.slot].1;
        let Some(next) = process.core.next() else { return };
        let tick_at = process.world_us(next).max(self.now + 5).max(process.stopped_until);
        if process.tick_at.is_none_or(|planned| tick_at < planned) {
            process.tick_at = Some(tick_at);
            self.at(tick_at, What::Tick { at });
        }
    }

    fn tick(&mut self, at: Place) {
        let process = &mut self.processes[at.slot].1;
        if process.tick_at.is_none_or(|planned| planned > self.now) {
            return;
        }
        process.tick_at = None;
        self.event(at, |core, now, fx| core.tick(now, fx));
        if self.dice.one_in(self.plan.faults.kills) {
            return self.kill(at);
        }
        if self.dice.one_in(self.plan.faults.stops) {
            let until = self.now + self.dice.below(20_000 * MS);
            self.processes[at.slot].1.stopped_until = until;
            self.at(until, What::Continued { at });
        }
    }

    fn answered(&mut self, at: Place, request: u64, answer: Result<Answer, StoreError>) {
        let Some(ask) = self.processes[at.slot].1.open.remove(&request) else { return };
        self.event(at, |core, now, fx| match &answer {
            Ok(answer) => core.replied(now, &ask, answer, fx),
            Err(error) => core.unanswered(now, &ask, error, fx),
        });
        if let Some(caller) = self.releases.remove(&request) {
            self.rest(at, caller);
        }
        if matches!(ask.command, Command::Renew { .. }) {
            self.exclusive(&ask.lock);
        }
    }

    // Callers.

    /// The next turn of a caller, after a while.
    fn rest(&mut self, at: Place, caller: usize) {
        let process = &mut self.processes[at.slot].1;
        process.callers[caller] = Caller::Idle;
        process.turns[caller] += 1;
        let turn = process.turns[caller];
        if !self.is_calm {
            let again = self.now + self.dice.below(30 * MS);
            self.at(again, What::Turn { at, caller, turn });
        }
    }

    fn turn(&mut self, at: Place, caller: usize, turn: u64) {
        let process = &self.processes[at.slot].1;
        if process.turns[caller] != turn {
            return;
        }
        match process.callers[caller].clone() {
            Caller::Idle if !self.is_calm => self.begin(at, caller, turn),
            Caller::Holds { number, .. } => self.give_back(at, caller, number),
            _ => {}
        }
    }

    fn begin(&mut self, at: Place, caller: usize, turn: u64) {
        let lock = self.dice.below(self.plan.locks);
        let lease = Process::lease(&mut self.dice);
        let options = match self.dice.one_in(6) {
            true => LockOptions::new().fixed_lease(lease),
            false => LockOptions::new().lease(lease),
        };
        let request = Request {
            lock: self.names[lock as usize].clone(),
            options,
            mode: if self.dice.one_in(4) { Mode::Try } else { Mode::Wait },
            label: Label::new(""),
        };
        let shared = Shared::of(caller);
        let hangs = shared.clone();
        let begun = self.event(at, |core, now, _| core.begin(now, request, hangs));
        let (attempt, ask) = begun.expect("no node is closed");
        self.processes[at.slot].1.callers[caller] = Caller::Waits { attempt, lock, shared };
        if let Some(ask) = ask {
            self.send(at, ask);
        }
        if self.dice.one_in(self.plan.faults.cancels) {
            let scale = [1, MS, 100 * MS, 5_000 * MS][self.dice.below(4) as usize];
            let cancel_at = self.now + self.dice.below(scale) + 1;
            self.at(cancel_at, What::Cancel { at, caller, turn });
        }
    }

    fn look(&mut self, at: Place, caller: usize, turn: u64) {
        let process = &self.processes[at.slot].1;
        let Caller::Waits { attempt, lock, shared } = process.callers[caller].clone() else {
            return;
        };
        if process.turns[caller] != turn {
            return;
        }
        match self.event(at, |core, now, fx| core.take(now, attempt, fx)) {
            End::Waits => {}
            End::Refused(_) => self.rest(at, caller),
            End::Granted { number, .. } => {
                self.outcome.holds += 1;
                self.processes[at.slot].1.callers[caller] = Caller::Holds { number, lock, shared };
                let long = self.dice.one_in(40);
                let held =
                    if long { self.dice.below(15_000 * MS) } else { self.dice.below(5 * MS) };
                self.at(self.now + held, What::Turn { at, caller, turn });
                let name = self.names[lock as usize].clone();
                self.exclusive(&name);
            }
        }
    }

    fn cancel(&mut self, at: Place, caller: usize, turn: u64) {
        let process = &self.processes[at.slot].1;
        let Caller::Waits { attempt, .. } = process.callers[caller] else { return };
        if process.turns[caller] == turn {
            self.event(at, |core, now, fx| core.cancel(now, attempt, fx));
            self.rest(at, caller);
        }
    }

    fn give_back(&mut self, at: Place, caller: usize, number: u64) {
        let now = self.processes[at.slot].1.moment(self.now);
        if let Caller::Holds { shared, .. } = &self.processes[at.slot].1.callers[caller]
            && !shared.believes(now)
        {
            self.outcome.lost += 1;
        }
        match self.dice.below(20) {
            0 => {
                self.leaked.insert((at.name, number));
                self.event(at, |core, now, fx| core.leak(now, number, fx));
                self.rest(at, caller);
            }
            1..8 => {
                self.event(at, |core, now, fx| core.dropped(now, number, fx));
                self.rest(at, caller);
            }
            _ => match self.event(at, |core, now, fx| core.release(now, number, fx)) {
                None => self.rest(at, caller),
                Some(ask) => {
                    self.processes[at.slot].1.callers[caller] = Caller::Releases;
                    // The answer to a request that breaks with its connection has another number.
                    let request = self.send(at, ask);
                    let is_open = self.processes[at.slot].1.open.contains_key(&request);
                    let request = if is_open { request } else { self.requests };
                    self.releases.insert(request, caller);
                }
            },
        }
    }

    // Laws.

    fn breaks(&mut self, law: String) {
        self.broken.get_or_insert(law);
    }

    /// At most one guard says that it has the lock, and the server agrees.
    fn exclusive(&mut self, lock: &LockName) {
        let lock: u64 = lock.as_str().parse().expect("locks are numbers");
        let mut believing = BTreeSet::new();
        for (_, process) in &self.processes {
            let now = process.moment(self.now);
            for caller in &process.callers {
                if let Caller::Holds { number, lock: of, shared } = caller
                    && *of == lock
                    && shared.believes(now)
                {
                    believing.extend(process.core.member(*number).cloned());
                }
            }
        }
        if believing.len() > 1 {
            self.breaks(format!("S2 two guards of lock {lock} are valid: {believing:?}"));
        }
        let now_ms = (START_US + self.now) / 1_000;
        let hold = self.locks[lock as usize].hold.as_ref();
        let live = hold.filter(|hold| hold.expires_ms.is_some_and(|ends| ends > now_ms));
        if let Some(member) = believing.first()
            && live.is_none_or(|hold| hold.member != *member)
        {
            self.breaks(format!(
                "S2 {member} is believed to hold lock {lock}, the server has {hold:?}"
            ));
        }
    }

    fn is_at_rest(&self) -> bool {
        self.processes.iter().all(|(_, process)| {
            let counts = process.core.counts();
            let idle = process.callers.iter().all(|caller| matches!(caller, Caller::Idle));
            idle && counts.attempts + counts.holds + counts.given_back == 0
        })
    }

    fn busy(&self) -> String {
        let mut busy = String::new();
        for (name, process) in &self.processes {
            let phases: Vec<_> =
                process.core.numbers().map(|number| (number, process.core.phase(number))).collect();
            busy += &format!(
                "\n{name}: {:?} {phases:?} open {:?} next {:?} tick {:?}",
                process.callers,
                process.open,
                process.core.next(),
                process.tick_at
            );
        }
        busy
    }

    /// L3: the server knows of nobody who lives and has gone.
    fn left_behind(&mut self) -> Result<(), Broken> {
        let event = self.outcome.events;
        for (lock, state) in self.locks.iter_mut().enumerate() {
            state.expire((START_US + self.now) / 1_000);
            let members = state.hold.iter().map(|hold| &hold.member).chain(&state.queue);
            for member in members {
                let ours = member.ours().expect("all members are ours");
                let name: u64 = ours.node.parse().expect("nodes are numbers");
                let process = self.processes.iter().find(|(of, _)| *of == name);
                let Some((_, process)) = process else { continue };
                let is_leaked = self.leaked.contains(&(name, ours.number));
                if process.core.phase(ours.number).is_none() && !is_leaked {
                    let law = format!("L3 {member} stays behind in lock {lock}");
                    return Err(Broken { event, law });
                }
            }
        }
        Ok(())
    }

    fn at(&mut self, at: u64, what: What) {
        self.order += 1;
        self.next.insert((at, self.order), what);
    }

    fn note(&mut self, fact: u64) {
        let digest = self.outcome.digest ^ fact;
        self.outcome.digest = digest.wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }
}
