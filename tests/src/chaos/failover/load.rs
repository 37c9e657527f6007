//! The load: tasks on several nodes that acquire a few names over and over, and record their holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockcore::{LockError, LockErrorKind, LockGuard, LockRequest, Locks};
use tokio::task::JoinSet;

use super::register::{Register, SECTION};

/// What a task of the load acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chaos) enum Demand {
    Lock,
    Read,
    Write,
    /// Acquires one of [`PERMITS`].
    Permit,
}

/// The demand of each task of a node, by name: locks, read and written names, permits.
const TASKS: [&[Demand]; NAMES] = [
    &[Demand::Lock],
    &[Demand::Lock],
    &[Demand::Lock],
    &[Demand::Lock],
    &[Demand::Read, Demand::Write],
    &[Demand::Read, Demand::Read, Demand::Write],
    &[Demand::Permit, Demand::Permit],
];
pub(super) const NAMES: usize = 7;
pub(super) const PERMITS: usize = 3;
const NODES: usize = 5;
/// The lease, long enough for a hold to outlive a failover.
const LEASE: Duration = Duration::from_secs(12);
/// The longest wait for replica acknowledgements of a grant.
const REPLICAS: Duration = Duration::from_millis(500);

/// A hold as seen by its owner, with times since the start of the load.
#[derive(Debug, Clone, Copy)]
pub(in crate::chaos) struct Hold {
    pub(in crate::chaos) name: usize,
    pub(in crate::chaos) demand: Demand,
    /// The token; 0 for permits.
    pub(in crate::chaos) token: u64,
    pub(in crate::chaos) asked: Duration,
    pub(in crate::chaos) begin: Duration,
    /// When the guard of the hold stopped being valid.
    pub(in crate::chaos) end: Duration,
}

/// The records of a whole run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) holds: Vec<Hold>,
    /// When the last request was sent.
    pub(super) over: Duration,
    pub(super) refused: u64,
    pub(super) timed_out: u64,
    pub(super) positions_lost: u64,
    /// The numbers of updates missing in the registers, unfenced and fenced.
    pub(super) lost: u64,
    pub(super) lost_fenced: u64,
    /// How many writes and reads were stopped by a token.
    pub(super) stopped: u64,
    pub(super) reads_stopped: u64,
}

#[derive(Debug)]
struct World {
    start: Instant,
    registers: [Register; NAMES],
    holds: Mutex<Vec<Hold>>,
    refused: AtomicU64,
    timed_out: AtomicU64,
    is_over: AtomicBool,
}

/// A running load.
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
            timed_out: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let mut nodes = Vec::new();
        let mut tasks = JoinSet::new();
        for _ in 0..NODES {
            let mut builder = Locks::builder().lease(LEASE);
            if replicas > 0 {
                builder = builder.require_replicas(replicas, REPLICAS);
            }
            let locks = builder.connect(url).await.expect("the primary is found");
            for (name, demands) in TASKS.into_iter().enumerate() {
                for demand in demands {
                    tasks.spawn(Arc::clone(&world).turns(locks.clone(), name, *demand));
                }
            }
            nodes.push(locks);
        }
        Self { world, nodes, tasks }
    }

    pub(super) fn now(&self) -> Duration {
        self.world.start.elapsed()
    }

    pub(super) async fn stop(mut self) -> Seen {
        let over = self.now();
        self.world.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task takes its turns");
        }
        let positions_lost = self.nodes.iter().map(|locks| locks.status().positions_lost).sum();
        for locks in &self.nodes {
            locks.shutdown(Duration::ZERO).await;
        }
        let mut seen = Seen {
            over,
            refused: self.world.refused.load(Ordering::SeqCst),
            timed_out: self.world.timed_out.load(Ordering::SeqCst),
            positions_lost,
            ..Seen::default()
        };
        for register in &self.world.registers {
            let fenced = *register.fenced();
            seen.lost += register.lost();
            seen.lost_fenced += fenced.lost();
            seen.stopped += fenced.stopped;
            seen.reads_stopped += fenced.reads_stopped;
        }
        seen.holds = std::mem::take(&mut *self.world.holds());
        seen
    }
}

impl World {
    fn holds(&self) -> std::sync::MutexGuard<'_, Vec<Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turns(self: Arc<Self>, locks: Locks, name: usize, demand: Demand) {
        let text = format!("failover:{name}");
        while !self.is_over.load(Ordering::SeqCst) {
            match self.turn(locks.key(text.as_str()).wait(LEASE), name, demand).await {
                Ok(()) => {}
                Err(error) if error.kind() == LockErrorKind::Timeout => {
                    self.timed_out.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(SECTION).await;
                }
            }
        }
    }

    /// Acquires, works, releases. After a failover a release may end as *unknown*, or the server
    /// may be away: the next acquire shows the state.
    async fn turn(
        &self,
        request: LockRequest,
        name: usize,
        demand: Demand,
    ) -> Result<(), LockError> {
        let asked = self.start.elapsed();
        let work = |token| self.work(name, demand, asked, token);
        let hold = async |guard: &LockGuard| {
            let begun = work(guard.fencing_token().get()).await;
            self.note(begun, guard.deadline());
        };
        match demand {
            Demand::Lock => {
                let guard = request.lock().await?;
                hold(&guard).await;
                let _ = guard.release().await;
            }
            Demand::Write => {
                let guard = request.write().await?;
                hold(&guard).await;
                let _ = guard.release().await;
            }
            Demand::Read => {
                let guard = request.read().await?;
                hold(&guard).await;
                let _ = guard.release().await;
            }
            Demand::Permit => {
                let permit = request.permits(1, PERMITS as u32).await?;
                let begun = work(0).await;
                self.note(begun, permit.deadline());
                let _ = permit.release().await;
            }
        }
        Ok(())
    }

    async fn work(&self, name: usize, demand: Demand, asked: Duration, token: u64) -> Hold {
        let begin = self.start.elapsed();
        match demand {
            Demand::Lock | Demand::Write => self.registers[name].update(token).await,
            Demand::Read => self.registers[name].read(token).await,
            Demand::Permit => tokio::time::sleep(SECTION).await,
        }
        Hold { name, demand, token, asked, begin, end: Duration::MAX }
    }

    /// Records a hold that ends now, or ended at its guard's deadline.
    fn note(&self, hold: Hold, deadline: tokio::time::Instant) {
        let deadline = deadline.into_std().saturating_duration_since(self.start);
        self.holds().push(Hold { end: self.start.elapsed().min(deadline), ..hold });
    }
}
