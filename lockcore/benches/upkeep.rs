//! Measures the cost of many holds and waiters while nothing happens: scripts per second, the
//! server's time and the client's, and a waiter's memory.
//!
//! Targets: 10 000 holds with a lease of 30 s cost at most 20 scripts per second, and 0.5 % of a
//! core on each side. 5 000 holds with a waiter each cost at most 1.5 % of a core here and 2 % on
//! the server. A waiter needs at most 1 024 bytes, and 2 048 bytes of RSS with its task.
#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockcore::{Acquire, HoldState, LockGuard, Locks};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use support::Server;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

const HOLDS: usize = 10_000;
const PAIRS: usize = 5_000;
const WAITERS: usize = 10_000;
const COUNTED: usize = 1_000;
/// Time over which the locks are acquired, one after the other: the interval of renewals, so that
/// renewals are spread evenly.
const SPREAD: Duration = Duration::from_secs(10);
const SETTLED: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(30);

/// The scripts and processor time used since the start, as of `at`.
struct Used {
    at: Instant,
    scripts: f64,
    script_us: f64,
    server_s: f64,
    client_s: f64,
}

impl Used {
    async fn now(redis: &mut MultiplexedConnection) -> Self {
        let info: String =
            cmd("INFO").arg("everything").query_async(redis).await.expect("answered");
        let number = |name: &str| -> f64 {
            let text = info.split(name).nth(1).unwrap_or("0");
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            text[..end].parse().unwrap_or(0.0)
        };
        Self {
            at: Instant::now(),
            scripts: number("cmdstat_evalsha:calls="),
            script_us: info.split("cmdstat_evalsha:").nth(1).map_or(0.0, |line| {
                let text = line.split("usec=").nth(1).and_then(|text| text.split(',').next());
                text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
            }),
            server_s: number("used_cpu_sys:") + number("used_cpu_user:"),
            client_s: client_seconds(),
        }
    }

    fn print(&self, before: &Self, what: &str) {
        let seconds = (self.at - before.at).as_secs_f64();
        let scripts = self.scripts - before.scripts;
        println!(
            "{what}: {:.1} scripts/s of {:.0} µs, server {:.2} %, client {:.2} %",
            scripts / seconds,
            (self.script_us - before.script_us) / scripts,
            100.0 * (self.server_s - before.server_s) / seconds,
            100.0 * (self.client_s - before.client_s) / seconds,
        );
    }
}

/// Returns the processor time of all threads of this process, in seconds.
fn client_seconds() -> f64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

fn resident_bytes() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("a number") * 4_096.0
}

/// Acquires locks one after the other, evenly over the interval of renewals.
async fn hold(locks: &Locks, count: usize) -> Vec<LockGuard> {
    let start = Instant::now();
    let mut guards = Vec::new();
    for number in 0..count {
        tokio::time::sleep_until((start + SPREAD / count as u32 * number as u32).into()).await;
        guards.push(locks.lock(format!("held:{number}")).await.expect("free"));
    }
    guards
}

fn wait(locks: &Locks, count: usize) -> Vec<JoinHandle<()>> {
    let one = |number| {
        let acquire = locks.lock(format!("held:{number}"));
        tokio::spawn(async move { drop(acquire.await) })
    };
    (0..count).map(one).collect()
}

async fn measure(redis: &mut MultiplexedConnection, what: &str) {
    tokio::time::sleep(SETTLED).await;
    let before = Used::now(redis).await;
    tokio::time::sleep(MEASURED).await;
    Used::now(redis).await.print(&before, what);
}

async fn holds() {
    let server = Server::start();
    let mut redis = server.bare().await;
    let locks = Locks::connect(server.url()).await.expect("connected");
    let guards = hold(&locks, HOLDS).await;
    measure(&mut redis, &format!("{HOLDS} holds")).await;
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
}

async fn holds_and_waiters() {
    let server = Server::start();
    let mut redis = server.bare().await;
    let locks = Locks::connect(server.url()).await.expect("connected");
    let others = Locks::connect(server.url()).await.expect("connected");
    let guards = hold(&locks, PAIRS).await;
    let waiters = wait(&others, PAIRS);
    measure(&mut redis, &format!("{PAIRS} holds and a waiter of each")).await;
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
}

/// Measures a waiter's memory by the bytes that were allocated and not freed. Each waiter waits for
/// its own key, as a future without a task.
fn counted_memory() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = Server::start();
    let (locks, guards) = runtime.block_on(async {
        let holders = Locks::connect(server.url()).await.expect("connected");
        let guards = taken(&holders, COUNTED).await;
        (Locks::connect(server.url()).await.expect("connected"), guards)
    });
    let mut waiters: Vec<Pin<Box<Acquire>>> = Vec::with_capacity(COUNTED);
    let count = allocation_counter::measure(|| {
        waiters.extend((0..COUNTED).map(|number| Box::pin(locks.lock(format!("held:{number}")))));
        runtime.block_on(async {
            let all_wait = poll_fn(|cx| {
                let is_any_done =
                    waiters.iter_mut().any(|waiter| waiter.as_mut().poll(cx).is_ready());
                assert!(!is_any_done, "all are held");
                Poll::<()>::Pending
            });
            // Long enough for a touch or two and their answers.
            let _ = tokio::time::timeout(Duration::from_secs(9), all_wait).await;
        });
    });
    assert_eq!(locks.status().waiting, COUNTED);
    println!("counted: {} bytes a waiter", count.bytes_current / COUNTED as i64);
    drop((waiters, guards));
}

/// Measures a waiter's memory as the operating system counts it, with a task each.
async fn resident_memory() {
    let server = Server::start();
    let locks = Locks::connect(server.url()).await.expect("connected");
    let others = Locks::connect(server.url()).await.expect("connected");
    let guards = taken(&locks, WAITERS).await;
    let before = resident_bytes();
    let waiters = wait(&others, WAITERS);
    while others.status().waiting != WAITERS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    println!("RSS: {:.0} bytes a waiter", (resident_bytes() - before) / WAITERS as f64);
    drop((waiters, guards));
}

async fn taken(locks: &Locks, count: usize) -> Vec<LockGuard> {
    let guards = join_all((0..count).map(|number| locks.lock(format!("held:{number}")))).await;
    guards.into_iter().map(|guard| guard.expect("free")).collect()
}

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(holds());
    runtime.block_on(holds_and_waiters());
    runtime.block_on(resident_memory());
    drop(runtime);
    counted_memory();
}
