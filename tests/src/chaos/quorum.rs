//! Faults of one of a quorum's three primaries at a time, under buyers of several nodes. Each guard
//! is judged as it is handed out: no other guard of its name is valid, and its token is the
//! greatest so far.

mod relay;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::{LockErrorKind, LockGuard, Locks, Quorum};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::relay::Relay;
use super::dice::Dice;
use crate::{Raw, RedisServer, eventually};

const NAMES: usize = 2;
const NODES: usize = 3;
/// The buyers of each node.
const BUYERS: usize = 6;
/// Short, so that a primary that has restarted counts again soon.
const MAX_LEASE: Duration = Duration::from_millis(800);
/// Three of them, and a second, and a primary that is frozen is not reached any more.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(400);
/// The time for which a fault lasts.
const FAULT: Duration = Duration::from_secs(3);
/// The looks at a hold that is being healed, and the time between two.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// The bound of a wait for the end of a fault.
const SOON: Duration = Duration::from_secs(30);

/// A fault of one primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryFault {
    /// It is killed, and starts again empty.
    Kill,
    /// It does not answer (SIGSTOP).
    Freeze,
    /// No node reaches it.
    Cut,
    /// One of the nodes does not reach it.
    CutFromOne,
    /// It is emptied (FLUSHALL).
    Flush,
}

impl PrimaryFault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Kill, Self::Freeze, Self::Cut, Self::CutFromOne, Self::Flush];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::CutFromOne => "cut-from-one",
            Self::Flush => "flush",
        }
    }
}

impl fmt::Display for PrimaryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PrimaryFault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|fault| fault.name() == text).ok_or(())
    }
}

/// One fault, and its cost.
#[derive(Debug, Clone, Copy)]
pub struct QuorumFault {
    /// The fault.
    pub fault: PrimaryFault,
    /// The place of its primary in the list.
    pub primary: usize,
    /// The longest time from the fault to its end in which no guard of some name was handed out.
    pub pause: Duration,
}

/// The guards of a run, and the violations among them.
#[derive(Debug, Default)]
pub struct QuorumOutcome {
    /// All guards that were handed out.
    pub guards: u64,
    /// Guards that were handed out while another one of the name was valid.
    pub doubled: u64,
    /// Tokens that were not above all of the name before.
    pub fallen: u64,
    /// Guards that were lost before they were given back.
    pub lost: u64,
    /// Requests that were not granted in time, or for which too few primaries were reached.
    pub refused: u64,
    /// The faults, in their order.
    pub faults: Vec<QuorumFault>,
}

/// Runs the faults in their order, in rounds until so many guards were handed out: each at the
/// lowest primary in the first round, at the next one in the second.
///
/// # Panics
///
/// If the primaries do not count again after a fault, or a buyer is refused for another reason than
/// that too few of them are reached.
pub async fn quorum_faults(seed: u64, guards: u64, faults: &[PrimaryFault]) -> QuorumOutcome {
    let mut scene = Scene::start(seed).await;
    let mut told = Vec::new();
    for primary in (0..3).cycle() {
        for fault in faults {
            scene.all_count().await;
            let began = Instant::now();
            scene.break_by(*fault, primary).await;
            sleep(FAULT).await;
            let pause = scene.ledger.longest_pause(began);
            told.push(QuorumFault { fault: *fault, primary, pause });
            scene.mend(*fault, primary);
        }
        if scene.ledger.guards.load(Ordering::Relaxed) >= guards {
            break;
        }
    }
    scene.all_count().await;
    scene.stop(told).await
}

/// The servers, the nodes, and their buyers.
struct Scene {
    servers: [RedisServer; 3],
    relays: [Relay; 3],
    nodes: Vec<Locks>,
    buyers: JoinSet<()>,
    ledger: Arc<Ledger>,
    dice: Dice,
}

impl Scene {
    async fn start(seed: u64) -> Self {
        let servers = [(); 3].map(|()| RedisServer::start());
        let relays = [0, 1, 2].map(|at: usize| Relay::start(servers[at].address(), NODES));
        let quorum = Quorum::new(relays.iter().map(Relay::url)).max_lease(MAX_LEASE);
        let builder = Locks::builder().lease(MAX_LEASE).request_timeout(REQUEST_TIMEOUT);
        builder.clone().init_quorum(quorum.clone()).await.expect("they are new");
        let mut nodes = Vec::new();
        for node in 0..NODES {
            let locks = builder.clone().from_quorum(quorum.clone()).await.expect("connected");
            relays.iter().for_each(|relay| relay.know(node, locks.node().as_str()));
            nodes.push(locks);
        }
        let (ledger, mut buyers) = (Arc::new(Ledger::default()), JoinSet::new());
        for buyer in 0..NODES * BUYERS {
            let locks = nodes[buyer % NODES].clone();
            buyers.spawn(buy(locks, Arc::clone(&ledger), Dice::part(seed, buyer as u64)));
        }
        Self { servers, relays, nodes, buyers, ledger, dice: Dice::part(seed, u64::MAX) }
    }

    /// Waits until each node holds all primaries.
    async fn all_count(&self) {
        for (node, locks) in self.nodes.iter().enumerate() {
            let key = format!("probe {node}");
            eventually("all primaries count", SOON, async || {
                let Ok(_guard) = locks.lock_timeout(key.as_str(), SOON).await else { return false };
                // It is healed after 0.1 s, 0.2 s and so on.
                for _ in 0..LOOKS {
                    let found = locks.inspect(key.as_str()).await.ok();
                    let holder = found.and_then(|found| found.holders.into_iter().next());
                    let held = holder.and_then(|holder| holder.primaries);
                    if held.is_some_and(|primaries| primaries.held == 3) {
                        return true;
                    }
                    sleep(PAUSE).await;
                }
                false
            })
            .await;
        }
    }

    async fn break_by(&mut self, fault: PrimaryFault, primary: usize) {
        match fault {
            PrimaryFault::Kill => self.servers[primary].kill(),
            PrimaryFault::Freeze => self.servers[primary].freeze(),
            PrimaryFault::Cut => (0..NODES).for_each(|node| self.relays[primary].cut(node)),
            PrimaryFault::CutFromOne => self.relays[primary].cut(self.dice.below(NODES)),
            PrimaryFault::Flush => {
                Raw::connect(&self.servers[primary].url()).await.flush_all().await;
            }
        }
    }

    fn mend(&mut self, fault: PrimaryFault, primary: usize) {
        match fault {
            PrimaryFault::Kill => self.servers[primary].restart(),
            PrimaryFault::Freeze => self.servers[primary].thaw(),
            PrimaryFault::Cut | PrimaryFault::CutFromOne => self.relays[primary].mend(),
            PrimaryFault::Flush => {}
        }
    }

    async fn stop(mut self, faults: Vec<QuorumFault>) -> QuorumOutcome {
        self.ledger.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.buyers.join_next().await {
            ended.expect("no buyer panics");
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Ledger { guards, doubled, fallen, lost, refused, .. } = &*self.ledger;
        QuorumOutcome {
            guards: count(guards),
            doubled: count(doubled),
            fallen: count(fallen),
            lost: count(lost),
            refused: count(refused),
            faults,
        }
    }
}

/// Acquires and gives back until the run is over.
async fn buy(locks: Locks, ledger: Arc<Ledger>, mut dice: Dice) {
    while !ledger.is_over.load(Ordering::Relaxed) {
        let name = dice.below(NAMES);
        let guard = match locks.lock_timeout(format!("name {name}"), SOON).await {
            Ok(guard) => Arc::new(guard),
            Err(error) => {
                let kinds = [LockErrorKind::Unavailable, LockErrorKind::Timeout];
                assert!(kinds.contains(&error.kind()), "{error}");
                ledger.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        ledger.hand_out(name, &guard);
        sleep(Duration::from_millis(dice.of(0..=4))).await;
        let guard = ledger.give_back(name, guard);
        match dice.percent(50) {
            true => drop(guard),
            false => drop(guard.release().await),
        }
    }
}

/// All guards of a run, by their names.
#[derive(Default)]
struct Ledger {
    names: [Mutex<Name>; NAMES],
    guards: AtomicU64,
    doubled: AtomicU64,
    fallen: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Name {
    /// Those that were not given back yet.
    guards: Vec<Arc<LockGuard>>,
    token: u64,
    handed_out: Vec<Instant>,
}

impl Ledger {
    fn name(&self, name: usize) -> MutexGuard<'_, Name> {
        self.names[name].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_out(&self, name: usize, guard: &Arc<LockGuard>) {
        let mut of = self.name(name);
        let token = guard.fencing_token().get();
        let is_doubled = of.guards.iter().any(|other| !other.is_lost()) && !guard.is_lost();
        self.doubled.fetch_add(u64::from(is_doubled), Ordering::Relaxed);
        self.fallen.fetch_add(u64::from(token <= of.token), Ordering::Relaxed);
        self.guards.fetch_add(1, Ordering::Relaxed);
        of.token = of.token.max(token);
        of.handed_out.push(Instant::now());
        of.guards.push(Arc::clone(guard));
    }

    fn give_back(&self, name: usize, guard: Arc<LockGuard>) -> LockGuard {
        self.lost.fetch_add(u64::from(guard.is_lost()), Ordering::Relaxed);
        self.name(name).guards.retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).expect("the ledger's is gone")
    }

    /// The longest time since then in which no guard of a name was handed out.
    fn longest_pause(&self, since: Instant) -> Duration {
        let longest = |name| {
            let mut last = since;
            let mut longest = Duration::ZERO;
            let later = self.name(name).handed_out.clone();
            for at in later.into_iter().filter(|at| *at > since).chain([Instant::now()]) {
                longest = longest.max(at - last);
                last = at;
            }
            longest
        };
        (0..NAMES).map(longest).max().unwrap_or_default()
    }
}
