//! A run: a server, its children, one kind of fault for the requested number of cycles, and the
//! verdict.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::checker::{self, Evidence};
use super::client::LOCKS;
use super::clock::{now_us, wall_ahead_us};
use super::form::{Form, Forms};
use super::history::{self, Attempt};
use super::kind::Kind;
use super::leftovers;
use super::nemesis::{self, Action, Nemesis, Schedule};
use super::outcome::{Outcome, Plan};
use super::record::{End, Pair};
use super::register::{Count, Registers};
use super::trace::Trace;
use super::violation::{Violation, What};
use super::worker::Worker;
use crate::{Fault, Monitor, Proxy, Raw, RedisServer, Watcher};

const CHILDREN: usize = 4;
/// The time without any grant after which a run counts as stuck.
const STUCK: Duration = Duration::from_secs(30);
/// How long a child may take to finish its work.
const ENDING: Duration = Duration::from_secs(30);
/// How long a victim is left alone after its first reply since a fault, where every node must soon
/// reconnect: a connection that broke within 100 ms is replaced after a pause, and after many such
/// breaks in a row the pause is a second.
const REST: Duration = Duration::from_millis(300);
/// The longest wait for that reply.
const ANSWER: Duration = Duration::from_secs(2);
/// The minimum number of faults where each control must notice something: a third of them cost the
/// unfenced register an update. For rarer events the run lasts up to ten times as long.
const FOR_A_LOSS: u64 = 40;
/// The runs that may be played at the same time, as many as there are processors: with more, a
/// client waits for its process instead of a lock. The silence of 15 s after a run does not count.
static PLAYED: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Semaphore::new(processors)
});
/// The interval between two checks of the run's progress.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a plan. `program` is the binary of the children.
///
/// # Panics
///
/// If the harness itself fails: no server, no process, no file.
pub async fn run(program: &Path, plan: &Plan) -> Outcome {
    let played = PLAYED.acquire().await.expect("it is never closed");
    let started = Instant::now();
    let mut stage = Stage::set(program, plan).await;
    let stuck = stage.play(plan).await;
    stage.end().await;
    drop(played);
    let mut outcome = stage.judge(plan).await;
    outcome.violations.extend(stuck);
    outcome.took = started.elapsed();
    outcome
}

/// Waits until a victim has received a reply again, within the time limit, and has rested.
async fn rest(answered: Fault) {
    let _ = timeout(ANSWER, answered.struck()).await; // never struck if its connection was killed
    answered.release();
    sleep(REST).await;
}

struct Stage<'a> {
    program: &'a Path,
    args: Vec<Vec<String>>,
    directory: PathBuf,
    server: RedisServer,
    /// A tool that subscribes to everything, where processes are killed: it must not hide a death.
    _watcher: Option<Watcher>,
    resource: RedisServer,
    proxies: Vec<Proxy>,
    workers: Vec<Worker>,
    /// The children that were killed or have ended.
    gone: Vec<Worker>,
    trace: Arc<Mutex<Trace>>,
    monitor: Option<Monitor>,
    nemesis: Nemesis,
    clocks: i64,
    next_child: u32,
    broken: Vec<Violation>,
}

fn lock(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Stage<'a> {
    async fn set(program: &'a Path, plan: &Plan) -> Self {
        let server = RedisServer::start();
        let resource = RedisServer::start();
        let trace = Arc::new(Mutex::new(match plan.forms {
            Forms::Batches => Trace::counting(),
            _ => Trace::new(plan.kind.disturbs_connections()),
        }));
        let monitor = Monitor::each(server.address(), {
            let trace = Arc::clone(&trace);
            move |line| lock(&trace).feed(&line)
        });
        let port = server.port();
        let directory =
            std::env::temp_dir().join(format!("lock-torture-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for records can be made");
        let proxies: Vec<_> = (0..CHILDREN).map(|_| Proxy::start(server.address())).collect();
        let plan_args = [plan.seed.to_string(), plan.kind.to_string(), plan.forms.to_string()];
        let args = proxies
            .iter()
            .map(|proxy| [vec![proxy.url(), resource.url()], plan_args.to_vec()].concat())
            .collect();
        let redis = Raw::connect(&server.url()).await;
        let watcher = match plan.kind {
            Kind::Kill | Kind::Mixed => Some(Watcher::start(&server.url()).await),
            _ => None,
        };
        let mut stage = Self {
            program,
            args,
            directory,
            server,
            _watcher: watcher,
            resource,
            proxies,
            workers: Vec::new(),
            gone: Vec::new(),
            trace,
            monitor: Some(monitor),
            nemesis: Nemesis { redis, counts: BTreeMap::new() },
            clocks: wall_ahead_us(),
            next_child: 0,
            broken: Vec::new(),
        };
        stage.workers = (0..CHILDREN).map(|slot| stage.start(slot)).collect();
        stage
    }

    fn start(&mut self, slot: usize) -> Worker {
        let number = self.next_child;
        self.next_child += 1;
        Worker::start(self.program, number, &self.directory, &self.args[slot])
    }

    /// Injects faults until there are enough grants, or none for too long.
    async fn play(&mut self, plan: &Plan) -> Option<Violation> {
        let mut schedule = Schedule::new(plan.kind, plan.seed, CHILDREN);
        let mut last = 0;
        let mut progress = Instant::now();
        let mut rests: [Option<JoinHandle<()>>; CHILDREN] = Default::default();
        loop {
            let (grants, violations) = {
                let trace = lock(&self.trace);
                (trace.named, trace.violations.len())
            };
            if violations > 100 || grants >= plan.cycles && self.is_enough(plan).await {
                return None;
            }
            if grants > last {
                (last, progress) = (grants, Instant::now());
            } else if progress.elapsed() > STUCK {
                let detail = format!("after {grants} grants none for {STUCK:?}");
                return Some(Violation::new(What::Stuck, detail));
            }
            let mut workers = self.workers.iter_mut();
            if let Some(worker) = workers.find_map(|worker| worker.is_gone().then_some(worker)) {
                let detail = format!("child {} ended by itself", worker.number);
                return Some(Violation::new(What::Broken, detail));
            }
            match schedule.next() {
                Some(step) => {
                    sleep(Duration::from_millis(step.pause)).await;
                    if let Some(rest) = rests[step.victim].take() {
                        rest.await.expect("a rest is a pause");
                    }
                    self.strike(&step.action, step.victim).await;
                    if plan.kind.claims_everything() {
                        let answered = self.proxies[step.victim].notice_reply(nemesis::is_step);
                        rests[step.victim] = Some(tokio::spawn(rest(answered)));
                    }
                }
                None => sleep(LOOK).await,
            }
        }
    }

    async fn strike(&mut self, action: &Action, victim: usize) {
        match *action {
            Action::Kill => {
                let next = self.start(victim);
                let mut worker = std::mem::replace(&mut self.workers[victim], next);
                worker.kill().await;
                self.gone.push(worker);
                self.nemesis.count("killed");
            }
            Action::Stop(ms) => {
                self.workers[victim].stop_for(Duration::from_millis(ms)).await;
                self.nemesis.count("stopped");
            }
            ref action => {
                self.nemesis.strike(action, &self.proxies[victim], &self.server).await;
            }
        }
    }

    /// Ends all faults, and all clients.
    async fn end(&mut self) {
        self.workers.iter_mut().for_each(Worker::request_stop);
        for mut worker in self.workers.drain(..) {
            if let Err(error) = worker.ended(ENDING).await {
                self.broken.push(Violation::new(What::Broken, error));
            }
            self.gone.push(worker);
        }
        if let Some(monitor) = self.monitor.take() {
            let _ = monitor.stop();
        }
        lock(&self.trace).finish();
    }

    async fn judge(mut self, plan: &Plan) -> Outcome {
        let mut violations = std::mem::take(&mut self.broken);
        let ahead = wall_ahead_us();
        if (ahead - self.clocks).abs() > 1_000 {
            let detail = format!("the clock was set by {} us: run again", ahead - self.clocks);
            violations.push(Violation::new(What::Broken, detail));
        }
        let attempts = self.attempts().unwrap_or_else(|error| {
            violations.push(Violation::new(What::Broken, error));
            Vec::new()
        });
        let (grants, skipped, batches) = {
            let mut trace = lock(&self.trace);
            violations.append(&mut trace.violations);
            (std::mem::take(&mut trace.grants), trace.skipped, trace.with_batch)
        };
        let evidence = Evidence {
            attempts,
            grants,
            knows_grants: plan.forms != Forms::Batches,
            fates: self.gone.iter().map(|gone| (gone.number, gone.fate.clone())).collect(),
            server_ahead: ahead.min(self.clocks),
            all_claimed: plan.kind.claims_everything(),
            end: now_us(),
        };
        violations.extend(checker::check(&evidence));

        let killed: HashSet<u32> = self
            .gone
            .iter()
            .filter(|gone| gone.fate.killed.is_some())
            .map(|gone| gone.number)
            .collect();
        let redis = &mut self.nemesis.redis;
        violations.extend(leftovers::of_the_living(redis, &killed).await);
        violations.extend(leftovers::of_the_dead(&self.server, redis).await);

        let count = |is: &dyn Fn(&Attempt) -> bool| {
            evidence.attempts.iter().filter(|attempt| is(attempt)).count() as u64
        };
        let is_shared = |attempt: &Attempt| Form::of(plan.forms, attempt.lock).is_shared();
        let [fenced, plain] = self.registers().await;
        let written = count(&|attempt| attempt.wrote == Some(true));
        if fenced.lost() > 0 || written > fenced.accepted {
            let detail = format!("{fenced:?}, {written} acknowledged");
            violations.push(Violation::new(What::LostUpdate, detail));
        }
        let outcome = Outcome {
            cycles: count(&|attempt| attempt.grant.is_some()),
            shared: count(&|attempt| attempt.grant.is_some() && is_shared(attempt)),
            attempts: evidence.attempts.len() as u64,
            faults: self.nemesis.counts,
            skipped,
            batches,
            lost_holds: count(&|attempt| matches!(attempt.released, Some((_, End::Lost)))),
            fenced: (fenced.accepted, count(&|attempt| attempt.wrote == Some(false))),
            unfenced: (plain.accepted, plain.lost()),
            read: (count(&|attempt| attempt.read.is_some()), count(&is_torn)),
            counted: (count(&|attempt| attempt.counted.is_some()), count(&is_crowded)),
            violations: Vec::new(),
            took: Duration::ZERO,
        };
        if plan.forms == Forms::Batches && outcome.batches == 0 {
            violations.push(Violation::new(What::ToothlessControl, "no batch was formed"));
        }
        if plan.kind.needs_losses() {
            violations.extend(toothless(&outcome, plan.forms));
        }
        if violations.is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory); // at worst it stays in /tmp
        }
        Outcome { violations, ..outcome }
    }

    /// Reads the records of all clients so far.
    fn attempts(&self) -> Result<Vec<Attempt>, String> {
        let mut attempts = Vec::new();
        for worker in self.workers.iter().chain(&self.gone) {
            attempts.extend(history::read(&worker.file, worker.number)?);
        }
        Ok(attempts)
    }

    /// Returns true if each control that must notice something has noticed it, or never will.
    async fn is_enough(&self, plan: &Plan) -> bool {
        let struck: u64 = self.nemesis.counts.values().sum();
        if !plan.kind.needs_losses() || struck >= 10 * FOR_A_LOSS {
            return true;
        }
        if struck < FOR_A_LOSS {
            return false;
        }
        let [_, plain] = self.registers().await;
        let attempts = self.attempts().unwrap_or_default();
        let is_shared = attempts.iter().any(is_torn) && attempts.iter().any(is_crowded);
        plain.lost() > 0 && (is_shared || !plan.forms.share())
    }

    async fn registers(&self) -> [Count; 2] {
        let mut registers = Registers::connect(&self.resource.url()).await;
        let mut sums = [Count::default(); 2];
        for lock in 0..LOCKS {
            for (sum, count) in sums.iter_mut().zip(registers.counts(lock).await) {
                sum.accepted += count.accepted;
                sum.value += count.value;
            }
        }
        sums
    }
}

/// Whether a reader saw halves of two writes in the unfenced pair.
fn is_torn(attempt: &Attempt) -> bool {
    matches!(attempt.read, Some([_, Pair::Torn]))
}

/// Whether clients that had not left the gauge had more than the limit.
fn is_crowded(attempt: &Attempt) -> bool {
    attempt.counted.is_some_and(|[_, all]| all > attempt.limit.into())
}

/// Lists the controls that have noticed nothing: without them the run has shown nothing.
fn toothless(outcome: &Outcome, forms: Forms) -> Vec<Violation> {
    let unfenced = outcome.unfenced;
    let read = outcome.read;
    let counted = outcome.counted;
    let mut controls = vec![("unfenced writes was lost", unfenced)];
    if forms.share() {
        controls.push(("reads of the unfenced pair was torn", read));
        controls.push(("counts of permits was beyond the limit", counted));
    }
    controls.retain(|(_, (_, noticed))| *noticed == 0);
    let say = |(what, (count, _))| {
        Violation::new(What::ToothlessControl, format!("none of {count} {what}"))
    };
    controls.into_iter().map(say).collect()
}
