//! The world: a server, its processes, and everything that is on its way between them, in virtual
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use proto::node::{Core, Effect, Moment};
use proto::{Event, LockName};

use crate::agenda::{Agenda, Place, What};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::judge::{Record, Who};
use crate::law::{Broken, Law};
use crate::plan::{Outcome, Plan};
use crate::process::{Process, Shared};
use crate::server::Server;

pub(crate) const MS: u64 = 1_000;
/// How long after the last fault everything may take to come to rest: a late copy's minute, and
/// what it may hold up.
const REST_US: u64 = 150_000 * MS;
/// After this time every lease has ended that nothing renews, on a clock that was set back, too.
const LEASES_US: u64 = 90_000 * MS;
/// And after this time every key: that of parts lives up to 90 s longer than they, and a clock that
/// was set back is a minute behind.
const KEYS_US: u64 = 150_000 * MS;
/// How often it is looked whether everything has come to rest.
const LOOK_US: u64 = 50 * MS;

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// What happens anyway,
    pub(crate) dice: Dice,
    /// and what goes wrong.
    chance: Dice,
    pub(crate) now: u64,
    pub(crate) agenda: Agenda,
    pub(crate) requests: u64,
    /// Locks are named by their numbers.
    pub(crate) names: Vec<LockName>,
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    /// By name: the slot of each process that lives.
    pub(crate) slots: Vec<Option<usize>>,
    /// By name: whether it was shut down and has said that nothing is left.
    pub(crate) ended_well: Vec<bool>,
    /// By request: whose release it is.
    pub(crate) releases: BTreeMap<u64, usize>,
    pub(crate) records: Vec<Record>,
    /// Kept by their callers until they end by themselves.
    pub(crate) leaked: BTreeSet<Who>,
    /// Force-released, and their processes have not been told yet.
    pub(crate) untold: BTreeSet<Who>,
    /// The greatest token that was told.
    pub(crate) issued: u64,
    pub(crate) is_calm: bool,
    broken: Option<(Law, String)>,
    pub(crate) outcome: Outcome,
    /// What is to be told of: all requests and answers with this in them.
    pub(crate) trace: Option<String>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut dice = Dice::new(plan.seed);
        let chance = Dice::new(dice.next());
        let server = Server::new(&plan, &mut dice);
        let mut world = Self {
            plan,
            dice,
            chance,
            now: 0,
            agenda: Agenda::default(),
            requests: 0,
            names: (0..plan.locks).map(|lock| LockName::from(&*lock.to_string())).collect(),
            server,
            processes: Vec::new(),
            slots: Vec::new(),
            ended_well: Vec::new(),
            releases: BTreeMap::new(),
            records: (0..plan.locks).map(|_| Record::default()).collect(),
            leaked: BTreeSet::new(),
            untold: BTreeSet::new(),
            issued: 0,
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

    /// Runs until the events are spent, then without faults until everything has come to rest.
    pub(crate) fn run(mut self) -> Result<Outcome, Broken> {
        while self.broken.is_none() && self.outcome.size.events < self.plan.events {
            let Some((at, place, what)) = self.agenda.take() else { break };
            self.now = at;
            self.happen(place, what);
        }
        self.is_calm = true;
        if self.broken.is_none() {
            self.come_to_rest();
        }
        self.outcome.lasted_ms = self.now / MS;
        match self.broken {
            Some((law, how)) => Err(Broken { size: self.outcome.size, law, how }),
            None => Ok(self.outcome),
        }
    }

    /// Everything is delivered, and nothing goes wrong any more: each waiter is served or told,
    /// and nothing stays behind.
    fn come_to_rest(&mut self) {
        let (calm_since, mut look_at, mut rest_since) = (self.now, 0, None);
        let forgets = self.plan.faults.have_any([Fault::Wipe, Fault::FailOver, Fault::Promote]);
        while let Some((at, place, what)) = self.agenda.take() {
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
            // What a replica still knows of those who have gone ends by itself, too.
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
            What::Unheard { subscription } => return self.server.unheard(place.name, subscription),
            _ => {}
        }
        let process = &self.processes[place.slot];
        if process.name != place.name {
            return;
        }
        if process.stopped_until > self.now && !matches!(what, What::Continued) {
            return self.at(process.stopped_until, place, what);
        }
        match what {
            What::Answered { request, answer, replicas } => {
                self.answered(place, request, answer, replicas);
            }
            What::TimedOut { request } => {
                if process.open.contains_key(&request) {
                    self.disconnect(place);
                }
            }
            What::Told { event } => {
                if let Event::Granted { token, .. } = &event {
                    self.processes[place.slot].seen.note_token(token.get());
                }
                self.hears_of_revoked(place.name, &event);
                self.looks(place, |core| core.heard(event));
            }
            What::Tick => self.tick(place),
            What::Turn { caller, turn } => self.turn(place, caller, turn),
            What::Look { caller, turn } => self.look(place, caller, turn),
            What::Cancel { caller, turn } => self.cancel(place, caller, turn),
            What::Connected => self.connected(place),
            What::Subscribed => self.subscribed(place),
            What::Cut => self.cut(place),
            What::Reset => {
                self.disconnect(place);
                self.cut(place);
            }
            What::Continued => self.continued(place),
            What::Closing => self.close_on(place),
            What::Arrive { .. } | What::Repeated { .. } | What::Unheard { .. } => {}
        }
    }

    /// One event of a table that a caller causes.
    pub(crate) fn event<T>(
        &mut self,
        place: Place,
        event: impl FnOnce(&mut Core<Shared>) -> T,
    ) -> T {
        let now = self.processes[place.slot].timers(self.now);
        self.event_at(place, now, event)
    }

    /// One that looks first whether the machine was suspended.
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
        self.outcome.given_up += (core.counts().failed - failed) as u64;
        for effect in effects {
            match effect {
                Effect::Send(ask) => {
                    self.send(place, ask);
                }
                Effect::Confirm(ask) => self.confirm(place, ask),
                Effect::Wake(shared) => self.wake(place, shared.caller()),
                Effect::Reopen => self.cut(place),
                Effect::TellLost(_) | Effect::Observe(_) => {}
            }
        }
        self.plan_tick(place);
        value
    }

    /// Whether this goes wrong now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let rate = self.plan.faults.rate(fault);
        if rate == 0 || self.is_calm || !self.chance.one_in(rate) {
            return false;
        }
        self.outcome.size.faults += 1;
        (self.plan.first..=self.plan.last).contains(&self.outcome.size.faults)
    }

    pub(crate) fn at(&mut self, at: u64, place: Place, what: What) {
        self.agenda.put(at, place, what);
    }

    /// A law is broken, or it is counted that it is, if it does not hold under these faults.
    pub(crate) fn breaks(&mut self, law: Law, how: impl FnOnce() -> String) {
        self.outcome.counted[law as usize] += 1;
        if self.broken.is_none() && self.plan.faults.keep(law) {
            self.broken = Some((law, how()));
        }
    }

    /// Tells of something that happens, if it is asked for.
    #[allow(clippy::print_stderr, reason = "for those who look for what went wrong")]
    pub(crate) fn tell(&self, place: Place, what: &str, it: &dyn fmt::Debug) {
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
