//! Lock and release of a free lock, against the two smallest scripts that set and delete a key.
//!
//! Target: at most 1.15 times as long.
#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use lockcore::Locks;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use support::{Server, load, median, median_us, runtimes};

const REPETITIONS: usize = 9;
const PAIRS: usize = 1_000;

const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The bare pair and its digests.
struct Bare {
    connection: MultiplexedConnection,
    set: String,
    delete: String,
}

impl Bare {
    async fn pair(&mut self, key: &str) {
        let mut set = cmd("EVALSHA");
        set.arg(&self.set).arg(1).arg(key).arg("owner").arg(30_000);
        let taken: Option<String> = set.query_async(&mut self.connection).await.expect("answered");
        assert!(taken.is_some());
        let mut delete = cmd("EVALSHA");
        delete.arg(&self.delete).arg(1).arg(key).arg("owner");
        let deleted: i64 = delete.query_async(&mut self.connection).await.expect("answered");
        assert_eq!(deleted, 1);
    }
}

async fn pair(locks: &Locks, key: &str) {
    let guard = locks.lock(key).await.expect("free");
    guard.release().await.expect("held");
}

/// Runs one repetition: both in turn. Returns the medians in µs.
async fn repetition(locks: &Locks, bare: &mut Bare) -> (f64, f64) {
    let mut ours = Vec::<Duration>::new();
    let mut theirs = Vec::new();
    for number in 0..PAIRS {
        let key = format!("bench:{}", number % 100);
        let start = Instant::now();
        bare.pair(&key).await;
        theirs.push(start.elapsed());
        let start = Instant::now();
        pair(locks, &key).await;
        ours.push(start.elapsed());
    }
    (median_us(&ours), median_us(&theirs))
}

async fn measure(server_url: String, mut bare: Bare) -> Vec<(f64, f64)> {
    let locks = Locks::connect(server_url).await.expect("connected");
    repetition(&locks, &mut bare).await; // warm
    let mut repetitions = Vec::new();
    for _ in 0..REPETITIONS {
        repetitions.push(repetition(&locks, &mut bare).await);
    }
    repetitions
}

fn main() {
    let server = Server::start();
    println!("uncontended lock + release, {REPETITIONS} repetitions of {PAIRS} pairs, interleaved");
    println!("{:<16} {:>10} {:>10} {:>7}   target 1.15", "runtime", "bare µs", "ours µs", "ratio");
    for (name, runtime) in runtimes() {
        let repetitions = runtime.block_on(async {
            let mut connection = server.bare().await;
            let set = load(&mut connection, SET).await;
            let delete = load(&mut connection, DELETE).await;
            let bare = Bare { connection, set, delete };
            tokio::spawn(measure(server.url(), bare)).await.expect("no panic")
        });
        let bare = median(repetitions.iter().map(|(_, bare)| *bare).collect());
        let ours = median(repetitions.iter().map(|(ours, _)| *ours).collect());
        let ratio = median(repetitions.iter().map(|(ours, bare)| ours / bare).collect());
        println!("{name:<16} {bare:>10.1} {ours:>10.1} {ratio:>7.3}");
    }
}
