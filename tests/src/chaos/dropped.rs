//! Compares dropped guards with released guards: the turns of many tasks on few threads, the holds
//! without an owner meanwhile, and a hand-off in a flood of cancelled waits.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockcore::{LockGuard, LockOptions, Locks};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::JoinHandle;

use crate::{Delay, Raw, RedisServer, eventually, queued};

/// The CPU time of the work under each lock.
const WORK: Duration = Duration::from_micros(20);
const SOON: Duration = Duration::from_secs(60);
/// How many waits for other locks are cancelled at once.
const FLOOD: usize = 5_000;
const QUEUE_LIMIT: u32 = 200_000;

/// How a guard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardEnd {
    /// The guard is dropped.
    Dropped,
    /// The guard is released by `release().await`.
    Released,
}

/// The environment of tasks that take turns.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// The number of runtime threads.
    pub threads: usize,
    /// The latency to the server, each way.
    pub each_way: Duration,
    /// The number of tasks. Each turn of a task locks another name.
    pub tasks: usize,
}

/// The turns taken by the tasks.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// The turns in each time slice.
    pub parts: Vec<u64>,
    /// The maximum number of holds without an owner at once.
    pub releasing: usize,
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("threads can be started")
}

fn url(server: &RedisServer, each_way: Duration) -> String {
    let near = server.address();
    let address: SocketAddr = match each_way.is_zero() {
        true => near,
        false => Delay::start(near, each_way).address(),
    };
    format!("redis://{address}/")
}

async fn connect(url: &str) -> Locks {
    let defaults = LockOptions::new().queue_limit(QUEUE_LIMIT);
    let builder = Locks::builder().defaults(defaults).max_waiting(QUEUE_LIMIT);
    builder.connect(url).await.expect("the server accepts a node")
}

/// Keeps the thread busy, like work between two awaits.
fn work() {
    let started = Instant::now();
    while started.elapsed() < WORK {
        std::hint::spin_loop();
    }
}

/// Lets the tasks take turns for `parts` time slices.
///
/// # Panics
///
/// If the server refuses a free lock.
pub fn turns_of(workers: Workers, end: GuardEnd, (parts, part): (usize, Duration)) -> Turns {
    let server = RedisServer::start();
    let url = url(&server, workers.each_way);
    let runtime = runtime(workers.threads);
    let turns = runtime.block_on(async {
        let locks = connect(&url).await;
        let started = Instant::now();
        let tasks: Vec<JoinHandle<Turns>> = (0..workers.tasks)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let mut taken = Turns { parts: vec![0; parts], releasing: 0 };
                    for turn in 0_u64.. {
                        let guard = locks.lock(format!("{task}:{turn}")).await.expect("free");
                        work();
                        match end {
                            GuardEnd::Dropped => drop(guard),
                            GuardEnd::Released => guard.release().await.expect("held until now"),
                        }
                        let releasing = locks.status().releasing;
                        taken.releasing = taken.releasing.max(releasing);
                        let now = (started.elapsed().as_micros() / part.as_micros()) as usize;
                        match taken.parts.get_mut(now) {
                            Some(turns) => *turns += 1,
                            None => break,
                        }
                    }
                    taken
                })
            })
            .collect();
        let mut all = Turns { parts: vec![0; parts], releasing: 0 };
        for taken in join_all(tasks).await {
            let taken = taken.expect("no panic");
            all.parts.iter_mut().zip(taken.parts).for_each(|(all, turns)| *all += turns);
            all.releasing = all.releasing.max(taken.releasing);
        }
        all
    });
    runtime.shutdown_background();
    turns
}

/// Cancels 5 000 waits for other locks at once and then ends a guard; returns the time until
/// another process has the lock.
///
/// # Panics
///
/// If the server refuses a node or a wait.
pub fn hand_over_in_a_flood(each_way: Duration, end: GuardEnd) -> Duration {
    let server = RedisServer::start();
    let url = url(&server, each_way);
    let [ours, theirs] = [runtime(1), runtime(1)];
    let near = format!("redis://{}/", server.address());
    let (locks, mut guard, holds, waits) = ours.block_on(async {
        let locks = connect(&url).await;
        let holder = connect(&near).await;
        let guard = locks.lock("guarded").await.expect("free");
        let names = || (0..FLOOD).map(|number| format!("other {number}"));
        let held = names().map(|name| holder.lock(name));
        let holds: Vec<LockGuard> =
            join_all(held).await.into_iter().map(|guard| guard.expect("free")).collect();
        let waits: Vec<_> = names().map(|name| tokio::spawn(locks.lock(name))).collect();
        queued(&holder, &format!("other {}", FLOOD - 1), 1).await;
        let all = async || locks.status().waiting == FLOOD;
        eventually("all wait", SOON, all).await;
        (locks, Some(guard), (holder, holds), waits)
    });
    let next = theirs.spawn(async move {
        let other = connect(&near).await;
        let guard = other.lock("guarded").await.expect("handed over");
        (Instant::now(), guard)
    });
    ours.block_on(queued(&holds.0, "guarded", 1));
    let began = ours.block_on(async {
        waits.iter().for_each(JoinHandle::abort);
        join_all(waits).await;
        let began = Instant::now();
        let guard = guard.take().expect("once");
        match end {
            GuardEnd::Dropped => drop(guard),
            GuardEnd::Released => drop(guard.release()),
        }
        began
    });
    let (handed_over, guard) = theirs.block_on(next).expect("no panic");
    drop((guard, locks, holds));
    ours.shutdown_background();
    theirs.shutdown_background();
    handed_over - began
}

/// Ends `guards` guards at once; returns the longest PING of another client until all are released.
///
/// # Panics
///
/// If the server refuses a free lock.
pub fn ping_in_a_burst(guards: usize, end: GuardEnd) -> Duration {
    let server = RedisServer::start();
    let url = server.url();
    let [ours, theirs] = [runtime(1), runtime(1)];
    let (locks, held) = ours.block_on(async {
        let locks = connect(&url).await;
        let held = join_all((0..guards).map(|number| locks.lock(number.to_string()))).await;
        (locks, held)
    });
    let held: Vec<LockGuard> = held.into_iter().map(|guard| guard.expect("free")).collect();
    let (stop, mut until) = tokio::sync::oneshot::channel::<()>();
    let pings = theirs.spawn(async move {
        let mut redis = Raw::connect(&url).await;
        let mut longest = Duration::ZERO;
        while until.try_recv() == Err(TryRecvError::Empty) {
            let asked = Instant::now();
            redis.ask::<String>(&redis::cmd("PING")).await;
            longest = longest.max(asked.elapsed());
        }
        longest
    });
    ours.block_on(async {
        match end {
            GuardEnd::Dropped => drop(held),
            GuardEnd::Released => {
                for released in join_all(held.into_iter().map(LockGuard::release)).await {
                    released.expect("held until now");
                }
            }
        }
        let idle = async || locks.status().releasing == 0;
        eventually("all are released", SOON, idle).await;
    });
    let _ = stop.send(());
    let longest = theirs.block_on(pings).expect("no panic");
    ours.shutdown_background();
    theirs.shutdown_background();
    longest
}
