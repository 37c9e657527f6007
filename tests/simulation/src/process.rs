//! One process: a node's table, its clock, its shards, and its callers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proto::layout::QUEUE;
use proto::node::{Ask, Core, Mirror, Moment, Rules};
use proto::{NodeId, Released, StoreError, Terms};

use crate::judge::Who;
use crate::routing::{Routing, Way};

/// The deadline and the loss that a guard reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    until: Cell<Moment>,
    is_lost: Cell<bool>,
    /// The outcome of a release in mid-run, once it is known.
    outcome: Cell<Option<Result<Released, ()>>>,
    caller: Cell<usize>,
}

impl Shared {
    pub(crate) fn of(caller: usize) -> Self {
        let shared = Self::default();
        shared.0.caller.set(caller);
        shared
    }

    pub(crate) fn caller(&self) -> usize {
        self.0.caller.get()
    }

    pub(crate) fn until(&self) -> Moment {
        self.0.until.get()
    }

    pub(crate) fn was_told(&self) -> bool {
        self.0.is_lost.get()
    }

    /// Takes the outcome of a release in mid-run; an error if it is not known.
    pub(crate) fn take_outcome(&self) -> Option<Result<Released, ()>> {
        self.0.outcome.take()
    }

    pub(crate) fn believes(&self, now: Moment) -> bool {
        !self.was_told() && now < self.until()
    }
}

impl Mirror for Shared {
    fn certain_until(&self, until: Moment, _is_answered: bool) {
        self.0.until.set(until);
    }

    fn lose(&self) {
        self.0.is_lost.set(true);
    }

    fn queued(&self, _ahead: u64) {}

    fn returned(&self, outcome: Result<Released, StoreError>) {
        self.0.outcome.set(Some(outcome.map_err(drop)));
    }
}

/// A caller that takes locks, one after the other.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Idle,
    Waits {
        attempt: u64,
        lock: usize,
        terms: Terms,
        shared: Shared,
        /// The time at which it was woken first.
        woken: Option<u64>,
    },
    Holds(Section),
    Releases,
}

/// The time for which a caller has a lock.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) number: u64,
    pub(crate) lock: usize,
    pub(crate) terms: Terms,
    pub(crate) shared: Shared,
    /// A second attempt on the same lock, while it is held.
    pub(crate) again: Option<u64>,
    /// The number of guards of the hold.
    pub(crate) guards: u32,
}

/// A guard that was given back in mid-run, until it is known whether the hold was there.
#[derive(Debug, Clone)]
pub(crate) struct Returned {
    pub(crate) shared: Shared,
    pub(crate) lock: usize,
    /// The hold.
    pub(crate) who: Who,
    /// Whether the server had it.
    pub(crate) was_there: bool,
}

/// The stage of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Waits until no attempt is left, and no hold to be released.
    Attempts,
    /// Waits until no hold is left or its time is up.
    Holds,
    /// Waits until all holds are released.
    Rest,
}

/// A request that is on its way.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) ask: Ask,
    pub(crate) way: Way,
}

/// One server as a process speaks to it.
pub(crate) struct Shard {
    pub(crate) is_subscribed: bool,
    pub(crate) is_connected: bool,
    /// The number of the server that it is connected to.
    pub(crate) era: u64,
    /// The tokens and times of each hash slot.
    pub(crate) seen: Vec<Seen>,
    /// The arrival of the last request: the next one does not arrive before it.
    pub(crate) last_arrival: u64,
    pub(crate) last_reply: u64,
}

impl Shard {
    fn new((era, server_us): (u64, u64), slots: usize) -> Self {
        let mut shard = Self {
            is_subscribed: true,
            is_connected: true,
            era,
            seen: vec![Seen::default(); slots],
            last_arrival: 0,
            last_reply: 0,
        };
        shard.greet(server_us, false);
        shard
    }

    /// Notes a new connection: its server's time, and whether it is another server.
    pub(crate) fn greet(&mut self, now_us: u64, is_another: bool) {
        for seen in &mut self.seen {
            seen.greet(now_us, is_another);
        }
    }

    /// All that was seen of a hash slot up to now.
    pub(crate) fn latest(&self, slot: usize) -> u64 {
        let Seen { token, latest_us, elsewhere_us, .. } = self.seen[slot];
        latest_us.max(token).max(elsewhere_us)
    }

    /// The arrival of a reply that the server sends so that it would arrive at this time: after the
    /// replies before it.
    pub(crate) fn replies_at(&mut self, at: u64) -> u64 {
        self.last_reply = at.max(self.last_reply + 1);
        self.last_reply
    }
}

pub(crate) struct Process {
    pub(crate) name: u64,
    pub(crate) id: NodeId,
    pub(crate) core: Core<Shared>,
    pub(crate) callers: Vec<Caller>,
    /// The number of each caller's operation: an event for an earlier one comes too late.
    pub(crate) turns: Vec<u64>,
    /// The time of the world at its begin, µs. The rate of its clock is in millionths.
    born_us: u64,
    rate: u64,
    /// The µs for which its machine was suspended, and that it has not noticed yet.
    pub(crate) unseen: u64,
    /// The servers as it speaks to them.
    pub(crate) shards: Vec<Shard>,
    pub(crate) routing: Routing,
    /// The greatest token that it was told, by hash slot.
    pub(crate) told: Vec<u64>,
    /// The time until which it does nothing.
    pub(crate) stopped_until: u64,
    /// It has read by then the messages that came while it was stopped: answers may be read first.
    pub(crate) hears_at: u64,
    pub(crate) closing: Option<(Closing, u64)>,
    /// The requests that are on their way, by a number of their own.
    pub(crate) open: BTreeMap<u64, Open>,
    /// The guards that were given back in mid-run.
    pub(crate) returned: Vec<Returned>,
    /// The next tick that is planned.
    pub(crate) tick_at: Option<u64>,
}

/// The tokens and times that a process has seen on servers, as the store on Redis keeps them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The greatest token.
    token: u64,
    /// The time that the floor has taken over.
    taken_us: u64,
    /// The latest time.
    latest_us: u64,
    /// The latest token and time of the servers before the present one.
    pub(crate) elsewhere_us: u64,
}

/// The distance from the floor above which a time is taken over.
const AHEAD_US: u64 = 1_000_000;

impl Seen {
    /// The floor: no new token is below it.
    pub(crate) fn floor_us(&self) -> u64 {
        self.taken_us.max(self.token)
    }

    /// Notes a new connection: its server's time, and whether it is another server.
    pub(crate) fn greet(&mut self, now_us: u64, is_another: bool) {
        if is_another {
            self.elsewhere_us = self.elsewhere_us.max(self.latest_us).max(self.token);
            self.taken_us = self.taken_us.max(self.latest_us);
        }
        self.note(now_us);
        self.taken_us = self.taken_us.max(now_us);
    }

    /// Notes that its locks were on another server until now, of which this much was seen.
    pub(crate) fn take_over(&mut self, before: u64) {
        self.elsewhere_us = self.elsewhere_us.max(before);
        self.taken_us = self.taken_us.max(before);
    }

    /// Notes the time in an answer.
    pub(crate) fn note(&mut self, now_us: u64) {
        self.latest_us = self.latest_us.max(now_us);
        if now_us >= self.floor_us() + AHEAD_US {
            self.taken_us = now_us;
        }
    }

    /// Notes the token in an answer or a message. A late message of an earlier server counts as one
    /// of the present server, as it does in the store: it does not name its server.
    pub(crate) fn note_token(&mut self, token: u64) {
        self.token = self.token.max(token);
    }
}

impl Process {
    pub(crate) fn new(
        name: u64,
        seed: u64,
        now_us: u64,
        rate: u64,
        (servers, owners): (Vec<(u64, u64)>, Vec<usize>),
        callers: usize,
        replicas: u32,
    ) -> Self {
        let shards: Vec<_> =
            servers.into_iter().map(|server| Shard::new(server, owners.len())).collect();
        let id = NodeId::from(&*format!("{name:022}"));
        let rules = Rules {
            confirm_grants: false,
            replicas,
            layout: QUEUE,
            window: 64,
            // Often too few for the callers.
            acquires: [1, 3, 256][(seed % 3) as usize],
            runs: [1, 2, 3, 8, 64][(seed / 3 % 5) as usize],
            born_us: None,
            seed: seed | 1,
        };
        Self {
            name,
            core: Core::new(id.clone(), rules),
            id,
            callers: vec![Caller::Idle; callers],
            turns: vec![0; callers],
            born_us: now_us,
            rate,
            unseen: 0,
            shards,
            told: vec![0; owners.len()],
            routing: Routing::new(owners),
            stopped_until: 0,
            hears_at: 0,
            closing: None,
            open: BTreeMap::new(),
            returned: Vec::new(),
            tick_at: None,
        }
    }

    /// The world's time as this process counts it once it looks whether its machine was suspended.
    pub(crate) fn moment(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us))
    }

    /// The same time before the process looks whether its machine was suspended.
    pub(crate) fn timers(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us - self.unseen))
    }

    fn counted(&self, passed_us: u64) -> u64 {
        (u128::from(passed_us) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// The time of the world at this moment.
    pub(crate) fn world_us(&self, moment: Moment) -> u64 {
        let passed = u128::from(moment.as_micros()) * 1_000_000 / u128::from(self.rate);
        self.born_us + passed as u64 + 1
    }

    /// Notes a token that this server told of a lock in a hash slot.
    pub(crate) fn note_token(&mut self, server: usize, slot: usize, token: u64) {
        self.shards[server].seen[slot].note_token(token);
        self.told[slot] = self.told[slot].max(token);
    }

    /// Notes that a server has answered: all that it told counts where the hash slot is by now.
    pub(crate) fn note_answer(&mut self, server: usize, slot: usize) {
        let owner = self.routing.owner(slot);
        if owner != server {
            let latest = self.shards[server].latest(slot);
            self.shards[owner].seen[slot].take_over(latest);
        }
    }

    /// Whether nothing is left to do for it.
    pub(crate) fn is_at_rest(&self) -> bool {
        let counts = self.core.counts();
        let idle = self.callers.iter().all(|caller| matches!(caller, Caller::Idle));
        idle && self.returned.is_empty()
            && self.closing.is_none()
            && counts.attempts + counts.holds + counts.given_back == 0
    }
}
