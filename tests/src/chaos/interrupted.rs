//! The server's work when a node that waits for very many locks loses its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;

use super::crowd::Crowd;
use crate::{CommandStats, Connections, Raw};

/// How long the server is observed: longer than a waiter may be silent.
const WATCHED: Duration = Duration::from_secs(20);
/// The interval between two readings of all queues: they cost the server time as well.
const LOOKS: Duration = Duration::from_millis(250);
/// The interval between two PINGs.
const PINGS: Duration = Duration::from_millis(1);

/// The least duration of a script that the server's SLOWLOG records.
const LONG: Duration = Duration::from_micros(500);

/// What was measured after the connection was cut.
#[derive(Clone, Debug, Default)]
pub struct Interrupted {
    /// How many connections broke after the first was cut.
    pub breaks: u64,
    /// The maximum number of waiters in a reading that had been silent for too long.
    pub passed: usize,
    /// How many positions were lost by waiters.
    pub positions_lost: u64,
    /// The time from the cut until every waiter was touched.
    pub touched: Duration,
    /// How long the server was observed.
    pub watched: Duration,
    /// The number of scripts run by the node.
    pub scripts: u64,
    /// The total time of these scripts by the server's clock.
    pub busy: Duration,
    /// The longest of these scripts; none if all were below the SLOWLOG threshold.
    pub longest: Option<Duration>,
    /// The PING times of another thread, shortest first.
    pub pings: Vec<Duration>,
}

/// Cuts the connection of a node that waits for `keys` locks, once.
///
/// # Panics
///
/// If the node does not wait for all of them in time.
pub async fn interrupted(keys: usize) -> Interrupted {
    let mut crowd = Crowd::start(keys).await;
    // MONITOR would make the scripts themselves slower.
    crowd.redis.configure("slowlog-max-len", "100000").await;
    crowd.redis.configure("slowlog-log-slower-than", &LONG.as_micros().to_string()).await;
    let pings = Pings::start(crowd.server.url());
    let before = CommandStats::read(&mut crowd.redis).await;
    let since_us = crowd.redis.time_us().await;
    let cut = Instant::now();
    crowd.proxy.cut(Connections::Commands).await;
    let mut measured = Interrupted::default();
    while cut.elapsed() < WATCHED {
        tokio::time::sleep(LOOKS).await; // the measured span
        let look = crowd.look().await;
        measured.passed = measured.passed.max(look.passed + look.missing);
        if measured.touched.is_zero() && Crowd::is_touched_since(&look, since_us) {
            measured.touched = cut.elapsed();
        }
    }
    measured.watched = cut.elapsed();
    measured.pings = pings.stop();
    crowd.redis.configure("slowlog-log-slower-than", "-1").await;
    measured.breaks = crowd.reconnects() - 1;
    measured.positions_lost = crowd.locks.status().positions_lost;
    // Counted by digest: meanwhile only the waiting node runs scripts by digest.
    let ran = CommandStats::read(&mut crowd.redis).await.since(&before).of("evalsha");
    (measured.scripts, measured.busy) = (ran.calls, Duration::from_micros(ran.usec));
    measured.longest = longest(&mut crowd.redis).await;
    measured
}

async fn longest(redis: &mut Raw) -> Option<Duration> {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let commands: Vec<Entry> = redis.ask(cmd("SLOWLOG").arg("GET").arg(-1)).await;
    let scripts = commands.iter().filter(|command| command.3[0] == "EVALSHA");
    scripts.map(|script| Duration::from_micros(script.2)).max()
}

/// A thread that sends PINGs to the server.
struct Pings {
    stops: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Duration>>,
}

impl Pings {
    fn start(url: String) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async {
                let mut redis = Raw::connect(&url).await;
                let mut took = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    redis.ask::<()>(&cmd("PING")).await;
                    took.push(begun.elapsed());
                    thread::sleep(PINGS);
                }
                took
            })
        });
        Self { stops, thread }
    }

    fn stop(self) -> Vec<Duration> {
        self.stops.store(true, Ordering::Relaxed);
        let mut took = self.thread.join().expect("the server answers");
        took.sort_unstable();
        took
    }
}
