//! The cost of a killed process with many waiters for the live processes, on its own lock and on
//! other locks of the same server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockcore::Locks;
use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dead::Waiting;
use crate::{Raw, RedisServer, eventually, queue_key};

const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "stalled";
/// The number of live tasks on the lock of the dead, half of them in each of two nodes.
const TASKS: usize = 16;
/// For how many seconds after the kill the turns are counted.
const SECONDS: usize = 8;

fn name(lock: usize) -> String {
    format!("{KEY}{lock}")
}

async fn wait_until_all_wait(redis: &mut Raw, count: usize, locks: usize) {
    for lock in 0..locks {
        let mut size = cmd("ZCARD");
        size.arg(queue_key(&name(lock)));
        eventually("all wait", SOON, async || redis.ask::<usize>(&size).await == count).await;
    }
}

/// Counts the turns of the live tasks in each second after the kill of a process that waited `dead`
/// times for the same lock.
///
/// # Panics
/// If there is no server.
pub async fn turns_past_the_dead(program: &Path, dead: usize) -> Vec<u64> {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let holder = Locks::connect(server.url()).await.expect("the server accepts a node");
    let guard = holder.lock(name(0)).await.expect("the lock is free");
    let crowd = Waiting::start(program, &server.url(), KEY, &[dead, 1]).await;
    wait_until_all_wait(&mut redis, dead, 1).await;
    let turns = Arc::new(AtomicU64::new(0));
    let mut living = JoinSet::new();
    for _ in 0..2 {
        let locks = Locks::connect(server.url()).await.expect("the server accepts a node");
        for _ in 0..TASKS / 2 {
            let locks = locks.clone();
            let turns = Arc::clone(&turns);
            living.spawn(async move {
                loop {
                    let acquire = locks.key(name(0)).queue_limit(100_000).lock();
                    let guard = acquire.await.expect("the server answers");
                    turns.fetch_add(1, Ordering::Relaxed);
                    drop(guard.release().await);
                }
            });
        }
    }
    wait_until_all_wait(&mut redis, dead + TASKS, 1).await;
    crowd.kill(&mut redis).await;
    guard.release().await.expect("held until now");
    let began = Instant::now();
    let mut counted = Vec::with_capacity(SECONDS);
    for second in 1..=SECONDS as u32 {
        sleep((Duration::from_secs(1) * second).saturating_sub(began.elapsed())).await;
        counted.push(turns.swap(0, Ordering::Relaxed));
    }
    living.shutdown().await;
    counted
}

/// The acquire and release times of an unrelated lock.
#[derive(Debug, Clone, Copy)]
pub struct Unrelated {
    /// The 99th percentile of the pairs in the second before the kill.
    pub before: Duration,
    /// The 99th percentile of the pairs in the second after the kill.
    pub after: Duration,
    /// The longest script after the kill, as the server measured it.
    pub longest_script: Duration,
}

/// Measures the pairs of an unrelated lock around the death of a process that waited `dead` times
/// for each of `locks` locks, which a live process holds and then releases together.
///
/// # Panics
/// If there is no server.
pub async fn unrelated_past_the_dead(program: &Path, dead: usize, locks: usize) -> Unrelated {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let holder = Locks::connect(server.url()).await.expect("the server accepts a node");
    let mut held = Vec::new();
    let mut living = JoinSet::new();
    for lock in 0..locks {
        held.push(holder.lock(name(lock)).await.expect("the lock is free"));
    }
    let crowd = Waiting::start(program, &server.url(), KEY, &[dead, locks]).await;
    wait_until_all_wait(&mut redis, dead, locks).await;
    for lock in 0..locks {
        let acquire = holder.key(name(lock)).queue_limit(100_000).lock();
        living.spawn(async move { drop(acquire.await) });
    }
    wait_until_all_wait(&mut redis, dead + 1, locks).await;
    let other = Locks::connect(server.url()).await.expect("the server accepts a node");
    let before = pairs(&other).await;
    crowd.kill(&mut redis).await;
    redis.configure("slowlog-max-len", "100000").await;
    redis.configure("slowlog-log-slower-than", "500").await;
    drop(held);
    let after = pairs(&other).await;
    redis.configure("slowlog-log-slower-than", "-1").await;
    living.shutdown().await;
    Unrelated { before, after, longest_script: longest_script(&mut redis).await }
}

/// Acquires and releases for a second; returns the 99th percentile.
async fn pairs(locks: &Locks) -> Duration {
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < Duration::from_secs(1) {
        let pair = Instant::now();
        let guard = locks.lock("unrelated").await.expect("the server answers");
        guard.release().await.expect("held until now");
        took.push(pair.elapsed());
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

async fn longest_script(redis: &mut Raw) -> Duration {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let commands: Vec<Entry> = redis.ask(cmd("SLOWLOG").arg("GET").arg(-1)).await;
    let scripts = commands.iter().filter(|command| command.3[0].starts_with("EVAL"));
    Duration::from_micros(scripts.map(|script| script.2).max().unwrap_or(0))
}
