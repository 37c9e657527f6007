//! The reaper: gives back what was dropped, off the drop path and until the server knows.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::key::LockName;
use crate::member::Member;
use crate::observe;
use crate::store::{Leaving, Link, MAX_BATCH, Store};

/// How long a member is given up for. By then its own expiry has removed it.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause before a repetition.
const PAUSE: Duration = Duration::from_millis(100);

/// One member to take out of a lock, waiting or holding.
#[derive(Debug)]
pub(crate) struct Job {
    lock: LockName,
    leaving: Leaving,
    /// When the server's own expiry has done it.
    give_up: Instant,
}

impl Job {
    pub(crate) fn leave(lock: LockName, member: Member, ambiguous: bool) -> Self {
        let lease = member.ours().map_or(PATIENCE, |ours| Duration::from_millis(ours.lease_ms));
        Self {
            lock,
            leaving: Leaving { member, ambiguous },
            give_up: Instant::now() + lease.max(PATIENCE),
        }
    }

    fn number(&self) -> Option<u64> {
        self.leaving.member.ours().map(|ours| ours.number)
    }
}

/// Where drops send what they leave behind.
#[derive(Debug)]
pub(crate) struct Reaper {
    jobs: mpsc::UnboundedSender<Job>,
    progress: Arc<Progress>,
}

/// How much there is still to do.
#[derive(Debug, Default)]
struct Progress {
    outstanding: AtomicUsize,
    failed: AtomicUsize,
    idle: Notify,
    /// The numbers of those that are to leave.
    leaving: Mutex<HashSet<u64>>,
}

impl Reaper {
    pub(crate) fn start(store: Arc<dyn Store>, engine: Weak<Engine>, runtime: &Handle) -> Self {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let progress = Arc::new(Progress::default());
        runtime.spawn(run(store, engine, inbox, Arc::clone(&progress)));
        Self { jobs, progress }
    }

    /// Never blocks, works in any context.
    pub(crate) fn send(&self, job: Job) {
        self.progress.outstanding.fetch_add(1, Ordering::Relaxed);
        self.progress.leaving().extend(job.number());
        if let Err(unsent) = self.jobs.send(job) {
            // The runtime has ended: expiry will do it.
            self.progress.done(&[unsent.0], false);
        }
    }

    /// Whether this number's leave was sent, and is neither done nor given up.
    pub(crate) fn is_leaving(&self, number: u64) -> bool {
        self.progress.leaving().contains(&number)
    }

    /// Waits until everything that was sent is done or given up.
    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.progress.idle.notified();
            if self.outstanding() == 0 {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.progress.outstanding.load(Ordering::Acquire)
    }

    /// How many were given up since the start.
    pub(crate) fn failed(&self) -> usize {
        self.progress.failed.load(Ordering::Acquire)
    }
}

impl Progress {
    fn done(&self, batch: &[Job], succeeded: bool) {
        let count = batch.len();
        let mut leaving = self.leaving();
        batch.iter().filter_map(Job::number).for_each(|number| {
            leaving.remove(&number);
        });
        drop(leaving);
        if !succeeded {
            self.failed.fetch_add(count, Ordering::AcqRel);
        }
        if self.outstanding.fetch_sub(count, Ordering::AcqRel) == count {
            self.idle.notify_waiters();
        }
    }

    /// Nothing in here panics half way.
    fn leaving(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until all senders are gone and all work is done, then closes the store.
async fn run(
    store: Arc<dyn Store>,
    engine: Weak<Engine>,
    mut inbox: mpsc::UnboundedReceiver<Job>,
    progress: Arc<Progress>,
) {
    let mut jobs = Vec::new();
    while inbox.recv_many(&mut jobs, MAX_BATCH).await > 0 {
        for (lock, batch) in by_lock(&mut jobs) {
            let (store, engine, progress) =
                (Arc::clone(&store), Weak::clone(&engine), Arc::clone(&progress));
            tokio::spawn(async move {
                let succeeded = leave(store.as_ref(), &engine, &lock, &batch).await;
                progress.done(&batch, succeeded);
            });
        }
    }
    while progress.outstanding.load(Ordering::Acquire) > 0 {
        let notified = progress.idle.notified();
        if progress.outstanding.load(Ordering::Acquire) > 0 {
            notified.await;
        }
    }
    store.close();
}

fn by_lock(jobs: &mut Vec<Job>) -> HashMap<LockName, Vec<Job>> {
    let mut batches: HashMap<LockName, Vec<Job>> = HashMap::new();
    for job in jobs.drain(..) {
        batches.entry(job.lock.clone()).or_default().push(job);
    }
    batches
}

/// Returns whether the server knows.
async fn leave(store: &dyn Store, engine: &Weak<Engine>, lock: &LockName, batch: &[Job]) -> bool {
    let give_up = batch.iter().map(|job| job.give_up).max();
    loop {
        let sent = Instant::now();
        let leaving = batch.iter().map(|job| job.leaving.clone()).collect();
        let error = match store.leave(lock, leaving).await {
            Ok(reply) => {
                if let Some(engine) = engine.upgrade() {
                    engine.absorb(lock, sent, &reply);
                }
                return true;
            }
            Err(error) => error,
        };
        if !error.is_transient() || give_up.is_none_or(|give_up| Instant::now() >= give_up) {
            observe::leave_failed(engine.upgrade().as_deref(), lock, &error);
            return false;
        }
        // Repeating is harmless: the first copy took the member away, later ones find nothing.
        until_up_again(store).await;
    }
}

async fn until_up_again(store: &dyn Store) {
    let mut commands = store.commands();
    tokio::time::sleep(PAUSE).await;
    let wait = tokio::time::timeout(Duration::from_secs(1), commands.wait_for(Link::is_up));
    let _ = wait.await;
}
