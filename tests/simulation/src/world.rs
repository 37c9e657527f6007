//! The world: servers, processes, and everything under way between them, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use laws::{Broken, Law};
use proto::LockName;
use proto::node::{Core, Effect, Mirror, Moment, grouped};

use crate::breach::Breach;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::event_queue::{EventQueue, Place, What};
use crate::fault::Fault;
use crate::judge::{Record, Who};
use crate::pairs::Life;
use crate::plan::{Outcome, Plan};
use crate::process::{Process, Shared};
use crate::server::{Server, granted_by, servers};

pub(crate) const MS: u64 = 1_000;
/// The longest time from the last fault until everything has come to rest: a minute for a late
/// copy, and the delays it may cause.
const REST_US: u64 = 150_000 * MS;
/// The time after which every unrenewed lease has ended, even on a clock that was set back.
const LEASES_US: u64 = 90_000 * MS;
/// The time after which every key has expired: keys of parts live up to 90 s longer than the parts,
/// and a clock that was set back lags by a minute.
const KEYS_US: u64 = 150_000 * MS;
/// The interval at which the simulation checks whether everything has come to rest.
const LOOK_US: u64 = 50 * MS;

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Random numbers for usual events.
    pub(crate) dice: Dice,
    /// Random numbers for faults.
    chance: Dice,
    pub(crate) now: u64,
    pub(crate) events_due: EventQueue,
    pub(crate) requests: u64,
    /// The locks' names: their numbers.
    pub(crate) names: Vec<LockName>,
    pub(crate) servers: Vec<Server>,
    pub(crate) cluster: Cluster,
    /// The index of the server with each lock's lock key.
    pub(crate) homes: Vec<usize>,
    pub(crate) processes: Vec<Process>,
    /// The slot of each living process, by name.
    pub(crate) slots: Vec<Option<usize>>,
    /// Whether a process was shut down and reported that nothing was left, by name.
    pub(crate) ended_well: Vec<bool>,
    /// The caller that waits for a release, by request.
    pub(crate) releases: BTreeMap<u64, usize>,
    pub(crate) records: Vec<Record>,
    /// The life of each lock's hold.
    pub(crate) lives: Vec<Option<Life>>,
    /// The members whose holds were leaked, and end by themselves.
    pub(crate) leaked: BTreeSet<Who>,
    /// The members whose leave was given up, and reported so, because no server acknowledged it.
    pub(crate) given_up: BTreeSet<Who>,
    /// How many batches were cut short.
    pub(crate) cuts_so_far: u64,
    /// The force-released members whose processes have not been notified yet.
    pub(crate) unnotified: BTreeSet<Who>,
    /// The greatest token reported, by hash slot.
    pub(crate) issued: Vec<u64>,
    pub(crate) is_calm: bool,
    broken: Option<Broken>,
    pub(crate) outcome: Outcome,
    /// The text for selecting the requests and replies to print.
    pub(crate) trace: Option<String>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut dice = Dice::new(plan.seed);
        let chance = Dice::new(dice.next());
        let cluster = Cluster::new(&plan);
        let homes = (0..plan.locks as usize).map(|lock| cluster.owners()[plan.slot(lock)]);
        let homes = homes.collect();
        let servers = servers(&plan, &mut dice);
        let mut world = Self {
            plan,
            dice,
            chance,
            now: 0,
            events_due: EventQueue::default(),
            requests: 0,
            names: (0..plan.locks as usize).map(|lock| plan.name(lock)).collect(),
            servers,
            cluster,
            homes,
            processes: Vec::new(),
            slots: Vec::new(),
            ended_well: Vec::new(),
            releases: BTreeMap::new(),
            records: (0..plan.locks).map(|_| Record::default()).collect(),
            lives: (0..plan.locks).map(|_| None).collect(),
            leaked: BTreeSet::new(),
            given_up: BTreeSet::new(),
            cuts_so_far: 0,
            unnotified: BTreeSet::new(),
            issued: vec![0; plan.slots()],
            is_calm: false,
            broken: None,
            outcome: Outcome::default(),
            trace: None,
        };
        for slot in 0..plan.nodes as usize {
            let process = world.born(slot);
            world.processes.push(process);
            world.wake_all(slot);
        }
        world
    }

    /// Runs until the planned events have happened, then without faults until everything has come
    /// to rest.
    pub(crate) fn run(mut self) -> Result<Outcome, Breach> {
        while self.broken.is_none() && self.outcome.size.events < self.plan.events {
            let Some((at, place, what)) = self.events_due.take() else { break };
            self.now = at;
            self.happen(place, what);
        }
        self.is_calm = true;
        if self.broken.is_none() {
            self.come_to_rest();
        }
        self.outcome.lasted_ms = self.now / MS;
        match self.broken {
            Some(broken) => Err(Breach { size: self.outcome.size, broken }),
            None => Ok(self.outcome),
        }
    }

    /// Delivers everything, without further faults: each waiter is served or notified, and nothing
    /// stays behind.
    fn come_to_rest(&mut self) {
        let calm_since = self.now;
        let mut look_at = 0;
        let mut rest_since = None;
        let faults = [Fault::Wipe, Fault::FailOver, Fault::Promote, Fault::Replace];
        let forgets = self.plan.faults.have_any(faults);
        while let Some((at, place, what)) = self.events_due.take() {
            self.now = at;
            self.happen(place, what);
            if self.broken.is_some() {
                return;
            }
            if self.now < look_at {
                continue;
            }
            look_at = self.now + LOOK_US;
            if !self.is_at_rest() {
                rest_since = None;
                if self.now > calm_since + REST_US {
                    let busy = self.busy();
                    return self.breaks(Law::L1, || {
                        format!("busy {} s after the last fault: {busy}", REST_US / MS / MS)
                    });
                }
                continue;
            }
            // Outdated members on a promoted replica expire by themselves, too.
            if rest_since.is_none() && !forgets {
                self.left_behind(false);
            }
            if self.now > *rest_since.get_or_insert(self.now) + LEASES_US {
                break;
            }
        }
        if !self.is_at_rest() {
            let busy = self.busy();
            return self.breaks(Law::L1, || format!("nothing will ever happen to {busy}"));
        }
        self.now = self.now.max(rest_since.unwrap_or(self.now) + LEASES_US);
        self.left_behind(true);
        self.now += KEYS_US;
        self.nothing_is_left();
    }

    fn happen(&mut self, place: Place, what: What) {
        self.note(self.now << 12 | what.kind() << 8 | (place.slot as u64 & 0xFF));
        match what {
            What::Arrive { .. } => return self.arrive(place, what),
            What::Repeated { .. } => return self.arrive_again(place, what),
            What::Unheard { server, subscription } => {
                return self.servers[server].unheard(place.name, subscription);
            }
            What::Moves { slot, number } => return self.moves(slot, number),
            What::Agreed { server, slot } => return self.cluster.agreed(server, slot),
            _ => {}
        }
        let process = &self.processes[place.slot];
        if process.name != place.name {
            return;
        }
        if process.stopped_until > self.now && !matches!(what, What::Continued) {
            return self.at(process.stopped_until, place, what);
        }
        if process.hears_at > self.now && matches!(what, What::Heard { .. }) {
            return self.at(process.hears_at, place, what);
        }
        match what {
            What::Answered { request, answer, replicas } => {
                if let Some(answer) = self.routed(place, request, answer) {
                    self.answered(place, request, answer, replicas);
                }
            }
            What::SentAgain { request } => self.sent_again(place, request),
            What::Looked => self.looked(place),
            What::TimedOut { request } => {
                if let Some(open) = process.open.get(&request) {
                    self.disconnect(place, open.way.server);
                }
            }
            What::Heard { slot, event } => {
                let process = &mut self.processes[place.slot];
                let server = process.routing.owner(slot);
                // As in the driver: the store notes the token of a lock that the core can name.
                if let Some(token) = event.last_token()
                    && process.core.lock_of(&event).is_some()
                {
                    process.shards[server].seen[slot].note_token(token.get());
                }
                let granted = granted_by(&event);
                // A message without a member that is known here says nothing about a lock.
                if granted.iter().any(|(number, _)| process.core.phase(*number).is_some()) {
                    process.receives(slot, granted.into_iter().map(|(_, token)| token));
                }
                self.hears_of_revoked(place.name, &event);
                self.looks(place, |core| core.heard(event));
            }
            What::Tick => self.tick(place),
            What::Turn { caller, turn } => self.turn(place, caller, turn),
            What::Look { caller, turn } => self.look(place, caller, turn),
            What::Cancel { caller, turn } => self.cancel(place, caller, turn),
            What::WaitEnds { caller, turn } => self.wait_ends(place, caller, turn),
            What::Connected { server } => self.connected(place, server),
            What::Subscribed { server } => self.subscribed(place, server),
            What::Cut { server } => self.cut(place, server),
            What::Reset { server } => {
                self.disconnect(place, server);
                self.cut(place, server);
            }
            What::Continued => self.continued(place),
            What::Closing => self.close_on(place),
            What::Ends => self.ends(place),
            What::Arrive { .. }
            | What::Repeated { .. }
            | What::Unheard { .. }
            | What::Moves { .. }
            | What::Agreed { .. } => {}
        }
    }

    /// Runs an event of a process's core that a caller has caused.
    pub(crate) fn event<T>(
        &mut self,
        place: Place,
        event: impl FnOnce(&mut Core<Shared>) -> T,
    ) -> T {
        let now = self.processes[place.slot].timers(self.now);
        self.event_at(place, now, event)
    }

    /// Runs an event that first checks whether the machine was suspended.
    pub(crate) fn looks<T>(
        &mut self,
        place: Place,
        event: impl FnOnce(&mut Core<Shared>) -> T,
    ) -> T {
        let process = &mut self.processes[place.slot];
        process.unseen = 0;
        let now = process.moment(self.now);
        self.event_at(place, now, event)
    }

    fn event_at<T>(
        &mut self,
        place: Place,
        now: Moment,
        event: impl FnOnce(&mut Core<Shared>) -> T,
    ) -> T {
        self.outcome.size.events += 1;
        let core = &mut self.processes[place.slot].core;
        let failed = core.counts().failed;
        let value = event(core.event(now));
        let effects = core.drain();
        self.returned(place);
        let core = &mut self.processes[place.slot].core;
        self.outcome.given_up += (core.counts().failed - failed) as u64;
        // As in the driver: requests first, and those for the same lock in a command where
        // possible. Requests for several locks are sent separately, so that each may meet a
        // different fault.
        let mut requests = Vec::new();
        let others = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send(request) => {
                requests.push(request);
                None
            }
            other => Some(other),
        });
        let others: Vec<_> = others.collect();
        for request in grouped(requests, |_| false, |_| 0).into_iter().flatten() {
            self.send(place, request);
        }
        for effect in others {
            match effect {
                Effect::Send(_) => {}
                Effect::Confirm(request) => self.confirm(place, request),
                Effect::Wake(shared) => self.wake(place, shared.caller()),
                Effect::Reopen => self.reopen(place),
                Effect::NotifyLost(shared) => shared.lose(),
                Effect::Observe(_) => {}
            }
        }
        self.plan_tick(place);
        value
    }

    /// Whether this fault happens now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let rate = self.plan.faults.rate(fault);
        if rate == 0 || self.is_calm || !self.chance.one_in(rate) {
            return false;
        }
        self.outcome.size.faults += 1;
        (self.plan.first..=self.plan.last).contains(&self.outcome.size.faults)
    }

    pub(crate) fn at(&mut self, at: u64, place: Place, what: What) {
        self.events_due.put(at, place, what);
    }

    /// Reports a broken law, or only counts it if the law does not hold under these faults.
    pub(crate) fn breaks(&mut self, law: Law, how: impl FnOnce() -> String) {
        self.outcome.counted[law as usize] += 1;
        if self.broken.is_none() && self.plan.faults.keep(law) {
            self.broken = Some(Broken::new(law, how()));
        }
    }

    /// Prints an event, if selected.
    #[allow(clippy::print_stderr, reason = "for readers of the trace")]
    pub(crate) fn print(&self, place: Place, what: &str, it: &dyn fmt::Debug) {
        let Some(text) = &self.trace else { return };
        let it = format!("{it:?}");
        if it.contains(text.as_str()) {
            eprintln!("{:>12} us, process {}: {what} {it}", self.now, place.name);
        }
    }

    pub(crate) fn note(&mut self, fact: u64) {
        let digest = self.outcome.digest ^ fact;
        self.outcome.digest = digest.wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }
}
