//! How long a hand-off takes that skips many waiters of a killed process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lockcore::Locks;
use redis::cmd;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::takeover::say;
use crate::{Leash, Raw, RedisServer, eventually};

const KEY: &str = "dead";
const SOON: Duration = Duration::from_secs(30);
/// The queue limit, above the number of dead waiters.
const LIMIT: u32 = 100_000;

/// A waiting [`crowd`], in a separate process.
pub(super) struct Waiting {
    child: Child,
    leash: Leash,
    node: String,
}

impl Waiting {
    pub(super) async fn start(program: &Path, url: &str, key: &str, counts: &[usize]) -> Self {
        let mut child = Command::new(program)
            .args(["crowd", url, key])
            .args(counts.iter().map(usize::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a crowd starts");
        let leash = Leash::new(child.id().expect("it has just started"), None);
        let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let node = timeout(SOON, said.next_line()).await.expect("the crowd speaks in time");
        let node = node.expect("it writes text").expect("it says its node");
        Self { child, leash, node }
    }

    /// Kills the process; returns when the server has noticed.
    pub(super) async fn kill(mut self, redis: &mut Raw) {
        drop(self.leash);
        self.child.kill().await.expect("a child of ours");
        let channel = format!("lockcore:grants:{}", self.node);
        eventually("it is gone", SOON, async || redis.subscribers(&channel).await == 0).await;
    }
}

/// Measures the script that releases the lock and grants it to the one live waiter behind `dead`
/// dead ones, by the server's clock (SLOWLOG).
///
/// # Panics
///
/// If that waiter does not get the lock.
pub async fn hand_over_past_the_dead(program: &Path, dead: usize) -> Duration {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("the server accepts a node");
    let guard = locks.lock(KEY).await.expect("the lock is free");
    let crowd = Waiting::start(program, &server.url(), KEY, &[dead]).await;
    eventually("all wait", SOON, async || redis.queue(KEY).await.len() == dead).await;
    let waiting = tokio::spawn(locks.key(KEY).queue_limit(LIMIT).lock());
    eventually("one more waits", SOON, async || redis.queue(KEY).await.len() == dead + 1).await;
    crowd.kill(&mut redis).await;

    // MONITOR would make the script itself slower.
    redis.configure("slowlog-log-slower-than", "0").await;
    guard.release().await.expect("held until now");
    let granted = timeout(SOON, waiting).await.expect("it is handed over");
    redis.configure("slowlog-log-slower-than", "-1").await;
    let next = granted.expect("no panic").expect("a grant");
    next.release().await.expect("held until now");
    longest_script(&mut redis).await
}

/// Returns the duration of the longest script, which handed off the lock: the next waiter waited
/// for this long.
async fn longest_script(redis: &mut Raw) -> Duration {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let commands: Vec<Entry> = redis.ask(cmd("SLOWLOG").arg("GET").arg(-1)).await;
    let scripts = commands.iter().filter(|command| command.3[0].starts_with("EVAL"));
    let longest = scripts.map(|script| script.2).max().expect("a script did it");
    Duration::from_micros(longest)
}

/// Waits for a lock `count` times, until killed: for `key`, or with a second count for that many
/// locks, named `key` and a number.
///
/// # Panics
///
/// If there is no server, or no count.
pub async fn crowd(url: &str, key: &str, counts: &[usize]) {
    let locks = Locks::connect(url).await.expect("the server accepts a node");
    let names: Vec<String> = match *counts {
        [_] => vec![key.to_owned()],
        [_, locks] => (0..locks).map(|lock| format!("{key}{lock}")).collect(),
        _ => panic!("a count, and maybe a number of locks"),
    };
    let mut waiting = JoinSet::new();
    for name in &names {
        for _ in 0..counts[0] {
            waiting.spawn(locks.key(name).queue_limit(LIMIT).lock());
        }
    }
    say(locks.node().as_str());
    while waiting.join_next().await.is_some() {}
}
