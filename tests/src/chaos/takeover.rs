//! How long a takeover takes: from the kill of a holder until the next waiter has the lock, by the
//! server's clock.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lockcore::Locks;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Grants, Leash, Raw, RedisServer, eventually, lock_key};

const LEASE: Duration = Duration::from_millis(600);
/// How many holders are killed at a time.
const AT_ONCE: usize = 4;
/// The bound of actions that take no time on an idle machine.
const SOON: Duration = Duration::from_secs(30);

/// How long the takeovers took.
#[derive(Clone, Debug, Default)]
pub struct Takeover {
    /// The takeover times, µs, of holders that did not renew after the next waiter arrived.
    pub known: Vec<u64>,
    /// The takeover times of holders that renewed, so that the next waiter had to learn the new
    /// end.
    pub renewed: Vec<u64>,
}

/// Kills `kills` holders, each a separate process, while a task waits.
///
/// # Panics
///
/// If a waiter does not get the lock at all.
pub async fn takeovers(program: &Path, kills: usize) -> Takeover {
    let server = RedisServer::start();
    let grants = Grants::watch(&server);
    let mut running = JoinSet::new();
    for first in 0..AT_ONCE {
        let program = program.to_owned();
        let url = server.url();
        let grants = grants.clone();
        // Blocks a thread: a future that waits for a condition cannot move between threads.
        let runtime = Handle::current();
        running
            .spawn_blocking(move || runtime.block_on(lane(&program, &url, first, kills, &grants)));
    }
    let mut all = Takeover::default();
    while let Some(measured) = running.join_next().await {
        let measured = measured.expect("every lock is taken over");
        all.known.extend(measured.known);
        all.renewed.extend(measured.renewed);
    }
    all
}

/// Runs every fourth kill, one after the other.
async fn lane(program: &Path, url: &str, first: usize, kills: usize, grants: &Grants) -> Takeover {
    let locks = Locks::connect(url).await.expect("the server accepts a node");
    let mut redis = Raw::connect(url).await;
    let mut measured = Takeover::default();
    for kill in (first..kills).step_by(AT_ONCE) {
        let renews = kill % (2 * AT_ONCE) >= AT_ONCE; // equally many of both kinds in every lane
        let took = takeover((program, url), &locks, &mut redis, grants, kill, renews).await;
        let of_its_sort = if renews { &mut measured.renewed } else { &mut measured.known };
        of_its_sort.push(took);
    }
    measured
}

async fn takeover(
    (program, url): (&Path, &str),
    locks: &Locks,
    redis: &mut Raw,
    grants: &Grants,
    kill: usize,
    renews: bool,
) -> u64 {
    let key = format!("takeover-{kill}");
    let sort = if renews { "renewed" } else { "fixed" };
    let mut holder = Command::new(program)
        .args(["hold", url, &key, &LEASE.as_millis().to_string(), sort])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a holder starts");
    let leash = Leash::new(holder.id().expect("it has just started"), None);
    let mut said = BufReader::new(holder.stdout.take().expect("it is piped")).lines();
    let line = timeout(SOON, said.next_line()).await.expect("the holder speaks in time");
    assert_eq!(line.expect("it writes text").as_deref(), Some("held"));

    let waiting = tokio::spawn(locks.key(&key).lock());
    eventually("the next waits", SOON, async || redis.queue(&key).await.len() == 1).await;
    if renews {
        let lock_key = lock_key(&key);
        let mut last = redis.pttl(&lock_key).await;
        eventually("the holder has renewed", SOON, async || {
            let left = redis.pttl(&lock_key).await;
            std::mem::replace(&mut last, left) < left
        })
        .await;
    }
    let killed = redis.time_us().await;
    drop(leash);
    holder.kill().await.expect("a child of ours");
    let granted = timeout(SOON, waiting).await.expect("it is taken over in the end");
    let guard = granted.expect("no panic").expect("a grant");
    let took = grants.at(&key, locks.node().as_str()).await.saturating_sub(killed);
    guard.release().await.expect("held until now");
    took
}

/// Holds `key` until standard input ends, or the process is killed.
///
/// # Panics
///
/// If the process does not get the lock.
pub async fn hold(url: &str, key: &str, lease: Duration, renews: bool) {
    let locks = Locks::connect(url).await.expect("the server accepts a node");
    let request = locks.key(key);
    let request = if renews { request.lease(lease) } else { request.fixed_lease(lease) };
    let _guard = request.lock().await.expect("the lock is free");
    say("held");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let _ = input.next_line().await;
}

/// Prints a line for the parent process; write errors are ignored because a parent that is gone
/// needs no line.
pub(super) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

impl Takeover {
    /// The longest takeover without a renewal in between: the lease plus 250 ms.
    pub const BOUND: Duration = LEASE.saturating_add(Duration::from_millis(250));
    /// The longest takeover with a renewal in between: another touch period.
    pub const BOUND_RENEWED: Duration = LEASE.saturating_add(Duration::from_millis(4_250));

    /// Returns how many takeovers exceeded their bound.
    #[must_use]
    pub fn violations(&self) -> usize {
        let over = |took: &[u64], bound: Duration| {
            took.iter().filter(|took| Duration::from_micros(**took) > bound).count()
        };
        over(&self.known, Self::BOUND) + over(&self.renewed, Self::BOUND_RENEWED)
    }
}
