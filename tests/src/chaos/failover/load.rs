//! Tasks on several nodes that take a few locks, over and over, and note what they see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockcore::{LockErrorKind, LockGuard, Locks};
use tokio::task::JoinSet;

const NODES: usize = 5;
const TASKS: usize = 4;
pub(super) const KEYS: usize = 4;
/// Long enough that a hold outlives a failover.
const LEASE: Duration = Duration::from_secs(12);
/// A section: between reading a register and writing it back.
const SECTION: Duration = Duration::from_millis(5);
/// For a grant that too few replicas have.
const REPLICAS: Duration = Duration::from_millis(500);

/// One hold, as its owner saw it, in time since the load began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) key: usize,
    pub(super) token: u64,
    pub(super) asked: Duration,
    pub(super) begin: Duration,
    /// Until when its guard was valid.
    pub(super) end: Duration,
}

/// What was seen of a whole run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) holds: Vec<Hold>,
    pub(super) refused: u64,
    pub(super) places_lost: u64,
    /// Updates that are not in the registers, unfenced and fenced, and writes that a token stopped.
    pub(super) lost: u64,
    pub(super) lost_fenced: u64,
    pub(super) stopped: u64,
}

/// What a lock protects: two counters, of which one refuses old tokens.
#[derive(Debug, Default)]
struct Register {
    plain: AtomicU64,
    plain_writes: AtomicU64,
    fenced: Mutex<Fenced>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Fenced {
    value: u64,
    writes: u64,
    stopped: u64,
    highest: u64,
}

impl Register {
    fn fenced(&self) -> std::sync::MutexGuard<'_, Fenced> {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads both, waits, writes both with one added.
    async fn update(&self, token: u64) {
        let plain = self.plain.load(Ordering::SeqCst);
        let fenced = {
            let mut fenced = self.fenced();
            let is_old = token < fenced.highest;
            fenced.highest = fenced.highest.max(token);
            (!is_old).then_some(fenced.value)
        };
        tokio::time::sleep(SECTION).await;
        self.plain.store(plain + 1, Ordering::SeqCst);
        self.plain_writes.fetch_add(1, Ordering::SeqCst);
        let mut now = self.fenced();
        match fenced {
            Some(value) if token >= now.highest => {
                now.value = value + 1;
                now.writes += 1;
            }
            _ => now.stopped += 1,
        }
    }
}

struct World {
    start: Instant,
    registers: [Register; KEYS],
    holds: Mutex<Vec<Hold>>,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// A load that runs.
pub(super) struct Load {
    world: Arc<World>,
    nodes: Vec<Locks>,
    tasks: JoinSet<()>,
}

impl Load {
    pub(super) async fn start(url: &str, replicas: u32) -> Self {
        let world = Arc::new(World {
            start: Instant::now(),
            registers: Default::default(),
            holds: Mutex::default(),
            refused: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let (mut nodes, mut tasks) = (Vec::new(), JoinSet::new());
        for _ in 0..NODES {
            let mut builder = Locks::builder().lease(LEASE);
            if replicas > 0 {
                builder = builder.require_replicas(replicas, REPLICAS);
            }
            let locks = builder.connect(url).await.expect("the primary is found");
            for task in 0..TASKS {
                tasks.spawn(Arc::clone(&world).turns(locks.clone(), task % KEYS));
            }
            nodes.push(locks);
        }
        Self { world, nodes, tasks }
    }

    pub(super) fn now(&self) -> Duration {
        self.world.start.elapsed()
    }

    pub(super) async fn stop(mut self) -> Seen {
        self.world.is_over.store(true, Ordering::SeqCst);
        while self.tasks.join_next().await.is_some() {}
        let places_lost = self.nodes.iter().map(|locks| locks.status().places_lost).sum();
        for locks in &self.nodes {
            locks.shutdown(Duration::ZERO).await;
        }
        let mut seen = Seen {
            refused: self.world.refused.load(Ordering::SeqCst),
            places_lost,
            ..Seen::default()
        };
        for register in &self.world.registers {
            let writes = register.plain_writes.load(Ordering::SeqCst);
            seen.lost += writes - register.plain.load(Ordering::SeqCst);
            let fenced = *register.fenced();
            seen.lost_fenced += fenced.writes - fenced.value;
            seen.stopped += fenced.stopped;
        }
        seen.holds = std::mem::take(&mut *self.world.holds());
        seen
    }
}

impl World {
    fn holds(&self) -> std::sync::MutexGuard<'_, Vec<Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turns(self: Arc<Self>, locks: Locks, key: usize) {
        let name = format!("failover:{key}");
        while !self.is_over.load(Ordering::SeqCst) {
            let asked = self.start.elapsed();
            match locks.lock_timeout(name.as_str(), LEASE).await {
                Ok(guard) => self.hold(key, asked, guard).await,
                Err(error) if error.kind() == LockErrorKind::Timeout => {}
                Err(_) => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(SECTION).await;
                }
            }
        }
    }

    async fn hold(&self, key: usize, asked: Duration, guard: LockGuard) {
        let (begin, token) = (self.start.elapsed(), guard.fencing_token().get());
        self.registers[key].update(token).await;
        // A guard is valid up to its deadline at the longest.
        let valid_for = guard.deadline().saturating_duration_since(tokio::time::Instant::now());
        let now = self.start.elapsed();
        let end = if guard.is_lost() { now.min(now + valid_for) } else { now };
        self.holds().push(Hold { key, token, asked, begin, end });
        // After a failover it may be unknown, or the server away: the next one says more.
        let _ = guard.release().await;
    }
}
