//! A server with an append-only file that loses power under load, again and again, and the cost:
//! overlapping leases, decreasing tokens, and updates lost without a fence.

use std::fmt;
use std::iter::Sum;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockcore::{LockError, Locks};
use tokio::task::JoinSet;

use super::dice::Dice;
use super::failover::count::{fallen_tokens, overlapping};
use super::failover::load::{Demand, Hold};
use crate::{Disk, LIMIT, RedisServer};

const NODES: u64 = 3;
const NAMES: usize = 3;
/// The lease. It is long enough for a hold to outlive a restart, with a third above the longest
/// disk delay.
const LEASE: Duration = Duration::from_secs(9);
/// The duration of a section, in ms: usually some holder is inside a section when the power fails.
const SECTION_MS: std::ops::RangeInclusive<u64> = 0..=700;
/// The time from a start to the next power loss, in ms.
const UP_MS: std::ops::RangeInclusive<u64> = 600..=1_900;

/// The power losses of a run.
#[derive(Debug, Clone)]
pub struct PowerPlan {
    /// The total number of losses.
    pub rounds: usize,
    /// How many servers run at the same time.
    pub servers: usize,
    /// The `appendfsync` policy of the servers.
    pub appendfsync: &'static str,
    /// True if every second loss strikes during an fdatasync.
    pub in_sync: bool,
    /// True if a grant waits for the disk.
    pub fsync: bool,
    /// The seed of the delays.
    pub seed: u64,
}

/// The cost of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PowerCost {
    /// The number of losses.
    pub rounds: u64,
    /// How many losses removed bytes. The others prove nothing.
    pub cut: u64,
    /// The number of grants.
    pub grants: u64,
    /// How many guards were valid while another guard was.
    pub overlaps: u64,
    /// How many tokens were below an earlier token.
    pub fallen: u64,
    /// How many updates are missing in the register without a fence.
    pub lost: u64,
    /// The number of refused requests.
    pub refused: u64,
}

impl PowerPlan {
    /// Runs the losses.
    ///
    /// # Panics
    ///
    /// If a server does not come up.
    pub async fn run(&self) -> PowerCost {
        let play = |lane: usize| {
            let plan = self.clone();
            let rounds = (self.rounds + lane) / self.servers;
            tokio::spawn(async move { plan.play(lane as u64, rounds).await })
        };
        let played = join_all((0..self.servers).map(play)).await;
        played.into_iter().map(|cost| cost.expect("a server is played")).sum()
    }

    async fn play(&self, lane: u64, rounds: usize) -> PowerCost {
        let disk = Disk::new();
        let mut server = disk.options(self.appendfsync).start();
        let world = Arc::new(World::default());
        let mut nodes = Vec::new();
        let mut tasks = JoinSet::new();
        for node in 0..NODES {
            let builder = Locks::builder().lease(LEASE).require_fsync(self.fsync);
            let locks = builder.connect(server.url()).await.expect("the server is up");
            for name in 0..NAMES {
                let part = (lane * NODES + node) * NAMES as u64 + name as u64;
                let dice = Dice::part(self.seed, part);
                tasks.spawn(Arc::clone(&world).turns(locks.clone(), name, dice));
            }
            nodes.push(locks);
        }
        let mut dice = Dice::part(self.seed, u64::MAX - lane);
        let mut cut = 0;
        for round in 0..rounds {
            connected(nodes.clone()).await;
            tokio::time::sleep(Duration::from_millis(dice.of(UP_MS))).await;
            let in_sync = self.in_sync && round % 2 == 0;
            cut += u64::from(lose_power(&disk, &mut server, in_sync) > 0);
        }
        // The last loss needs time to show as well.
        connected(nodes.clone()).await;
        tokio::time::sleep(Duration::from_millis(*UP_MS.end())).await;
        world.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a task takes its turns");
        }
        join_all(nodes.iter().map(|locks| locks.shutdown(Duration::ZERO))).await;
        PowerCost { rounds: rounds as u64, cut, ..world.cost() }
    }
}

/// Waits until each node has reconnected: otherwise the losses follow each other without load.
async fn connected(nodes: Vec<Locks>) {
    let end = tokio::time::Instant::now() + LIMIT;
    while !nodes.iter().all(|locks| locks.status().is_connected()) {
        assert!(tokio::time::Instant::now() < end, "not all nodes are connected within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn lose_power(disk: &Disk, server: &mut RedisServer, in_sync: bool) -> u64 {
    tokio::task::block_in_place(|| match in_sync {
        true => disk.lose_power_in_sync(server),
        false => disk.lose_power(server),
    })
}

/// The records of the clients of one server.
#[derive(Debug)]
struct World {
    start: Instant,
    holds: Mutex<Vec<Hold>>,
    /// The registers, which never refuse an old token.
    registers: [AtomicU64; NAMES],
    writes: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            holds: Mutex::default(),
            registers: Default::default(),
            writes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }
}

impl World {
    async fn turns(self: Arc<Self>, locks: Locks, name: usize, mut dice: Dice) {
        while !self.is_over.load(Ordering::SeqCst) {
            let section = Duration::from_millis(dice.of(SECTION_MS));
            if self.turn(&locks, name, section).await.is_err() {
                self.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn turn(&self, locks: &Locks, name: usize, section: Duration) -> Result<(), LockError> {
        let asked = self.start.elapsed();
        let guard = locks.key(format!("power:{name}")).wait(LEASE).lock().await?;
        let begin = self.start.elapsed();
        let value = self.registers[name].load(Ordering::SeqCst);
        let mut lost = None;
        let end = tokio::time::Instant::now() + section;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = guard.lost() => {
                lost = Some(self.start.elapsed());
                tokio::time::sleep_until(end).await;
            }
        }
        // Written like a holder that does not check its guard.
        self.registers[name].store(value + 1, Ordering::SeqCst);
        self.writes.fetch_add(1, Ordering::SeqCst);
        let deadline = guard.deadline().into_std().saturating_duration_since(self.start);
        let end = lost.unwrap_or_else(|| self.start.elapsed()).min(deadline);
        let hold = Hold {
            name,
            demand: Demand::Lock,
            token: guard.fencing_token().get(),
            asked,
            begin,
            end,
        };
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
        // The outcome is unknown after a power loss: the next acquire shows the state.
        let _ = guard.release().await;
        Ok(())
    }

    fn cost(&self) -> PowerCost {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        holds.sort_by_key(|hold| hold.begin);
        let mut cost = PowerCost {
            grants: holds.len() as u64,
            refused: self.refused.load(Ordering::SeqCst),
            ..PowerCost::default()
        };
        for name in 0..NAMES {
            let of: Vec<Hold> = holds.iter().filter(|hold| hold.name == name).copied().collect();
            cost.overlaps += overlapping(&of).0;
            cost.fallen += fallen_tokens(&of);
        }
        let kept: u64 = self.registers.iter().map(|one| one.load(Ordering::SeqCst)).sum();
        cost.lost = self.writes.load(Ordering::SeqCst) - kept;
        cost
    }
}

impl Sum for PowerCost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, one| Self {
            rounds: sum.rounds + one.rounds,
            cut: sum.cut + one.cut,
            grants: sum.grants + one.grants,
            overlaps: sum.overlaps + one.overlaps,
            fallen: sum.fallen + one.fallen,
            lost: sum.lost + one.lost,
            refused: sum.refused + one.refused,
        })
    }
}

impl fmt::Display for PowerCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, cut, grants, overlaps, fallen, lost, refused } = self;
        write!(
            f,
            "{rounds} losses of power, {cut} took bytes away; {grants} grants, {overlaps} overlaps, \
             {fallen} fallen tokens, {lost} lost updates, {refused} refused"
        )
    }
}
