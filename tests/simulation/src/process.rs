//! A process: a node's core, with clock, shards and callers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proto::layout::QUEUE;
use proto::node::{Core, Mirror, Moment, Rules, StoreRequest};
use proto::{NodeId, Released, StoreError, Terms};

use crate::judge::Who;
use crate::routing::{Routing, Way};

/// A hold's deadline and whether it was lost, as a guard reads them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    until: Cell<Moment>,
    is_lost: Cell<bool>,
    /// The outcome of a release in mid-batch, once known.
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

    pub(crate) fn was_notified(&self) -> bool {
        self.0.is_lost.get()
    }

    /// Takes the outcome of a release in mid-batch; an error if it stays unknown.
    pub(crate) fn take_outcome(&self) -> Option<Result<Released, ()>> {
        self.0.outcome.take()
    }

    pub(crate) fn believes(&self, now: Moment) -> bool {
        !self.was_notified() && now < self.until()
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

/// A caller, which takes locks in turn.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Idle,
    Waits {
        attempt: u64,
        lock: usize,
        terms: Terms,
        shared: Shared,
        /// When the caller was first woken.
        woken: Option<u64>,
    },
    Holds(Section),
    Releases,
}

/// A period in which a caller has a lock, with one or several guards.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) number: u64,
    pub(crate) lock: usize,
    pub(crate) terms: Terms,
    pub(crate) shared: Shared,
    /// A second attempt on the same lock, while it is held.
    pub(crate) again: Option<u64>,
    /// How many guards the hold has.
    pub(crate) guards: u32,
}

/// A guard released in mid-batch, until it is known whether the hold existed.
#[derive(Debug, Clone)]
pub(crate) struct Returned {
    pub(crate) shared: Shared,
    pub(crate) lock: usize,
    /// The member that held the lock.
    pub(crate) who: Who,
    /// If the server had the hold: how many grants of the lock there had been.
    pub(crate) was_there: Option<u64>,
}

/// A stage of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Waits until no attempt is left, and no hold awaits release.
    Attempts,
    /// Waits until no hold is left or the time is up.
    Holds,
    /// Waits until all holds are released.
    Rest,
}

/// A request under way.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) store_request: StoreRequest,
    pub(crate) way: Way,
}

/// A server as seen by a process.
pub(crate) struct Shard {
    pub(crate) is_subscribed: bool,
    pub(crate) is_connected: bool,
    /// The connected server's number.
    pub(crate) era: u64,
    /// The tokens and times by hash slot.
    pub(crate) seen: Vec<Seen>,
    /// When the last request arrives: the next request does not arrive earlier.
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

    /// Records a new connection: the server's time, and whether the server is another.
    pub(crate) fn greet(&mut self, now_us: u64, is_another: bool) {
        for seen in &mut self.seen {
            seen.greet(now_us, is_another);
        }
    }

    /// Returns the greatest token or time seen for a hash slot so far.
    pub(crate) fn latest(&self, slot: usize) -> u64 {
        let Seen { token, latest_us, elsewhere_us, .. } = self.seen[slot];
        latest_us.max(token).max(elsewhere_us)
    }

    /// Returns when a reply sent to arrive at `at` arrives: after earlier replies.
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
    /// The number of each caller's operation: events for an earlier operation come too late.
    pub(crate) turns: Vec<u64>,
    /// The world's time at the start of the process, in µs. The clock rate is in millionths.
    born_us: u64,
    rate: u64,
    /// For how long the machine was suspended without the process noticing, in µs.
    pub(crate) unseen: u64,
    /// The servers as seen by the process.
    pub(crate) shards: Vec<Shard>,
    pub(crate) routing: Routing,
    /// The greatest token received, by hash slot: only for the judge.
    pub(crate) greatest_tokens: Vec<u64>,
    /// The process is stopped until this time.
    pub(crate) stopped_until: u64,
    /// When the process has read the messages that arrived while it was stopped: replies may be
    /// read first.
    pub(crate) hears_at: u64,
    pub(crate) closing: Option<(Closing, u64)>,
    /// How many members were given up before the shutdown began.
    pub(crate) failed_before: usize,
    /// The requests under way, by request number.
    pub(crate) open: BTreeMap<u64, Open>,
    /// The guards released in mid-batch.
    pub(crate) returned: Vec<Returned>,
    /// When the next tick is planned.
    pub(crate) tick_at: Option<u64>,
}

/// The tokens and times seen by a process on servers, kept as by the Redis store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The greatest token seen.
    token: u64,
    /// The greatest time that has raised the token floor.
    taken_us: u64,
    /// The latest server time seen.
    latest_us: u64,
    /// The latest token or time from previous servers.
    pub(crate) elsewhere_us: u64,
}

/// How far above the token floor a time must be to raise it.
const AHEAD_US: u64 = 1_000_000;

impl Seen {
    /// Returns the token floor: no new token is below it.
    pub(crate) fn floor_us(&self) -> u64 {
        self.taken_us.max(self.token)
    }

    /// Records a new connection: the server's time, and whether the server is another.
    pub(crate) fn greet(&mut self, now_us: u64, is_another: bool) {
        if is_another {
            self.elsewhere_us = self.elsewhere_us.max(self.latest_us).max(self.token);
            self.taken_us = self.taken_us.max(self.latest_us);
        }
        self.note(now_us);
        self.taken_us = self.taken_us.max(now_us);
    }

    /// Takes over a hash slot from another server, where `before` was the greatest token or time.
    pub(crate) fn take_over(&mut self, before: u64) {
        self.elsewhere_us = self.elsewhere_us.max(before);
        self.taken_us = self.taken_us.max(before);
    }

    /// Records the time in a reply.
    pub(crate) fn note(&mut self, now_us: u64) {
        self.latest_us = self.latest_us.max(now_us);
        if now_us >= self.floor_us() + AHEAD_US {
            self.taken_us = now_us;
        }
    }

    /// Records the token in a reply or a message. As in the store, a late message from a previous
    /// server counts as the present server's, because a message does not name the server.
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
        confirms_writes: bool,
    ) -> Self {
        let shards: Vec<_> =
            servers.into_iter().map(|server| Shard::new(server, owners.len())).collect();
        let id = NodeId::from(&*format!("{name:022}"));
        let rules = Rules {
            // Some nodes share the server with users who may publish forged messages.
            confirm_grants: seed.is_multiple_of(5),
            confirms_writes,
            layout: QUEUE,
            window: 64,
            // The limit of acquires under way, often too low for the callers.
            acquires: [1, 3, 256][(seed % 3) as usize],
            batch_limit: [1, 2, 3, 8, 64][(seed / 3 % 5) as usize],
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
            greatest_tokens: vec![0; owners.len()],
            routing: Routing::new(owners),
            stopped_until: 0,
            hears_at: 0,
            closing: None,
            failed_before: 0,
            open: BTreeMap::new(),
            returned: Vec::new(),
            tick_at: None,
        }
    }

    /// Returns the process's time, once the process notices whether the machine was suspended.
    pub(crate) fn moment(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us))
    }

    /// Returns the process's time, before it notices whether the machine was suspended.
    pub(crate) fn timers(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us - self.unseen))
    }

    fn counted(&self, passed_us: u64) -> u64 {
        (u128::from(passed_us) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// Returns the world's time at this process moment.
    pub(crate) fn world_us(&self, moment: Moment) -> u64 {
        let passed = u128::from(moment.as_micros()) * 1_000_000 / u128::from(self.rate);
        self.born_us + passed as u64 + 1
    }

    /// Records tokens that the process has received, for the judge.
    pub(crate) fn receives(&mut self, slot: usize, tokens: impl Iterator<Item = u64>) {
        self.greatest_tokens[slot] = tokens.fold(self.greatest_tokens[slot], u64::max);
    }

    /// Records a server's reply: the tokens and times apply where the hash slot is now.
    pub(crate) fn note_answer(&mut self, server: usize, slot: usize) {
        let owner = self.routing.owner(slot);
        if owner != server {
            let latest = self.shards[server].latest(slot);
            self.shards[owner].seen[slot].take_over(latest);
        }
    }

    /// Whether the process has nothing left to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        let counts = self.core.counts();
        let idle = self.callers.iter().all(|caller| matches!(caller, Caller::Idle));
        idle && self.returned.is_empty()
            && self.closing.is_none()
            && counts.attempts + counts.holds + counts.given_back == 0
    }
}
