//! Random walks: processes acquire, hold and release while primaries restart, lose data and are cut
//! off. The laws: I1, at most one guard is valid; I2, tokens rise in the order in which guards are
//! created; I3, without faults, guards are created in the order of arrival at the first primary;
//! I4, once the faults are over every request is served, and nothing stays behind; I5, where links
//! stay cut, so is every request that reaches a majority.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::LockErrorKind;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::dice::Dice;
use super::network::{MAX_LEASE, Network};
use crate::api::guard::LockGuard;
use crate::api::locks::Locks;

/// The time in which every request must be served after the last fault.
const CALM: Duration = Duration::from_secs(300);

/// All live guards, in the order of creation.
#[derive(Default)]
struct Ledger {
    guards: Mutex<Vec<Arc<LockGuard>>>,
    last: Mutex<u64>,
    handed_out: AtomicUsize,
    order: Mutex<Vec<String>>,
    is_over: AtomicBool,
    killed: Mutex<Vec<usize>>,
}

impl Ledger {
    fn hand_out(&self, guard: &Arc<LockGuard>, label: String) {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.push(Arc::clone(guard));
        self.judge(&guards);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let token = guard.fencing_token().get();
        assert!(token > *last, "I2: token {token} after {}", *last);
        *last = token;
        self.handed_out.fetch_add(1, Ordering::Relaxed);
        self.order.lock().unwrap_or_else(PoisonError::into_inner).push(label);
    }

    fn judge(&self, guards: &[Arc<LockGuard>]) {
        let valid: Vec<_> = guards.iter().filter(|guard| !guard.is_lost()).collect();
        assert!(valid.len() <= 1, "I1: two guards are valid: {valid:?}");
    }

    fn look(&self) {
        self.judge(&self.guards.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self, guard: Arc<LockGuard>) -> LockGuard {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|other| !Arc::ptr_eq(other, &guard));
        drop(guards);
        Arc::into_inner(guard).expect("the ledger's is gone")
    }
}

/// Acquires and releases the lock in a loop until the walk is over, with random waits and holds.
async fn act(locks: Locks, ledger: Arc<Ledger>, name: String, mut dice: Dice) {
    let mut number = 0;
    while !ledger.is_over.load(Ordering::Relaxed) {
        sleep(dice.ms(0, 300)).await;
        number += 1;
        let label = format!("{name}.{number}");
        let request = locks.key("k").lease(dice.ms(800, 5_000)).label(&label);
        let acquired = match dice.below(10) {
            0 => request.try_lock().await.map(|guard| guard.ok_or(())),
            1 | 2 => request.wait(dice.ms(1, 3_000)).lock().await.map(Ok),
            // The acquisition is dropped at a random point.
            3 | 4 => match timeout(dice.ms(0, 400), request.lock()).await {
                Ok(acquired) => acquired.map(Ok),
                Err(_) => continue,
            },
            _ => request.lock().await.map(Ok),
        };
        let guard = match acquired {
            Ok(Ok(guard)) => Arc::new(guard),
            Ok(Err(())) => continue,
            Err(error) => {
                let expected = [LockErrorKind::Timeout, LockErrorKind::Unavailable];
                assert!(expected.contains(&error.kind()), "{error}");
                continue;
            }
        };
        ledger.hand_out(&guard, label);
        let held = if dice.below(20) == 0 { dice.ms(0, 12_000) } else { dice.ms(0, 200) };
        sleep(held).await;
        let guard = ledger.take(guard);
        match dice.below(2) {
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
}

/// The kinds of faults in a walk, and whether links stay cut at its end.
#[derive(Clone, Copy, PartialEq)]
enum Faults {
    None,
    Cuts,
    All,
    StayCut,
}

struct Walk {
    network: Network,
    ledger: Arc<Ledger>,
    tasks: Vec<(usize, JoinSet<()>)>,
    dice: Dice,
}

impl Walk {
    fn new(n: usize, processes: usize, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let network = Network::new(n, dice.below(u64::MAX));
        for primary in &network.primaries {
            // Clocks differ by less than the longest lease.
            primary.set_clock_forward(dice.ms(0, 4_000));
        }
        let mut walk = Self { network, ledger: Arc::default(), tasks: Vec::new(), dice };
        (0..processes).for_each(|_| walk.start());
        walk
    }

    fn start(&mut self) {
        let process = self.network.start();
        let mut tasks = JoinSet::new();
        for task in 0..2 {
            let locks = self.network.locks(process).clone();
            let name = format!("{process}.{task}");
            tasks.spawn(act(locks, Arc::clone(&self.ledger), name, self.dice.split()));
        }
        self.tasks.push((process, tasks));
    }

    fn disturb(&mut self, faults: Faults) {
        let primaries = self.network.primaries.len() as u64;
        let primary = self.dice.below(primaries) as usize;
        let at = self.dice.below(self.tasks.len() as u64) as usize;
        let process = self.tasks[at].0;
        match self.dice.below(100) {
            0..40 => self.network.cut(process, primary, self.dice.below(3) > 0),
            40..85 => self.network.mend(process, primary),
            _ if faults != Faults::All => {}
            85..88 => self.network.restart(primary, true),
            88..90 => self.network.restart(primary, false),
            90..92 => self.network.replace(primary),
            92..96 => self.network.primaries[primary].flush(),
            _ => {
                // The tasks of the process end without releasing anything.
                let (process, mut tasks) = self.tasks.swap_remove(at);
                self.network.kill(process);
                tasks.abort_all();
                let ledger = Arc::clone(&self.ledger);
                ledger.killed.lock().unwrap_or_else(PoisonError::into_inner).push(process);
                self.start();
            }
        }
    }

    async fn run(mut self, faults: Faults, turns: usize) -> usize {
        for _ in 0..turns {
            sleep(self.dice.ms(20, 500)).await;
            self.ledger.look();
            if faults != Faults::None {
                self.disturb(faults);
            }
        }
        let majority = self.network.primaries.len() / 2 + 1;
        if faults != Faults::StayCut {
            for process in 0..self.network.processes.len() {
                (0..self.network.primaries.len()).for_each(|at| self.network.mend(process, at));
            }
        }
        self.ledger.is_over.store(true, Ordering::Relaxed);
        for (process, mut tasks) in std::mem::take(&mut self.tasks) {
            if self.network.reachable(process) < majority {
                tasks.abort_all();
                continue;
            }
            let served = timeout(CALM, async {
                while let Some(ended) = tasks.join_next().await {
                    if let Err(panic) = ended
                        && panic.is_panic()
                    {
                        std::panic::resume_unwind(panic.into_panic());
                    }
                }
            });
            assert!(served.await.is_ok(), "I4, I5: process {process} still waits");
            let guard = self.network.locks(process).lock("k");
            let guard = timeout(CALM, guard).await.expect("I4, I5: it is granted");
            guard.expect("a majority is there").release().await.expect("held");
        }
        if faults != Faults::StayCut {
            self.nothing_is_left().await;
        }
        self.ledger.handed_out.load(Ordering::Relaxed)
    }

    /// Checks that no process waits or holds at any primary after the longest lease. A killed
    /// process is shown in queues until it has been silent for 15 s.
    async fn nothing_is_left(&self) {
        sleep(2 * MAX_LEASE).await;
        let killed = self.ledger.killed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |label: &str| label.split('.').next().and_then(|process| process.parse().ok());
        let is_killed = |label: &str| of(label).is_some_and(|process| killed.contains(&process));
        for (at, store) in self.network.primaries.iter().enumerate() {
            let operator = Locks::builder().on_memory(store).expect("options");
            let seen = operator.inspect("k").await.expect("an inspection");
            let mut labels = seen.waiters.iter().map(|waiter| waiter.label.as_deref());
            let is_empty = labels.all(|label| label.is_some_and(is_killed));
            assert!(seen.holders.is_empty() && is_empty, "primary {at}: {seen:?}; {killed:?}");
        }
    }
}

/// Runs one walk in virtual time, and checks the laws. Returns the number of guards.
fn walk(n: usize, processes: usize, faults: Faults, seed: u64) -> usize {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let walk = Walk::new(n, processes, seed);
            let (ledger, arrivals) = (Arc::clone(&walk.ledger), Arc::clone(&walk.network.arrivals));
            let guards = walk.run(faults, if faults == Faults::None { 300 } else { 150 }).await;
            if faults == Faults::None {
                let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                let order = ledger.order.lock().unwrap_or_else(PoisonError::into_inner);
                let place = |label: &String| arrivals.iter().position(|other| other == label);
                let places: Vec<_> = order.iter().map(place).collect();
                assert!(places.is_sorted(), "I3: {order:?} came as {arrivals:?}");
            }
            guards
        })
    }));
    ran.unwrap_or_else(|_| panic!("seed {seed} of {n} primaries and {processes} processes"))
}

/// Runs one walk for each of these seeds. Returns the number of guards.
fn walks(n: usize, processes: usize, faults: Faults, seeds: std::ops::Range<u64>) -> usize {
    seeds.map(|seed| walk(n, processes, faults, seed)).sum()
}

#[test]
fn guards_are_handed_out_in_the_order_of_arrival_where_nothing_fails() {
    assert!(walks(3, 4, Faults::None, 0..10) > 1_000);
    assert!(walks(5, 4, Faults::None, 10..20) > 1_000);
}

#[test]
fn at_most_one_guard_is_valid_and_tokens_rise_while_links_are_cut() {
    assert!(walks(3, 3, Faults::Cuts, 0..25) > 1_000);
    assert!(walks(5, 4, Faults::Cuts, 0..15) > 500);
}

#[test]
fn at_most_one_guard_is_valid_and_tokens_rise_while_primaries_forget_and_processes_die() {
    assert!(walks(3, 3, Faults::All, 0..40) > 1_000);
    assert!(walks(5, 4, Faults::All, 0..20) > 500);
}

#[test]
fn everyone_who_reaches_a_majority_is_served_where_links_stay_cut() {
    assert!(walks(3, 3, Faults::StayCut, 0..20) > 500);
    assert!(walks(5, 4, Faults::StayCut, 0..10) > 250);
}

/// Runs each kind of walk until it has handed out `LOCK_WALKS` guards (default: 100 000), from the
/// seed `LOCK_SEED`.
#[test]
#[ignore = "takes minutes on all processors: scripts/test --all and scripts/torture run it"]
#[allow(clippy::print_stderr, reason = "these numbers are its result")]
fn long_walks_keep_every_law() {
    let number = |name, default| match std::env::var(name) {
        Ok(number) => number.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    };
    let (wanted, first) = (number("LOCK_WALKS", 100_000), number("LOCK_SEED", 0));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    for (name, faults) in [
        ("no fault", Faults::None),
        ("links cut", Faults::Cuts),
        ("every fault", Faults::All),
        ("links stay cut", Faults::StayCut),
    ] {
        for (n, processes) in [(3, 3), (5, 4)] {
            let (guards, seeds) = (AtomicU64::new(0), AtomicU64::new(first));
            std::thread::scope(|scope| {
                for _ in 0..jobs {
                    scope.spawn(|| {
                        while guards.load(Ordering::Relaxed) < wanted {
                            let seed = seeds.fetch_add(1, Ordering::Relaxed);
                            let handed_out = walk(n, processes, faults, seed);
                            guards.fetch_add(handed_out as u64, Ordering::Relaxed);
                        }
                    });
                }
            });
            let walked = seeds.into_inner() - first;
            let guards = guards.into_inner();
            eprintln!("{name}, {n} primaries: {walked} walks from seed {first}, {guards} guards");
        }
    }
}
