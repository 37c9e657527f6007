//! Compares a Redis Cluster with a single server, alternating in one run: a free acquire and
//! release, a hand-off from one process's connection to another's, acquires and releases by many
//! tasks, and the renewals of many holds.
//!
//! The servers run on one core, and this program on another.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_tests::{Clustered, CommandStats, RedisServer, queued};
use lockcore::{HoldState, Locks};

use crate::say;

const PRIMARIES: usize = 3;
const PAIRS: u32 = 2_000;
const HAND_OFFS: usize = 300;
const TASKS: usize = 64;
const WINDOW: Duration = Duration::from_secs(1);
const SPREAD: Duration = Duration::from_secs(10);
const SETTLED: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(30);

/// A deployment under test: two nodes, and their lock names.
struct Place {
    one: Locks,
    other: Locks,
    name: String,
    names: Vec<String>,
}

impl Place {
    async fn connect(url: &str, names: Vec<String>) -> Self {
        let locks = async || Locks::connect(url).await.expect("the servers are up");
        Self { one: locks().await, other: locks().await, name: names[0].clone(), names }
    }

    /// Returns the mean time of an acquire and a release of a free lock, in µs.
    async fn pair(&self) -> f64 {
        let started = Instant::now();
        for _ in 0..PAIRS {
            let guard = self.one.lock(&self.name).await.expect("free");
            guard.release().await.expect("held");
        }
        started.elapsed().as_secs_f64() * 1e6 / f64::from(PAIRS)
    }

    /// Returns the median time from a release to the guard of the other node, in µs.
    async fn hand_off(&self) -> f64 {
        let mut times = Vec::new();
        for _ in 0..HAND_OFFS {
            let held = self.one.lock(&self.name).await.expect("free");
            let acquire = self.other.lock(&self.name);
            let waiting = tokio::spawn(async move {
                let guard = acquire.await.expect("handed over");
                (Instant::now(), guard)
            });
            queued(&self.one, &self.name, 1).await;
            // The other node must have its own reply as well.
            self.other.inspect(&self.name).await.expect("answered");
            let started = Instant::now();
            held.release().await.expect("held");
            let (granted, guard) = waiting.await.expect("no panic");
            guard.release().await.expect("held");
            times.push((granted - started).as_secs_f64() * 1e6);
        }
        median(times)
    }

    /// Acquires and releases per second by many tasks, each with a separate lock.
    async fn throughput(&self) -> f64 {
        let until = Instant::now() + WINDOW;
        let turns = |name: &String| {
            let (locks, name) = (self.one.clone(), name.clone());
            tokio::spawn(async move {
                let mut turns = 0_u32;
                while Instant::now() < until {
                    let guard = locks.lock(&name).await.expect("free");
                    guard.release().await.expect("held");
                    turns += 1;
                }
                turns
            })
        };
        let turns = join_all(self.names.iter().map(turns)).await;
        turns.into_iter().map(|turns| f64::from(turns.expect("no panic"))).sum()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Pins all threads of a process to one core.
fn pin(pid: u32, core: &str) {
    let mut taskset = Command::new("taskset");
    let pinned = taskset.args(["-a", "-p", "-c", core, &pid.to_string()]).stdout(Stdio::null());
    assert!(pinned.status().expect("taskset is installed").success());
}

/// Runs `cluster ROUNDS HOLDS`.
pub(crate) fn cluster(rounds: usize, holds: usize) -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let server = RedisServer::start();
        let mut clustered = Clustered::steady().await;
        pin(server.pid(), "0");
        for primary in 0..PRIMARIES {
            pin(clustered.server(primary).pid(), "0");
        }
        pin(std::process::id(), "1");
        let each = TASKS.div_ceil(PRIMARIES);
        let names: Vec<String> = (0..TASKS)
            .map(|task| clustered.key_of(task % PRIMARIES, task / PRIMARIES % each))
            .collect();
        let alone = Place::connect(&server.url(), names.clone()).await;
        let together = Place::connect(&clustered.url(), names).await;
        compare(rounds, &alone, &together).await;
        upkeep(&clustered, &together.one, holds).await;
    });
    ExitCode::SUCCESS
}

async fn compare(rounds: usize, alone: &Place, together: &Place) {
    let mut figures: [Vec<(f64, f64)>; 3] = Default::default();
    for _ in 0..rounds {
        figures[0].push((alone.pair().await, together.pair().await));
        figures[1].push((alone.hand_off().await, together.hand_off().await));
        figures[2].push((alone.throughput().await, together.throughput().await));
    }
    let what = ["pair, µs", "hand-off, µs", "pairs/s of 64 tasks"];
    for (what, figures) in what.into_iter().zip(figures) {
        let ratio = median(figures.iter().map(|(alone, together)| together / alone).collect());
        let alone = median(figures.iter().map(|(alone, _)| *alone).collect());
        say(&format!("{what}: one server {alone:.0}, a Cluster / one server {ratio:.2}"));
    }
}

/// Acquires many locks across all primaries, and reports the renewal cost at each.
async fn upkeep(clustered: &Clustered, locks: &Locks, holds: usize) {
    let started = Instant::now();
    let mut guards = Vec::new();
    for number in 0..holds {
        let at = started + SPREAD / holds as u32 * number as u32;
        tokio::time::sleep_until(at.into()).await;
        guards.push(locks.lock(format!("held:{number}")).await.expect("free"));
    }
    tokio::time::sleep(SETTLED).await;
    let before = busy(clustered).await;
    tokio::time::sleep(MEASURED).await;
    let after = busy(clustered).await;
    for (primary, (before, after)) in before.into_iter().zip(after).enumerate() {
        let name = |number: &usize| clustered.primary_of(&format!("held:{number}")) == primary;
        say(&format!(
            "{} of {holds} holds at primary {primary}: {:.2} % of a core, {:.0} scripts/s",
            (0..holds).filter(name).count(),
            (after.0 - before.0) * 100.0 / MEASURED.as_secs_f64(),
            (after.1 - before.1) / MEASURED.as_secs_f64(),
        ));
    }
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held), "all are held");
    let released = join_all(guards.into_iter().map(|guard| guard.release())).await;
    assert!(released.iter().all(Result::is_ok), "all were held");
}

/// Returns the CPU seconds of each primary, and the script calls.
async fn busy(clustered: &Clustered) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    for primary in 0..PRIMARIES {
        let mut redis = clustered.raw(primary).await;
        let scripts = CommandStats::read(&mut redis).await.calls("evalsha");
        let text = redis.info("cpu").await;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let main = lines.filter(|(name, _)| ["used_cpu_sys", "used_cpu_user"].contains(name));
        let seconds = main.map(|(_, value)| value.parse::<f64>().expect("seconds")).sum();
        all.push((seconds, scripts as f64));
    }
    all
}
