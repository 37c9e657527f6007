//! One process: a node's table, its clock, its connections, and those who call it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proto::NodeId;
use proto::node::{Ask, Core, Mirror, Moment, Rules};

/// What a guard reads: how long it may rely on its hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    until: Cell<Moment>,
    is_lost: Cell<bool>,
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
}

/// One who takes locks, one after the other.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Idle,
    Waits {
        attempt: u64,
        lock: usize,
        lease_us: u64,
        shared: Shared,
        /// When it was woken first.
        woken: Option<u64>,
        /// Whether its hold ends by itself although it is renewed.
        ends: bool,
    },
    Holds {
        number: u64,
        lock: usize,
        shared: Shared,
        /// Of the same lock, while it is held.
        again: Option<u64>,
        ends: bool,
    },
    Releases,
}

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Until no attempt is left, and nothing to give back,
    Attempts,
    /// until no hold is left or its time is up,
    Holds,
    /// and until all is given back.
    Rest,
}

pub(crate) struct Process {
    pub(crate) name: u64,
    pub(crate) id: NodeId,
    pub(crate) core: Core<Shared>,
    pub(crate) callers: Vec<Caller>,
    /// Each caller's operations: what was meant for an earlier one comes too late.
    pub(crate) turns: Vec<u64>,
    /// µs of the world at its begin, and how fast its clock goes, in millionths.
    born_us: u64,
    rate: u64,
    /// µs for which its machine was suspended, and it has not noticed yet.
    pub(crate) unseen: u64,
    pub(crate) is_subscribed: bool,
    pub(crate) is_connected: bool,
    /// Until when it does nothing.
    pub(crate) stopped_until: u64,
    /// The server that it is connected to.
    pub(crate) era: u64,
    pub(crate) seen: Seen,
    pub(crate) closing: Option<(Closing, u64)>,
    /// Requests arrive in their order: not before this.
    pub(crate) last_arrival: u64,
    pub(crate) last_reply: u64,
    /// Requests that are on their way, by a number of their own.
    pub(crate) open: BTreeMap<u64, Ask>,
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

/// A time that is so much ahead of the floor is taken over.
const AHEAD_US: u64 = 1_000_000;

impl Seen {
    /// No new token is below this.
    pub(crate) fn floor_us(&self) -> u64 {
        self.taken_us.max(self.token)
    }

    /// A new connection stands: its server's time, and whether it is another server.
    pub(crate) fn greet(&mut self, now_us: u64, is_another: bool) {
        if is_another {
            self.elsewhere_us = self.latest_us.max(self.token);
            self.taken_us = self.taken_us.max(self.latest_us);
        }
        self.note(now_us);
        self.taken_us = self.taken_us.max(now_us);
    }

    /// An answer tells a time.
    pub(crate) fn note(&mut self, now_us: u64) {
        self.latest_us = self.latest_us.max(now_us);
        if now_us >= self.floor_us() + AHEAD_US {
            self.taken_us = now_us;
        }
    }

    /// An answer or a message tells a token. A message of an earlier server that is late counts as
    /// one of the present server, as it does in the store: it does not say whose it is.
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
        (era, server_us): (u64, u64),
        callers: usize,
        replicas: u32,
    ) -> Self {
        let mut seen = Seen::default();
        seen.greet(server_us, false);
        let id = NodeId::from(&*format!("{name:022}"));
        let rules = Rules {
            confirm_grants: false,
            replicas,
            peers: false,
            window: 64,
            // Often too few for the callers.
            acquires: [1, 3, 256][(seed % 3) as usize],
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
            is_subscribed: true,
            is_connected: true,
            stopped_until: 0,
            era,
            seen,
            closing: None,
            last_arrival: 0,
            last_reply: 0,
            open: BTreeMap::new(),
            tick_at: None,
        }
    }

    /// The world's time as this process counts it once it looks whether its machine was suspended.
    pub(crate) fn moment(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us))
    }

    /// The same without that look.
    pub(crate) fn timers(&self, now_us: u64) -> Moment {
        Moment::from_micros(self.counted(now_us - self.born_us - self.unseen))
    }

    fn counted(&self, passed_us: u64) -> u64 {
        (u128::from(passed_us) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// When this moment is in the world.
    pub(crate) fn world_us(&self, moment: Moment) -> u64 {
        let passed = u128::from(moment.as_micros()) * 1_000_000 / u128::from(self.rate);
        self.born_us + passed as u64 + 1
    }

    /// When the reply is here that the server sends so that it would arrive at this time: after
    /// those before it.
    pub(crate) fn replies_at(&mut self, at: u64) -> u64 {
        self.last_reply = at.max(self.last_reply + 1);
        self.last_reply
    }

    /// Whether nothing of it is left to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        let counts = self.core.counts();
        let idle = self.callers.iter().all(|caller| matches!(caller, Caller::Idle));
        idle && self.closing.is_none() && counts.attempts + counts.holds + counts.given_back == 0
    }
}
