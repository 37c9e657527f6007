//! Faults of quorum primaries, one at a time, under buyers on several nodes and in killed
//! processes. All guards are judged at the end: at most one guard per name is valid at a time, and
//! tokens increase.
//!
//! Where clocks jump, those of a minority jump together, two of five primaries. A buyer that sends
//! requests all the time learns of a jump from the next response, and is no longer valid when the
//! next guard is. So there are also *keepers*, each with a separate node that is silent while it
//! holds a name, and lacks a primary that others reach.

mod buyer;
mod ledger;
mod mortal;
mod relay;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::{Locks, LocksBuilder, Quorum};
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::buyer::{Buyer, buy};
use self::ledger::Ledger;
use self::mortal::Mortal;
pub use self::mortal::buy_from_quorum;
pub use self::relay::Relay;
use super::clock::now_us;
use super::dice::Dice;
use crate::{Raw, RedisServer, ServerClock, eventually};

const NAMES: usize = 16;
/// The names acquired only by nodes that live throughout the run.
const QUIET: usize = 8;
/// The nodes that live throughout, each with a buyer per name.
const NODES: usize = 3;
/// The keepers, each with its own name, which a buyer of the first node also tries to acquire.
const KEEPERS: usize = 4;
/// The killed processes, with a buyer for each name that is not quiet.
const MORTALS: usize = 2;
/// The maximum lease. It is short, so that a primary that has restarted counts again soon.
const MAX_LEASE: Duration = Duration::from_millis(800);
/// The request timeout. A frozen primary counts as unreachable after three of these and a second.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(400);
/// The length of a clock jump, in seconds.
const JUMP: i64 = 60;
/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(3);
/// How often a hold is checked while primaries regain it, and the factor of the pause between.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// The bound of a wait for the end of a fault.
const SOON: Duration = Duration::from_secs(30);

/// A fault of one primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryFault {
    /// The primary is killed, and starts again empty.
    Kill,
    /// The primary does not reply (SIGSTOP).
    Freeze,
    /// No node reaches the primary.
    Cut,
    /// A single node does not reach the primary.
    CutFromOne,
    /// The link between two zones is down: one side does not reach this primary, the other side not
    /// the next.
    CutZones,
    /// The primary is emptied (FLUSHALL).
    Flush,
    /// The clocks of a minority, this primary and the next, jump forward by a minute, and then
    /// back.
    ClockAhead,
    /// The clocks of a minority, this primary and the next, jump back by a minute, and then
    /// forward.
    ClockBehind,
}

impl PrimaryFault {
    /// All faults.
    pub const ALL: [Self; 8] = [
        Self::Kill,
        Self::Freeze,
        Self::Cut,
        Self::CutFromOne,
        Self::CutZones,
        Self::Flush,
        Self::ClockAhead,
        Self::ClockBehind,
    ];

    /// Whether clocks jump.
    #[must_use]
    pub fn is_of_clocks(self) -> bool {
        matches!(self, Self::ClockAhead | Self::ClockBehind)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::CutFromOne => "cut-from-one",
            Self::CutZones => "cut-zones",
            Self::Flush => "flush",
            Self::ClockAhead => "clock-ahead",
            Self::ClockBehind => "clock-behind",
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

/// A fault, and the cost.
#[derive(Debug, Clone, Copy)]
pub struct QuorumFault {
    /// The fault.
    pub fault: PrimaryFault,
    /// The primary index.
    pub primary: usize,
    /// The longest time during the fault without a new guard for some quiet name.
    pub pause: Duration,
}

/// The guards of a run, and the violations among them.
#[derive(Debug, Default)]
pub struct QuorumOutcome {
    /// The number of guards.
    pub guards: u64,
    /// How many guards were returned while another guard of the name was valid.
    pub doubled: u64,
    /// How many tokens were not above all earlier tokens of the name.
    pub fallen: u64,
    /// How many guards were lost before their release.
    pub lost: u64,
    /// How many requests were not granted in time, or reached too few primaries.
    pub refused: u64,
    /// How many processes were killed while they acquired, held and released.
    pub killed: u64,
    /// The faults, in order.
    pub faults: Vec<QuorumFault>,
}

/// Runs the faults in order, in rounds until `guards` guards were returned: each at the lowest
/// primary in the first round, at the next in the second. `program` is `lock-torture`, whose
/// processes are killed.
///
/// Where clocks jump, there are five primaries, and otherwise three. Guards need `spare` primaries
/// more than a majority: without a spare, clocks that jump make a second guard valid.
///
/// # Panics
///
/// If the primaries do not count again after a fault, or a buyer is refused for another reason than
/// too few reachable primaries.
pub async fn quorum_faults(
    program: &Path,
    seed: u64,
    guards: u64,
    faults: &[PrimaryFault],
    spare: usize,
) -> QuorumOutcome {
    let have_clocks = faults.iter().any(|fault| fault.is_of_clocks());
    let mut scene = Scene::start(program, seed, spare, have_clocks).await;
    let mut results = Vec::new();
    for primary in (0..scene.servers.len()).cycle() {
        for fault in faults {
            scene.all_count().await;
            let began = now_us();
            scene.break_by(*fault, primary).await;
            sleep(FAULT).await;
            let pause = scene.ledger.longest_pause(began, QUIET);
            results.push(QuorumFault { fault: *fault, primary, pause });
            scene.mend(*fault, primary);
            if fault.is_of_clocks() {
                // Until no hold is left from before the jump back: otherwise the next jump may be
                // the third primary's under the same hold, and these are no minority.
                sleep(MAX_LEASE).await;
            }
        }
        if scene.ledger.guards.load(Ordering::Relaxed) >= guards {
            break;
        }
    }
    scene.all_count().await;
    scene.stop(results).await
}

fn builder() -> LocksBuilder {
    // Buyers wait for the primaries as long as for the lock.
    Locks::builder().lease(MAX_LEASE).request_timeout(REQUEST_TIMEOUT).store_wait(Duration::MAX)
}

fn quorum<S: AsRef<str>>(primaries: &[S], spare: usize) -> Quorum {
    Quorum::new(primaries).max_lease(MAX_LEASE).spare(spare)
}

/// The servers, the nodes, and their buyers.
struct Scene {
    servers: Vec<RedisServer>,
    /// The clock of each server, if clocks jump.
    clocks: Vec<ServerClock>,
    relays: Arc<[Relay]>,
    nodes: Vec<Locks>,
    buyers: JoinSet<()>,
    ledger: Arc<Ledger>,
    dice: Dice,
}

impl Scene {
    async fn start(program: &Path, seed: u64, spare: usize, have_clocks: bool) -> Self {
        let (servers, clocks): (Vec<_>, Vec<_>) = match have_clocks {
            true => (0..5).map(|_| ServerClock::start(RedisServer::options())).unzip(),
            false => ((0..3).map(|_| RedisServer::start()).collect(), Vec::new()),
        };
        let relay =
            |server: &RedisServer| Relay::start(server.address(), NODES + MORTALS + KEEPERS);
        let relays: Arc<[Relay]> = servers.iter().map(relay).collect();
        let primaries: Vec<String> = relays.iter().map(Relay::url).collect();
        let quorum = quorum(&primaries, spare);
        builder().init_quorum(quorum.clone()).await.expect("they are new");
        let (ledger, mut buyers) = (Arc::new(Ledger::default()), JoinSet::new());
        let know = |node: usize, relays: &[Relay], id: &str| {
            relays.iter().for_each(|relay| relay.know(node, id));
        };
        // All connect before the first buyer keeps the primaries busy.
        let connect = async |node: usize| {
            let locks = builder().connect(quorum.clone()).await.expect("connected");
            know(node, &relays, locks.node().as_str());
            locks
        };
        let (mut nodes, mut keepers) = (Vec::new(), Vec::new());
        for node in 0..NODES {
            nodes.push(connect(node).await);
        }
        for node in (NODES + MORTALS..).take(if have_clocks { KEEPERS } else { 0 }) {
            keepers.push(connect(node).await);
            // The first primary whose clock does not jump together with the lowest primary's.
            relays[servers.len() / 2].cut(node);
        }
        let mut buy_at = |buyer: Buyer, locks: &Locks, name: usize| {
            let (locks, ledger) = (locks.clone(), Arc::clone(&ledger));
            let dice = Dice::part(seed, buyers.len() as u64);
            buyers.spawn(async move {
                let report = |report| ledger.note(report);
                buy(buyer, locks, name, dice, report, &ledger.is_over).await;
            });
        };
        for locks in &nodes {
            (0..NAMES).for_each(|name| buy_at(Buyer::Brief, locks, name));
        }
        for (name, keeper) in (NAMES..).zip(&keepers) {
            buy_at(Buyer::Keeper, keeper, name);
            buy_at(Buyer::Trier, &nodes[0], name);
        }
        let arguments: Vec<String> = [spare.to_string()].into_iter().chain(primaries).collect();
        for place in 0..MORTALS {
            let mortal = Mortal {
                program: program.to_owned(),
                primaries: arguments.clone(),
                ledger: Arc::clone(&ledger),
                dice: Dice::part(seed, buyers.len() as u64),
            };
            let relays = Arc::clone(&relays);
            buyers.spawn(async move {
                mortal.run(|id| know(NODES + place, &relays, id)).await;
            });
        }
        let dice = Dice::part(seed, u64::MAX);
        Self { servers, clocks, relays, nodes, buyers, ledger, dice }
    }

    /// Waits until each node can use all primaries.
    async fn all_count(&self) {
        let probe = async |(node, locks): (usize, &Locks)| {
            let key = format!("probe {node}");
            eventually("all primaries count", SOON, async || {
                let Ok(_guard) = locks.lock_timeout(key.as_str(), SOON).await else { return false };
                // The repair happens after 0.1 s, 0.2 s and so on.
                for _ in 0..LOOKS {
                    let found = locks.inspect(key.as_str()).await.ok();
                    let holder = found.and_then(|found| found.holders.into_iter().next());
                    let held = holder.and_then(|holder| holder.primaries);
                    if held.is_some_and(|primaries| primaries.held == primaries.all) {
                        return true;
                    }
                    sleep(PAUSE).await;
                }
                false
            })
            .await;
        };
        join_all(self.nodes.iter().enumerate().map(probe)).await;
    }

    async fn break_by(&mut self, fault: PrimaryFault, primary: usize) {
        match fault {
            PrimaryFault::Kill => self.servers[primary].kill(),
            PrimaryFault::Freeze => self.servers[primary].freeze(),
            PrimaryFault::Cut => {
                (0..NODES + MORTALS).for_each(|node| self.relays[primary].cut(node));
            }
            PrimaryFault::CutFromOne => self.relays[primary].cut(self.dice.below(NODES)),
            PrimaryFault::CutZones => {
                // A node and a process on each side, and a node that reaches all primaries.
                let far = (primary + 1) % self.servers.len();
                [0, NODES].iter().for_each(|node| self.relays[primary].cut(*node));
                [NODES - 1, NODES + 1].iter().for_each(|node| self.relays[far].cut(*node));
            }
            PrimaryFault::Flush => {
                Raw::connect(&self.servers[primary].url()).await.flush_all().await;
            }
            PrimaryFault::ClockAhead => self.set_clocks(primary, JUMP).await,
            PrimaryFault::ClockBehind => self.set_clocks(primary, -JUMP).await,
        }
    }

    /// Returns the minority of primaries whose clocks jump together, beginning with this primary.
    fn minority(&self, primary: usize) -> impl Iterator<Item = usize> {
        let n = self.servers.len();
        (0..n / 2).map(move |next| (primary + next) % n)
    }

    async fn set_clocks(&self, primary: usize, ahead: i64) {
        self.minority(primary).for_each(|at| self.clocks[at].set(ahead));
        let time_us = async |at: usize| Raw::connect(&self.servers[at].url()).await.time_us().await;
        let n = self.servers.len();
        for at in self.minority(primary) {
            let (server, machine) = (time_us(at).await, time_us((primary + n - 1) % n).await);
            let ahead_by = (server.cast_signed() - machine.cast_signed()) / 1_000_000;
            assert!((ahead_by - ahead).abs() <= 5, "a clock is {ahead_by} s ahead, not {ahead}");
        }
    }

    fn mend(&mut self, fault: PrimaryFault, primary: usize) {
        match fault {
            PrimaryFault::Kill => self.servers[primary].restart(),
            PrimaryFault::Freeze => self.servers[primary].thaw(),
            PrimaryFault::Cut | PrimaryFault::CutFromOne | PrimaryFault::CutZones => {
                self.relays.iter().for_each(Relay::mend);
            }
            PrimaryFault::Flush => {}
            PrimaryFault::ClockAhead | PrimaryFault::ClockBehind => {
                self.minority(primary).for_each(|at| self.clocks[at].set(0));
            }
        }
    }

    async fn stop(mut self, faults: Vec<QuorumFault>) -> QuorumOutcome {
        self.ledger.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.buyers.join_next().await {
            ended.expect("no buyer panics");
        }
        QuorumOutcome { faults, ..self.ledger.judge() }
    }
}
